#include "stack/model_stack.h"
#include "stack/model_device.h"

#include <gtest/gtest.h>

#include <fstream>

#include "weights/gguf_fixture.h"

namespace headrace::model_stack_test {
namespace {

// Contiguous memory is a whole context for every sequence that runs: what is planned for keys and
// values bounds how many do.
TEST(ModelStack, ContiguousMemoryIsNoMoreThanThePool) {
  constexpr int32_t kContext = 128, kSequences = 8;
  const std::string path = testing::TempDir() + "/contiguous.gguf";
  std::ofstream(path, std::ios::binary) << tiny_llama().build();
  constexpr KvMemoryKind kContiguous = KvMemoryKind::kContiguous;
  const auto load = [&](KvMemoryKind kv_memory, int64_t pool_bytes) {
    return ModelStack::load(
        {.model = path,
         .device = {.threads = 1},
         .batch = {.max_num_seqs = kSequences},
         .memory = {.max_model_len = kContext, .kv_cache_memory_bytes = pool_bytes},
         .runner = {.kv_memory = kv_memory}});
  };
  const auto roomy = load(kContiguous, 1 << 20);
  ASSERT_TRUE(roomy.ok()) << roomy.status().message();
  const auto at_once = [](const auto& stack) {
    return (*stack)->engine().options().scheduler.max_num_seqs;
  };
  EXPECT_EQ(at_once(roomy), kSequences);
  const int64_t page_bytes = (*roomy)->info().kv_bytes / (*roomy)->info().block_count;
  const int64_t context_bytes = page_bytes * kContext / (*roomy)->info().block_tokens;
  for (const int64_t contexts : {1, 3}) {
    EXPECT_EQ(at_once(load(kContiguous, contexts * context_bytes)), contexts);
    EXPECT_EQ(at_once(load(kContiguous, (contexts + 1) * context_bytes - page_bytes)), contexts);
    EXPECT_EQ(at_once(load(KvMemoryKind::kPaged, contexts * context_bytes)), kSequences);
  }
}

TEST(ModelStack, NoRequestIsPromisedThatThePoolNeverHolds) {
  const std::string path = testing::TempDir() + "/small-pool.gguf";
  std::ofstream(path, std::ios::binary) << tiny_llama().build();
  const auto length_of = [&](int64_t pool_bytes) {
    const auto stack =
        ModelStack::load({.model = path,
                          .device = {.threads = 1},
                          .batch = {.max_num_seqs = 2},
                          .memory = {.max_model_len = 128, .kv_cache_memory_bytes = pool_bytes}});
    EXPECT_TRUE(stack.ok()) << stack.status().message();
    return std::pair((*stack)->info().max_model_len,
                     (*stack)->info().kv_bytes / (*stack)->info().block_count);
  };
  const auto [whole, page_bytes] = length_of(1 << 20);
  EXPECT_EQ(whole, 128);
  EXPECT_EQ(length_of(8 * page_bytes).first, 128);
  EXPECT_EQ(length_of(3 * page_bytes).first, 3 * 16);
}

TEST(ModelStack, MoreGpusThanRanksAreRefused) {
  DeviceOptions options;
  options.choice = DeviceChoice::kGpu;
  options.gpus = {0, 1, 2};
  options.tensor_parallel_size = 2;
  const auto devices = create_devices(options);
  ASSERT_FALSE(devices.ok());
  EXPECT_EQ(devices.status().message(),
            "--device names 3 GPUs, and the model is split over 2 (--tensor-parallel-size, "
            "--pipeline-parallel-size): each part has one");
}

}  // namespace
}  // namespace headrace::model_stack_test
