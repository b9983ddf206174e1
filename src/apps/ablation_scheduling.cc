// S1 to S8: who runs when.
#include <algorithm>

#include "apps/ablation.h"
#include "apps/ablation_simulated.h"

namespace headrace {
namespace {

constexpr int32_t kSlots = 8;

AblationMeasure on_policy(std::string policy, std::vector<WorkItem> (*work)(uint64_t seed)) {
  return [=](AblationBench& bench) -> Result<double> {
    HR_ASSIGN_OR_RETURN(ModelStack* const stack, bench.engine(policy, [&](StackOptions& options) {
      options.policy = policy;
      options.max_num_seqs = kSlots;
      options.max_model_len = 1024;
      options.enable_prefix_caching = false;
    }));
    HR_ASSIGN_OR_RETURN(const WorkloadResult result,
                        run_workload(*stack, work(bench.seed()), bench.seed()));
    return result.output_rate();
  };
}

std::vector<WorkItem> alike(uint64_t) {
  return std::vector<WorkItem>(16, {.prompt = 32, .output = 48});
}

// Lengths as people's chats have them, cut to a quarter of a small context.
std::vector<WorkItem> chats(uint64_t seed) {
  TraceOptions options{.kind = "sharegpt", .requests = 40, .max_model_len = 512, .seed = seed};
  const std::vector<TraceRequest> trace = make_trace(options).value();
  std::vector<WorkItem> items;
  for (const TraceRequest& request : trace) {
    items.push_back({.prompt = request.prompt_tokens(), .output = request.output});
  }
  return items;
}

// ---- long prompts beside decodes, on a real engine

constexpr int32_t kDecoders = 8, kLongPrompt = 2048;

AblationBench::Change chunked(double tpot_target) {
  return [=](StackOptions& options) {
    options.chunked_prefill = tpot_target > 0;
    options.tpot_target_seconds = tpot_target;
    options.max_num_batched_tokens = tpot_target > 0 ? 512 : kLongPrompt + 64;
    options.max_num_seqs = kDecoders + 1;
    options.max_model_len = kLongPrompt + 64;
    options.enable_prefix_caching = false;
  };
}

// Eight streams, and after a second a long prompt.
AblationMeasure beside_prompt(std::string name, double tpot_target,
                              double (*figure)(const WorkloadResult&)) {
  return [=](AblationBench& bench) -> Result<double> {
    HR_ASSIGN_OR_RETURN(ModelStack* const stack, bench.engine(name, chunked(tpot_target)));
    std::vector<WorkItem> items(kDecoders, {.prompt = 64, .output = 480});
    items.push_back({.prompt = kLongPrompt, .output = 2, .at_seconds = 1});
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(*stack, items, bench.seed()));
    return figure(result);
  };
}

double worst_gap(const WorkloadResult& result) {
  std::vector<double> gaps;
  for (size_t i = 0; i < kDecoders; ++i) {
    gaps.insert(gaps.end(), result.requests[i].gaps.begin(), result.requests[i].gaps.end());
  }
  return percentile(gaps, 0.999);
}

double first_token_of_prompt(const WorkloadResult& result) {
  return result.requests.back().first_token - result.requests.back().submitted;
}

// ---- simulated

SimulatedSetup simulated_policy(std::string policy, std::string kind, double load) {
  SimulatedSetup setup{.trace = {.kind = kind, .requests = 8000}, .load = load};
  setup.scheduler.policy = policy;
  return setup;
}

// Little memory, and clients that allow what the context leaves.
SimulatedSetup packed(std::string policy) {
  SimulatedSetup setup{
      .trace = {.kind = "learnable", .requests = 2000, .rate = 40, .max_model_len = 8192},
      .kv_tokens = 120000};
  setup.scheduler.policy = policy;
  setup.scheduler.max_num_seqs = 256;
  return setup;
}

SimulatedSetup chats_with_target(std::string policy, double tpot_target) {
  SimulatedSetup setup{.trace = {.kind = "conversation", .requests = 3000, .rate = 22}};
  setup.scheduler.policy = policy;
  setup.scheduler.max_num_seqs = 256;
  setup.scheduler.tpot_target_seconds = tpot_target;
  return setup;
}

SimulatedSetup batch_beside(void (*edit)(TraceRequest&)) {
  SimulatedSetup setup{.trace = {.kind = "batch-beside", .requests = 2000, .rate = 16},
                       .edit = edit};
  setup.scheduler.max_num_seqs = 256;
  return setup;
}

void to_live(TraceRequest& request) { request.background = false; }

double running_mean(const ReplayReport& report) { return report.running_mean; }

template <char tenant>
double tenant_ttft_p99(const ReplayReport& report) {
  std::vector<double> ttft;
  for (const auto& row : report.rows) {
    if (!row.refused && row.tenant.front() == tenant) ttft.push_back(row.ttft);
  }
  return percentile_of(ttft, 0.99);
}

AblationMeasure overlapped(bool overlap) {
  return [=](AblationBench& bench) -> Result<double> {
    HR_ASSIGN_OR_RETURN(ModelStack* const stack,
                        bench.engine(overlap ? "overlap" : "serial", [&](StackOptions& options) {
                          options.overlap = overlap;
                          options.max_model_len = 512;
                        }));
    if (!stack->info().on_gpu) {
      return unsupported("a CPU computes on the engine's own thread: there is nothing to overlap");
    }
    const std::vector<WorkItem> items(64, {.prompt = 64, .output = 128});
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(*stack, items, bench.seed()));
    return result.output_rate();
  };
}

}  // namespace

