// C2 to C7: where keys and values lie, and which of them are kept.
#include <cmath>

#include "bench/ablation.h"
#include "bench/ablation_simulated.h"

namespace headrace {
namespace {

// Two thousand tokens and a little of the small models that a CPU runs.
constexpr int64_t kLittleMemory = int64_t{64} << 20;
constexpr int32_t kContext = 2048;

AblationMeasure on_engine(std::string name, AblationBench::Change change,
                          std::function<Result<double>(ModelStack&, uint64_t seed)> measure) {
  return [=](AblationBench& bench) -> Result<double> {
    HR_ASSIGN_OR_RETURN(ModelStack* const stack, bench.engine(name, change));
    return measure(*stack, bench.seed());
  };
}

// Seconds until all are answered; prompts that no other case sends.
auto all_seconds(int32_t requests, WorkItem item) {
  return [=](ModelStack& stack, uint64_t seed) -> Result<double> {
    const std::vector<WorkItem> items(static_cast<size_t>(requests), item);
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(stack, items, seed + 500));
    return result.seconds;
  };
}

// Seconds of a token of streams that decode side by side.
auto token_seconds(int32_t streams, int32_t depth) {
  return [=](ModelStack& stack, uint64_t seed) -> Result<double> {
    const std::vector<WorkItem> items(static_cast<size_t>(streams),
                                      {.prompt = depth, .output = 33});
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(stack, items, seed));
    // Of the last to begin: all the others decode beside it.
    return result.requests.back().per_token();
  };
}

// Seconds to the first token of a prompt that was sent before, and `between` others after it.
auto again_seconds(int32_t prompt, int32_t between) {
  return [=](ModelStack& stack, uint64_t seed) -> Result<double> {
    const WorkItem item{.prompt = prompt, .output = 2};
    HR_RETURN_IF_ERROR(run_workload(stack, {&item, 1}, seed).status());
    for (int32_t i = 0; i < between; ++i) {
      HR_RETURN_IF_ERROR(
          run_workload(stack, {&item, 1}, seed + 1000 + static_cast<uint64_t>(i)).status());
    }
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(stack, {&item, 1}, seed));
    return result.requests.front().first_token;
  };
}

AblationBench::Change memory_of(KvMemoryKind kv_memory, int64_t bytes) {
  return [=](StackOptions& options) {
    options.runner.kv_memory = kv_memory;
    options.memory.kv_cache_memory_bytes = bytes;
    options.memory.max_model_len = kContext;
    options.batch.max_num_seqs = 32;
    options.engine.scheduler.enable_prefix_caching = false;
  };
}

AblationBench::Change prefixes(bool kept, double host_gib, int64_t bytes) {
  return [=](StackOptions& options) {
    options.engine.scheduler.enable_prefix_caching = kept;
    options.tiers.host_gib = host_gib;
    options.memory.kv_cache_memory_bytes = bytes;
    options.memory.max_model_len = kContext;
    options.batch.max_num_seqs = 8;
  };
}

constexpr AblationUnit kUsers = {"users", 1, true};

// In a quarter of the machine's memory.
SimulatedSetup conversation_in(KvAllocation allocation) {
  SimulatedSetup setup{.trace = {.kind = "conversation", .requests = 2000, .rate = 15},
                       .kv_tokens = 200000};
  setup.scheduler.allocation = allocation;
  setup.scheduler.enable_prefix_caching = false;
  setup.scheduler.max_num_seqs = 256;
  return setup;
}

SimulatedSetup agents(bool prefixes_kept) {
  SimulatedSetup setup{.trace = {.kind = "agentic", .requests = 2000, .rate = 20}};
  setup.scheduler.enable_prefix_caching = prefixes_kept;
  return setup;
}

