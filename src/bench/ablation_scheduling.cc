// S1 to S8: who runs when.
#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "bench/ablation.h"
#include "bench/ablation_simulated.h"

namespace headrace {
namespace {

constexpr int32_t kSlots = 8;

struct PolicySetup {
  std::string policy;
  int32_t slots = kSlots;
  bool computes_ended_rows = true;  // static batches
};

AblationMeasure on_policy(PolicySetup setup, std::vector<WorkItem> (*work)(uint64_t seed)) {
  return [=](AblationBench& bench) -> Result<double> {
    const std::string name =
        fmt::format("{}, {}, {}", setup.policy, setup.slots, setup.computes_ended_rows);
    HR_ASSIGN_OR_RETURN(ModelStack* const stack, bench.engine(name, [&](StackOptions& options) {
      SchedulerOptions& scheduler = options.engine.scheduler;
      options.batch.policy = setup.policy;
      scheduler.static_computes_ended_rows = setup.computes_ended_rows;
      options.batch.max_num_seqs = setup.slots;
      options.memory.max_model_len = 1024;
      options.engine.scheduler.enable_prefix_caching = false;
    }));
    HR_ASSIGN_OR_RETURN(const WorkloadResult result,
                        run_workload(*stack, work(bench.seed()), bench.seed()));
    return result.output_rate();
  };
}

template <int32_t requests>
std::vector<WorkItem> alike(uint64_t) {
  return std::vector<WorkItem>(requests, {.prompt = 32, .output = 48});
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

constexpr int32_t kDecoders = 32, kDecoded = 640, kLongPrompt = 2048, kLongPrompts = 3;
constexpr double kFirstPromptSeconds = 3, kPromptEverySeconds = 5;

// What decoders lose to prompts that come beside them, and prompts to the decoders.
struct BesidePrompts {
  // Between tokens, of the p50 of the same decoders without prompts. A prompt every five seconds is
  // one token of 150: what it does to a stream, p99 may not see.
  double gap_p99 = 0, gap_p999 = 0, gap_longest = 0;
  double first_token = 0;  // p50 of the prompts', of a prompt's alone
};

// One engine's options; its figures of a round are measured once, whoever asks for which.
class PromptsBesideDecoders {
 public:
  // `over_p50`: --tpot-target, of the decoders' undisturbed p50; 0: a prompt in one step.
  PromptsBesideDecoders(std::string name, double over_p50)
      : name_(std::move(name)), over_p50_(over_p50) {}

  Result<BesidePrompts> measure(AblationBench& bench) {
    if (seed_ == bench.seed()) return last_;
    HR_ASSIGN_OR_RETURN(const double undisturbed, undisturbed_p50(bench));
    HR_ASSIGN_OR_RETURN(ModelStack* const stack, bench.engine(name_, [&](StackOptions& options) {
      change(options);
      options.engine.scheduler.tpot_target_seconds = over_p50_ * undisturbed;
    }));
    const std::vector<WorkItem> prompt(1, {.prompt = kLongPrompt, .output = 2});
    HR_ASSIGN_OR_RETURN(const WorkloadResult alone, run_workload(*stack, prompt, bench.seed()));
    std::vector<WorkItem> items = decoders();
    for (int32_t i = 0; i < kLongPrompts; ++i) {
      items.push_back({.prompt = kLongPrompt,
                       .output = 2,
                       .at_seconds = kFirstPromptSeconds + i * kPromptEverySeconds});
    }
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(*stack, items, bench.seed()));
    std::vector<double> first_tokens;
    for (size_t i = kDecoders; i < result.requests.size(); ++i) {
      first_tokens.push_back(result.requests[i].first_token - result.requests[i].submitted);
    }
    const std::vector<double> gaps = gaps_of(result);
    last_ = {.gap_p99 = percentile(gaps, 0.99) / undisturbed,
             .gap_p999 = percentile(gaps, 0.999) / undisturbed,
             .gap_longest = percentile(gaps, 1) / undisturbed,
             .first_token = percentile(first_tokens, 0.5) / alone.requests[0].first_token};
    seed_ = bench.seed();
    return last_;
  }

 private:
  static std::vector<WorkItem> decoders() {
    return std::vector<WorkItem>(kDecoders, {.prompt = 16, .output = kDecoded});
  }

  static std::vector<double> gaps_of(const WorkloadResult& result) {
    std::vector<double> gaps;
    for (size_t i = 0; i < kDecoders; ++i) {
      gaps.insert(gaps.end(), result.requests[i].gaps.begin(), result.requests[i].gaps.end());
    }
    return gaps;
  }

  void change(StackOptions& options) const {
    const bool chunked = over_p50_ > 0;
    options.engine.scheduler.chunked_prefill = chunked;
    options.memory.max_model_len = kLongPrompt + 64;
    // Of all tokens 1 % may be late: the ends of prompts, in steps that hold most of one.
    options.engine.scheduler.tpot_over_share = chunked ? kOverShare : 0;
    options.batch.max_num_batched_tokens = chunked ? kBudget : options.memory.max_model_len;
    options.batch.max_num_seqs = kDecoders + kLongPrompts;
    options.engine.scheduler.enable_prefix_caching = false;
    // Else who needs a page that was never used waits for the system (kv_memory.h).
    options.runner.kv_populate = KvPopulate::kStart;
  }

  // Between the decoders' tokens, on an engine like this one and with no prompt beside them.
  Result<double> undisturbed_p50(AblationBench& bench) {
    if (undisturbed_ > 0) return undisturbed_;
    HR_ASSIGN_OR_RETURN(ModelStack* const stack,
                        bench.engine(name_ + " undisturbed", [&](StackOptions& o) { change(o); }));
    HR_ASSIGN_OR_RETURN(const WorkloadResult result,
                        run_workload(*stack, decoders(), bench.seed()));
    undisturbed_ = percentile(gaps_of(result), 0.5);
    return undisturbed_;
  }

  static constexpr double kOverShare = 0.0095;
  static constexpr int32_t kBudget = 1280;

  const std::string name_;
  const double over_p50_;
  double undisturbed_ = 0;
  uint64_t seed_ = 0;  // of the round that `last_` is of; no round has 0
  BesidePrompts last_;
};

AblationMeasure beside_prompts(std::shared_ptr<PromptsBesideDecoders> side,
                               double BesidePrompts::*figure) {
  return [=](AblationBench& bench) -> Result<double> {
    HR_ASSIGN_OR_RETURN(const BesidePrompts figures, side->measure(bench));
    return figures.*figure;
  };
}

// ---- simulated

SimulatedSetup simulated_policy(std::string policy, std::string kind, double load) {
  SimulatedSetup setup{.trace = {.kind = kind, .requests = 8000}, .load = load};
  setup.scheduler.policy = policy;
  return setup;
}

// Everything is there from the start, as in bench throughput.
SimulatedSetup all_at_once(std::string policy, int32_t slots) {
  SimulatedSetup setup{.trace = {.kind = "sharegpt", .requests = 1000, .rate = 1e6}};
  setup.scheduler.policy = policy;
  setup.scheduler.max_num_seqs = slots;
  return setup;
}
double seconds(const ReplayReport& report) { return report.seconds; }

SimulatedSetup a_request_a_second(std::string policy) {
  SimulatedSetup setup{.trace = {.kind = "sharegpt", .requests = 500, .rate = 1}};
  setup.scheduler.policy = policy;
  return setup;
}

// Prompts of nearly 32k beside 32 answers: in one step each, or in full steps of 4,096 tokens.
SimulatedSetup long_prompts(bool chunked) {
  constexpr int32_t kContext = 32768;
  SimulatedSetup setup{
      .trace = {.kind = "long-prompts", .requests = 40, .rate = 0.25, .max_model_len = kContext}};
  setup.scheduler.chunked_prefill = chunked;
  setup.scheduler.max_num_batched_tokens = chunked ? 4096 : kContext + 64;
  return setup;
}
SimulatedSetup long_prompts_under(double tpot_target, double step_max) {
  SimulatedSetup setup = long_prompts(true);
  setup.scheduler.tpot_target_seconds = tpot_target;
  setup.scheduler.step_seconds_max = step_max;
  return setup;
}
double decoders_gap_p99(const ReplayReport& report) {
  return report.token_gaps.at("decoders").percentile(0.99);
}
double decoders_gap_p999(const ReplayReport& report) {
  return report.token_gaps.at("decoders").percentile(0.999);
}
double prompts_ttft_p50(const ReplayReport& report) {
  std::vector<double> ttft;
  for (const auto& row : report.rows) {
    if (row.tenant == "prompts") ttft.push_back(row.ttft);
  }
  return percentile_of(ttft, 0.5);
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

SimulatedSetup chats_by_prompts(double rate) {
  SimulatedSetup setup = chats_with_target("prefill-first", 0);
  setup.trace.rate = rate;
  return setup;
}
SimulatedSetup chats_with_deadlines(double rate) {
  SimulatedSetup setup = chats_by_prompts(rate);
  setup.scheduler.policy = "deadline";
  setup.scheduler.max_num_batched_tokens = 4096;
  setup.scheduler.slo_classes = {{"default", 0.5, 0.03}};
  return setup;
}

SimulatedSetup batch_beside(void (*edit)(TraceRequest&)) {
  SimulatedSetup setup{.trace = {.kind = "batch-beside", .requests = 2000, .rate = 16},
                       .edit = edit};
  setup.scheduler.max_num_seqs = 256;
  return setup;
}

void to_live(TraceRequest& request) { request.background = false; }

SimulatedSetup without_batch() {
  SimulatedSetup setup = batch_beside(nullptr);
  setup.live_only = true;
  return setup;
}
double background_used(const ReplayReport& report) {
  return static_cast<double>(report.stats.background_used_tokens);
}
double background_room(const ReplayReport& report) {
  return static_cast<double>(report.stats.background_room_tokens);
}

// ---- a batch beside chats, on a real engine

constexpr int32_t kChats = 24, kBatchItems = 160;

// Chats four times a second beside a batch that is there from the start. A round is run once,
// whoever asks for which of its figures.
class ChatsBesideBatch {
 public:
  explicit ChatsBesideBatch(int32_t batch) : batch_(batch) {}

  Result<WorkloadResult> measure(AblationBench& bench) {
    if (seed_ == bench.seed()) return last_;
    HR_ASSIGN_OR_RETURN(ModelStack* const stack, bench.engine("batch", [](StackOptions& options) {
      options.batch.max_num_seqs = 32;
      options.memory.max_model_len = 512;
      options.engine.scheduler.enable_prefix_caching = false;
    }));
    std::vector<WorkItem> items;
    for (int32_t i = 0; i < batch_; ++i) {
      items.push_back({.prompt = 64, .output = 64, .background = true});
    }
    for (int32_t i = 0; i < kChats; ++i) {
      items.push_back({.prompt = 48 + 8 * (i % 5), .output = 96, .at_seconds = 1 + 0.25 * i});
    }
    HR_ASSIGN_OR_RETURN(last_, run_workload(*stack, items, bench.seed()));
    seed_ = bench.seed();
    return last_;
  }

 private:
  const int32_t batch_;
  uint64_t seed_ = 0;  // of the round that `last_` is of; no round has 0
  WorkloadResult last_;
};

AblationMeasure beside_batch(std::shared_ptr<ChatsBesideBatch> side,
                             double (*figure)(const WorkloadResult&)) {
  return [=](AblationBench& bench) -> Result<double> {
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, side->measure(bench));
    return figure(result);
  };
}

double live_ttft_p99(const WorkloadResult& result) {
  std::vector<double> ttft;
  for (size_t i = result.requests.size() - kChats; i < result.requests.size(); ++i) {
    ttft.push_back(result.requests[i].first_token - result.requests[i].submitted);
  }
  return percentile(ttft, 0.99);
}
double room_used(const WorkloadResult& result) {
  return static_cast<double>(result.background_used_tokens);
}
double room_there(const WorkloadResult& result) {
  return static_cast<double>(result.background_room_tokens);
}

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
                          options.device.overlap = overlap;
                          options.memory.max_model_len = 512;
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

// The batch curve: answers of one length, so that no row of a static batch ends before its batch.
std::vector<AblationCase> batching_cases() {
  const auto slots = [](int32_t count, std::vector<WorkItem> (*work)(uint64_t)) {
    return AblationCase{fmt::format("requests alike, {} slots", count), "throughput",
                        on_policy({"static", count}, work), on_policy({"one-at-a-time"}, work),
                        kTokensPerSecond};
  };
  return {
      slots(2, alike<8>),
      slots(4, alike<8>),
      slots(8, alike<16>),
      slots(16, alike<16>),
      slots(32, alike<32>),
      slots(64, alike<64>),
      {"1,000 sharegpt, 256 slots", "all of them", simulated(all_at_once("static", 256), seconds),
       simulated(all_at_once("one-at-a-time", 256), seconds), kMilliseconds, true}};
}

std::vector<AblationCase> continuous_batching_cases() {
  const auto over_static = [](bool computes_ended_rows) {
    return AblationCase{
        fmt::format("40 chats, 8 slots, {}", computes_ended_rows ? "computed" : "skipped"),
        "throughput", on_policy({"fcfs"}, chats),
        on_policy({"static", kSlots, computes_ended_rows}, chats), kTokensPerSecond};
  };
  const auto simulated_over_static = [](int32_t slots) {
    return AblationCase{fmt::format("1,000 sharegpt, {} slots", slots),
                        "all of them",
                        simulated(all_at_once("fcfs", slots), seconds),
                        simulated(all_at_once("static", slots), seconds),
                        kMilliseconds,
                        true};
  };
  return {over_static(true),
          over_static(false),
          simulated_over_static(32),
          simulated_over_static(256),
          {"1,000 sharegpt, 256 slots, off: openppl", "all of them",
           simulated(all_at_once("fcfs", 256), seconds),
           simulated(all_at_once("openppl", 256), seconds), kMilliseconds, true},
          {"a request a second, on: waiting-ratio, off: fcfs", "first token p50",
           simulated(a_request_a_second("waiting-ratio"), ttft_p50),
           simulated(a_request_a_second("fcfs"), ttft_p50), kMilliseconds, true}};
}

std::vector<AblationCase> chunked_prefill_cases() {
  const auto on = std::make_shared<PromptsBesideDecoders>("chunked", 1.4);
  const auto off = std::make_shared<PromptsBesideDecoders>("whole", 0);
  const auto both = [&](double BesidePrompts::*figure, std::string what) {
    return AblationCase{"32 streams, 2k prompts", what, beside_prompts(on, figure),
                        beside_prompts(off, figure), kTimes};
  };
  std::vector<AblationCase> cases = {both(&BesidePrompts::gap_p99, "token gap p99 / p50"),
                                     both(&BesidePrompts::gap_p999, "token gap p99.9 / p50"),
                                     both(&BesidePrompts::gap_longest, "longest token gap / p50"),
                                     both(&BesidePrompts::first_token, "prompt's TTFT / alone")};
  // Exact fill, the ceiling, and exact fill under a bound, each against a prompt in one step.
  const std::pair<const char*, SimulatedSetup> modes[] = {
      {"32k prompts, exact fill", long_prompts(true)},
      {"32k prompts, ceiling of 12 ms", long_prompts_under(0.012, 0)},
      {"32k prompts, exact fill, 60 ms at most", long_prompts_under(0, 0.060)}};
  const auto add = [&](const char* name, const SimulatedSetup& on_setup, const char* what,
                       ReportFigure figure) {
    cases.push_back({name, what, simulated(on_setup, figure),
                     simulated(long_prompts(false), figure), kMilliseconds, true});
  };
  for (const auto& [name, setup] : modes) {
    add(name, setup, "token gap p99", decoders_gap_p99);
    add(name, setup, "token gap p99.9", decoders_gap_p999);
    add(name, setup, "prompt's TTFT p50", prompts_ttft_p50);
  }
  return cases;
}

// Where a queue hardly forms, where it forms, and where memory is for ten of 64 slots, without and
// with swapping; then traffic whose lengths do not reward taking turns.
std::vector<AblationCase> feedback_queue_cases() {
  std::vector<AblationCase> cases;
  const auto add = [&](const std::string& name, double load, int32_t kv_tokens,
                       std::vector<TierSpec> tiers = {}) {
    SimulatedSetup on = simulated_policy("mlfq", "heavy-tail", load);
    on.kv_tokens = kv_tokens;
    on.scheduler.tiers = std::move(tiers);
    SimulatedSetup off = on;
    off.scheduler.policy = "fcfs";
    cases.push_back({name, "first token p99", simulated(on, ttft_p99), simulated(off, ttft_p99),
                     kMilliseconds, true});
    cases.push_back({name, "mean end", simulated(on, completion_mean),
                     simulated(off, completion_mean), kMilliseconds, true});
  };
  add("heavy-tail, load 0.95", 0.95, 0);
  add("heavy-tail, load 1", 1.0, 0);
  add("load 0.95, 8,192 tokens", 0.95, 8192);
  add("load 0.95, 8,192 tokens, swapped", 0.95, 8192,
      {{.pages = 100000, .seconds_per_page = 42e-6}});
  for (const char* kind : {"conversation", "summarisation", "sharegpt"}) {
    for (const double load : {0.7, 0.95, 1.05}) {
      cases.push_back({fmt::format("{}, load {}", kind, load), "mean end",
                       simulated(simulated_policy("mlfq", kind, load), completion_mean),
                       simulated(simulated_policy("fcfs", kind, load), completion_mean),
                       kMilliseconds, true});
    }
  }
  return cases;
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
          {"conversation, 26 a second", "in time",
           simulated(chats_with_deadlines(26), requests_in_time),
           simulated(chats_by_prompts(26), requests_in_time), kRequestsPerSecond, true},
          {"beside a flooder, load 1.2", "first token p99",
           simulated(simulated_policy("fair", "flood-chat", 1.2), tenant_ttft_p99<'c'>),
           simulated(simulated_policy("fcfs", "flood-chat", 1.2), tenant_ttft_p99<'c'>),
           kMilliseconds, true}};
}

// "Room": the tokens that steps with live work leave under --background-step. Its on is what the
// batch computes of them, its off all there are.
std::vector<AblationCase> background_cases() {
  constexpr AblationUnit kTokens = {"tokens", 1, true};
  const auto batch = std::make_shared<ChatsBesideBatch>(kBatchItems);
  const auto none = std::make_shared<ChatsBesideBatch>(0);
  return {{"chats beside a batch", "first token p99",
           simulated(batch_beside(nullptr), tenant_ttft_p99<'l'>),
           simulated(batch_beside(to_live), tenant_ttft_p99<'l'>), kMilliseconds, true},
          {"chats, batch or none", "first token p99",
           simulated(batch_beside(nullptr), tenant_ttft_p99<'l'>),
           simulated(without_batch(), tenant_ttft_p99<'l'>), kMilliseconds, true},
          {"chats beside a batch", "room used of room there",
           simulated(batch_beside(nullptr), background_used),
           simulated(batch_beside(nullptr), background_room), kTokens, true},
          {"24 chats, batch or none", "first token p99", beside_batch(batch, live_ttft_p99),
           beside_batch(none, live_ttft_p99)},
          {"24 chats beside a batch", "room used of room there", beside_batch(batch, room_used),
           beside_batch(batch, room_there), kTokens}};
}

std::vector<AblationCase> overlap_cases() {
  return {{"64 streams", "throughput", overlapped(true), overlapped(false), kTokensPerSecond}};
}

}  // namespace headrace