std::vector<AblationCase> batching_cases() {
  return {{"16 requests alike, 8 slots", "throughput", on_policy("static", alike),
           on_policy("one-at-a-time", alike), kTokensPerSecond}};
}

std::vector<AblationCase> continuous_batching_cases() {
  return {{"40 chats, 8 slots", "throughput", on_policy("fcfs", chats), on_policy("static", chats),
           kTokensPerSecond}};
}

std::vector<AblationCase> chunked_prefill_cases() {
  constexpr double kTarget = 0.025;
  const auto both = [](double (*figure)(const WorkloadResult&), std::string what) {
    return AblationCase{"2k prompt beside 8 streams", what,
                        beside_prompt("chunked", kTarget, figure),
                        beside_prompt("whole", 0, figure)};
  };
  return {both(worst_gap, "between tokens p99.9"), both(first_token_of_prompt, "its first token")};
}

std::vector<AblationCase> feedback_queue_cases() {
  const auto on = simulated_policy("mlfq", "heavy-tail", 0.95);
  const auto off = simulated_policy("fcfs", "heavy-tail", 0.95);
  return {{"heavy-tail, load 0.95", "first token p99", simulated(on, ttft_p99),
           simulated(off, ttft_p99), kMilliseconds, true},
          {"heavy-tail, load 0.95", "mean end", simulated(on, completion_mean),
           simulated(off, completion_mean), kMilliseconds, true}};
}

std::vector<AblationCase> predicted_length_cases() {
  return {{"learnable, load 1.05", "mean end",
           simulated(simulated_policy("sjf-predicted", "learnable", 1.05), completion_mean),
           simulated(simulated_policy("fcfs", "learnable", 1.05), completion_mean), kMilliseconds,
           true},
          {"learnable, little memory", "batch", simulated(packed("packed-predicted"), running_mean),
           simulated(packed("openppl"), running_mean), kSequences, true}};
}

std::vector<AblationCase> target_cases() {
  return {{"conversation, 22 a second", "in time",
           simulated(chats_with_target("fcfs", 0.025), requests_in_time),
           simulated(chats_with_target("prefill-first", 0), requests_in_time), kRequestsPerSecond,
           true},
          {"beside a flooder, load 1.2", "first token p99",
           simulated(simulated_policy("fair", "flood-chat", 1.2), tenant_ttft_p99<'c'>),
           simulated(simulated_policy("fcfs", "flood-chat", 1.2), tenant_ttft_p99<'c'>),
           kMilliseconds, true}};
}

std::vector<AblationCase> background_cases() {
  return {{"chats beside a batch", "first token p99",
           simulated(batch_beside(nullptr), tenant_ttft_p99<'l'>),
           simulated(batch_beside(to_live), tenant_ttft_p99<'l'>), kMilliseconds, true}};
}

std::vector<AblationCase> overlap_cases() {
  return {{"64 streams", "throughput", overlapped(true), overlapped(false), kTokensPerSecond}};
}

}  // namespace headrace