// Users of 2,048 tokens that one H200 (141 GB, nine tenths of it for weights, keys and values)
// holds beside the weights of an 8B model in 16 bits: its bytes per user. Arithmetic, nothing runs.
struct UserMemory {
  int32_t kv_heads = 32;  // of 32 heads, of 128 numbers, in 32 layers
  double bits = 16;       // of a number
  bool paged = false;     // else room for 4,096 tokens, the longest sequence
};
AblationMeasure users_of(UserMemory memory) {
  return [=](AblationBench&) -> Result<double> {
    constexpr double kBytes = 0.9 * 141e9 - 2 * 8.03e9, kUserTokens = 2048, kContextTokens = 4096;
    const double token_bytes = 2.0 * 32 * memory.kv_heads * 128 * memory.bits / 8;
    const double tokens = memory.paged ? kUserTokens : kContextTokens;
    return std::floor(kBytes / (tokens * token_bytes));
  };
}

double waste(const ReplayReport& report) { return report.kv_slots.share(); }

// Eight sequences of 1,057 tokens: also of an 8B model, which has 128 KiB a token.
constexpr int64_t kRoom = int64_t{2} << 30;

}  // namespace

std::vector<AblationCase> paged_memory_cases() {
  const auto chats = all_seconds(32, {.prompt = 64, .output = 24});
  const auto token = token_seconds(8, 1024);
  return {
      {"32 short chats, 64 MiB", "all of them",
       on_engine("paged", memory_of(KvMemoryKind::kPaged, kLittleMemory), chats),
       on_engine("contiguous", memory_of(KvMemoryKind::kContiguous, kLittleMemory), chats)},
      {"8 streams behind 1024", "a token",
       on_engine("roomy", memory_of(KvMemoryKind::kPaged, kRoom), token),
       on_engine("roomy contiguous", memory_of(KvMemoryKind::kContiguous, kRoom), token)},
      {"conversation, 15 a second", "waste",
       simulated(conversation_in(KvAllocation::kPaged), waste),
       simulated(conversation_in(KvAllocation::kReserveMax), waste), kPercent, true},
      {"conversation, 15 a second", "first token p99",
       simulated(conversation_in(KvAllocation::kPaged), ttft_p99),
       simulated(conversation_in(KvAllocation::kReserveMax), ttft_p99), kMilliseconds, true},
      {"users of 2k tokens on an H200: paged", "users", users_of({.paged = true}), users_of({}),
       kUsers, true},
      {"the same, and 8 key heads of 32", "users", users_of({.kv_heads = 8, .paged = true}),
       users_of({}), kUsers, true},
      {"the same, and int8", "users", users_of({.kv_heads = 8, .bits = 8.5, .paged = true}),
       users_of({}), kUsers, true},
  };
}

std::vector<AblationCase> virtual_memory_cases() {
  const auto token = token_seconds(8, 1024);
  const auto many = all_seconds(96, {.prompt = 40, .output = 2});
  return {
      {"8 streams behind 1024", "a token",
       on_engine("virtual", memory_of(KvMemoryKind::kVirtual, kRoom), token),
       on_engine("paged", memory_of(KvMemoryKind::kPaged, kRoom), token)},
      {"96 short requests", "all of them",
       on_engine("virtual", memory_of(KvMemoryKind::kVirtual, kRoom), many),
       on_engine("paged", memory_of(KvMemoryKind::kPaged, kRoom), many)},
  };
}

std::vector<AblationCase> prefix_cache_cases() {
  const auto again = again_seconds(1024, 0);
  const auto fresh = all_seconds(8, {.prompt = 256, .output = 16});
  return {
      {"1024 tokens sent before", "first token", on_engine("kept", prefixes(true, 0, kRoom), again),
       on_engine("not kept", prefixes(false, 0, kRoom), again)},
      {"8 new prompts of 256", "all of them", on_engine("kept", prefixes(true, 0, kRoom), fresh),
       on_engine("not kept", prefixes(false, 0, kRoom), fresh)},
      {"agentic, 20 a second", "first token p50", simulated(agents(true), ttft_p50),
       simulated(agents(false), ttft_p50), kMilliseconds, true},
  };
}

std::vector<AblationCase> tier_cases() {
  const auto again = again_seconds(1536, 2);
  return {{"1536 tokens, pushed out by others", "first token",
           on_engine("host memory", prefixes(true, 1, kLittleMemory), again),
           on_engine("pool alone", prefixes(true, 0, kLittleMemory), again)}};
}

}  // namespace headrace
