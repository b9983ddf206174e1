#include "stack/model_stack.h"

#include <gtest/gtest.h>

#include <fstream>

#include "weights/gguf_fixture.h"

namespace headrace {
namespace {

// Contiguous memory is a whole context for every sequence that runs: what is planned for keys and
// values bounds how many do.
TEST(ModelStack, ContiguousMemoryIsNoMoreThanThePool) {
  constexpr int32_t kContext = 128, kSequences = 8;
  const std::string path = testing::TempDir() + "/contiguous.gguf";
  std::ofstream(path, std::ios::binary) << tiny_llama().build();
  const auto load = [&](const char* kv_memory, int64_t pool_bytes) {
    return ModelStack::load({.model = path,
                             .threads = 1,
                             .max_model_len = kContext,
                             .max_num_seqs = kSequences,
                             .kv_cache_memory_bytes = pool_bytes,
                             .kv_memory = kv_memory});
  };
  const auto roomy = load("contiguous", 1 << 20);
  ASSERT_TRUE(roomy.ok()) << roomy.status().message();
  const auto at_once = [](const auto& stack) {
    return (*stack)->engine().options().scheduler.max_num_seqs;
  };
  EXPECT_EQ(at_once(roomy), kSequences);
  const int64_t page_bytes = (*roomy)->info().kv_bytes / (*roomy)->info().block_count;
  const int64_t context_bytes = page_bytes * kContext / (*roomy)->info().block_tokens;
  for (const int64_t contexts : {1, 3}) {
    EXPECT_EQ(at_once(load("contiguous", contexts * context_bytes)), contexts);
    EXPECT_EQ(at_once(load("contiguous", (contexts + 1) * context_bytes - page_bytes)), contexts);
    EXPECT_EQ(at_once(load("paged", contexts * context_bytes)), kSequences);
  }
}

}  // namespace
}  // namespace headrace
