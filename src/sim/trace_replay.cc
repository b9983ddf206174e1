#include "sim/trace_replay.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"

namespace headrace {
namespace {

constexpr TokenId kEndId = 0;
// kv_waste() walks all running sequences: every so many steps.
constexpr int64_t kWasteEvery = 64;

constexpr int32_t kVocab = 32000;

constexpr std::array kMachines = {
    MachineRow{"cpu-135m",
               {.base = 3.0e-3,
                .per_prompt_token = 0.55e-3,
                .per_decode = 0.55e-3,
                .per_kv_token = 0.4e-6,
                .per_prompt_context = 0.2e-6},
               65536},
    MachineRow{"h200-8b",
               {.base = 4.5e-3,
                .per_prompt_token = 4e-6,
                .per_decode = 9e-6,
                .per_kv_token = 0.03e-6,
                .per_prompt_context = 1.0e-9,
                .per_row_over = 16.5e-6},
               800000},
};

class Replay {
 public:
  Replay(const std::vector<TraceRequest>& trace, SchedulerOptions options, const StepCost& cost)
      : trace_(trace), options_(std::move(options)), cost_(cost) {
    options_.clock = &clock_;
    options_.end_ids = {kEndId};
    live_.resize(trace.size());
    requests_.resize(static_cast<size_t>(std::max(0, options_.max_num_seqs)));
    has_background_ = std::any_of(trace.begin(), trace.end(),
                                  [](const TraceRequest& request) { return request.background; });
  }

  Result<ReplayReport> run() {
    HR_ASSIGN_OR_RETURN(scheduler_, Scheduler::create(options_));
    report_.rows.resize(trace_.size());
    while (next_ < trace_.size() || scheduler_->has_work()) {
      HR_RETURN_IF_ERROR(let_arrive());
      step();
    }
    report_.seconds = clock_.now_seconds();
    report_.running_mean /= std::max(report_.seconds, 1e-9);
    report_.stats = scheduler_->stats();
    return std::move(report_);
  }

 private:
  struct InFlight {
    StepPlan plan;
    double seconds = 0;  // that it takes
  };
  struct Live {
    int32_t output = 0;  // so far
    double first = 0, last = 0;
    LatencyHistogram* gaps = nullptr;
  };

  Status let_arrive() {
    if (!scheduler_->has_work()) advance_to(trace_[next_].arrival_seconds);
    while (next_ < trace_.size() && trace_[next_].arrival_seconds <= clock_.now_seconds()) {
      const TraceRequest& from = trace_[next_];
      Request request{.id = RequestId(next_ + 1), .prompt = prompt_of(from, kVocab)};
      request.owner = static_cast<uint32_t>(next_);
      request.sampling.max_tokens = from.max_tokens;
      // Who allows what he gets asks as bench serve does.
      request.sampling.ignore_eos = from.max_tokens == from.output;
      request.priority = from.priority;
      request.slo_class = from.slo_class;
      request.tenant = from.tenant;
      request.background = from.background;
      ReplayReport::Row& row = report_.rows[next_];
      row.tenant = from.tenant;
      row.slo_class = from.slo_class;
      row.background = from.background;
      row.output = from.output;
      const Status status = scheduler_->add(std::move(request));
      if (!status.ok() && status.code() != StatusCode::kExhausted) {
        return status.with_context(fmt::format("request {} of the trace", next_));
      }
      row.refused = !status.ok();
      if (status.ok()) {
        live_[next_].gaps = &report_.token_gaps[from.tenant];
        live_requests_ += from.background ? 0 : 1;
      }
      ++next_;
    }
    return ok_status();
  }

  void advance_to(double seconds) {
    const double gap = seconds - clock_.now_seconds();
    if (gap > 0) clock_.advance_ns(static_cast<int64_t>(std::ceil(gap * 1e9)));
  }

  // Plans a step, or lets the oldest in flight end where no more may be, or none can, be planned.
  void step() {
    if (in_flight_.size() < static_cast<size_t>(options_.steps_in_flight_max) && plan_step())
      return;
    if (!in_flight_.empty()) return finish_step();
    CHECK_MSG(!scheduler_->has_work() || next_ < trace_.size(), "the scheduler stands still");
    if (next_ < trace_.size()) advance_to(trace_[next_].arrival_seconds);
  }

  // False: there is nothing to plan.
  bool plan_step() {
    const SystemClock real;
    const double before = real.now_seconds();
    StepPlan plan = scheduler_->plan();
    report_.scheduler_seconds += real.now_seconds() - before;
    if (plan.empty()) return false;
    for (const Admission& admission : plan.admitted) {
      requests_[static_cast<size_t>(admission.slot.value)] = admission.request->owner;
    }
    double seconds = cost_.seconds(StepLoad::of(plan));
    // Loads overlap with nothing here: the worst case.
    for (const PageMove& load : plan.loads) {
      seconds += options_.tiers[static_cast<size_t>(load.from.tier) - 1].seconds_per_page;
    }
    in_flight_.push_back({std::move(plan), seconds});
    return true;
  }

  void finish_step() {
    const auto [plan, seconds] = std::move(in_flight_.front());
    in_flight_.pop_front();
    clock_.advance_ns(static_cast<int64_t>(seconds * 1e9));
    report_.computed_tokens += plan.token_count;
    note_use(seconds);
    if (has_background_) note_background(plan, seconds);
    const StepResult result = answer(plan);
    const SystemClock real;
    const double answered = real.now_seconds();
    const std::vector<Emission> emissions = scheduler_->apply(plan, result);
    report_.scheduler_seconds += real.now_seconds() - answered;
    for (const Emission& emission : emissions) note(emission);
  }

  void note_use(double seconds) {
    const SchedulerStats stats = scheduler_->stats();
    report_.running_mean += stats.running * seconds;
    report_.busy_seconds += seconds;
    const auto tokens = static_cast<int64_t>(stats.generation_tokens);
    const double now = clock_.now_seconds();
    if (next_ < trace_.size()) {
      report_.arrivals_seconds = now;
      report_.arrivals_tokens = tokens;
    }
    if (stats.waiting > 0) {
      report_.waited_seconds = now;
      report_.waited_tokens = tokens;
    }
    if (++report_.steps % kWasteEvery != 0) return;
    const KvWaste slots = scheduler_->kv_waste();
    const auto weight = static_cast<int64_t>(seconds * 1e6);
    report_.kv_slots.total += slots.total * weight;
    for (const KvWastePart& part : kKvWasteParts) {
      report_.kv_slots.*part.slots += slots.*part.slots * weight;
    }
  }

  void note_background(const StepPlan& plan, double seconds) {
    int64_t tokens = 0;
    bool live_prompt = false;
    for (const Work& work : plan.work) {
      if (trace_[request_of(work)].background) {
        tokens += work.count;
      } else {
        live_prompt = live_prompt || work.count > 1;
      }
    }
    report_.background_tokens += tokens;
    if (tokens == 0 || live_requests_ == 0 || live_prompt) return;
    report_.beside_seconds_max = std::max(report_.beside_seconds_max, seconds);
  }

  // Tokens that nobody else says, until the true length.
  StepResult answer(const StepPlan& plan) {
    StepResult result;
    result.rows.reserve(plan.work.size());
    for (const Work& work : plan.work) {
      if (!work.samples) continue;
      const size_t index = request_of(work);
      Live& live = live_[index];
      const bool last = ++live.output >= trace_[index].output;
      const uint64_t bits = mix64(mix64(index) ^ static_cast<uint64_t>(live.output));
      StepResult::Row row{
          .sequence = work.sequence, .accepted = {}, .logprobs = {}, .prompt_logprobs = {}};
      row.accepted.push_back(last ? kEndId : static_cast<TokenId>(1 + bits % 31999));
      result.rows.push_back(std::move(row));
    }
    return result;
  }

  size_t request_of(const Work& work) const {
    return requests_[static_cast<size_t>(work.slot.value)];
  }

  void note(const Emission& emission) {
    const size_t index = emission.owner;
    Live& live = live_[index];
    const double now = clock_.now_seconds();
    if (live.first == 0) {
      live.first = now;
    } else {
      live.gaps->add(now - live.last);
    }
    live.last = now;
    if (emission.finish == FinishReason::kNone) return;
    ReplayReport::Row& row = report_.rows[index];
    const double arrival = trace_[index].arrival_seconds;
    row.ttft = live.first - arrival;
    row.tpot = live.output > 1 ? (live.last - live.first) / (live.output - 1) : 0;
    row.completion = now - arrival;
    live_requests_ -= row.background ? 0 : 1;
  }

  const std::vector<TraceRequest>& trace_;
  SchedulerOptions options_;
  const StepCost cost_;
  VirtualClock clock_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<Live> live_;          // [requests of the trace]
  std::vector<uint32_t> requests_;  // [slots] whose sequence has it
  std::deque<InFlight> in_flight_;  // the oldest runs, the others wait for it
  bool has_background_ = false;
  size_t next_ = 0;
  int64_t live_requests_ = 0;  // that have arrived and not ended, and are no background
  ReplayReport report_;
};

}  // namespace

Result<MachineRow> find_machine(std::string_view name) {
  for (const MachineRow& row : kMachines) {
    if (row.name == name) return row;
  }
  return invalid_argument(fmt::format("there is no machine \"{}\"; there are {}", name,
                                      fmt::join(machine_names(), ", ")),
                          "machine");
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineRow& row : kMachines) names.emplace_back(row.name);
  return names;
}

double percentile_of(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(rank), values.end());
  return values[rank];
}

Result<ReplayReport> replay(const std::vector<TraceRequest>& trace, SchedulerOptions options,
                            const StepCost& cost) {
  return Replay(trace, std::move(options), cost).run();
}

Result<double> saturated_rate(std::vector<TraceRequest> trace, SchedulerOptions options,
                              const StepCost& cost) {
  std::erase_if(trace, [](const TraceRequest& request) { return request.background; });
  for (TraceRequest& request : trace) request.arrival_seconds = 0;
  options.policy = "fcfs";
  options.max_queued_requests = static_cast<int32_t>(trace.size());
  double output = 0;
  for (const TraceRequest& request : trace) output += request.output;
  HR_ASSIGN_OR_RETURN(const ReplayReport full, replay(trace, options, cost));
  if (full.waited_tokens == 0) return static_cast<double>(trace.size()) / full.seconds;
  const double tokens_per_second = static_cast<double>(full.waited_tokens) / full.waited_seconds;
  return tokens_per_second / (output / static_cast<double>(trace.size()));
}

namespace {

// What a request must cost: the first token comes from the prompt's last step, each other from a
// step of its own.
struct LeastCost {
  double steps = 0;    // at least
  double decodes = 0;  // rows of later tokens
  double rows = 0;     // seconds of its rows where they cost least

  LeastCost(const TraceRequest& request, const SchedulerOptions& options, const StepCost& cost) {
    const double prompt = request.prompt_tokens();
    decodes = request.output - 1;
    steps = std::ceil(prompt / options.max_num_batched_tokens) + decodes;
    rows = prompt * cost.per_prompt_token + prompt * (prompt + 1) / 2 * cost.per_prompt_context +
           decodes * cost.per_decode +
           decodes * (prompt + request.output / 2.0) * cost.per_kv_token;
  }
};

}  // namespace

double completion_mean_floor(const std::vector<TraceRequest>& trace,
                             const SchedulerOptions& options, const StepCost& cost) {
  if (trace.empty()) return 0;
  double alone = 0, longest = 0, rows = 0, decodes = 0, prompts = 0;
  for (const TraceRequest& request : trace) {
    const LeastCost least(request, options, cost);
    const double seconds = least.steps * cost.base + least.rows;
    alone += seconds;
    longest = std::max(longest, seconds);
    rows += least.rows;
    decodes += least.decodes;
    prompts += (least.steps - least.decodes) * cost.base;
  }
  // K steps fit into the time. Each keeps the n sequences that it serves for base + n per_decode
  // seconds: sum of n (base + n per_decode) with sum of n = decodes, least where all n are alike.
  const double seconds = trace.back().arrival_seconds + longest;
  const double steps = std::max((seconds - rows) / cost.base, decodes / options.max_num_seqs);
  const double together =
      prompts + decodes * cost.base + decodes * decodes / steps * cost.per_decode;
  return std::max(alone, together) / static_cast<double>(trace.size());
}

void LatencyHistogram::add(double seconds) {
  // The streams of a step have one gap: logarithms are as dear as the rest of a token.
  if (seconds != last_seconds_) {
    const double place = std::log(std::max(seconds, kLeast) / kLeast) / std::log(kStep);
    last_seconds_ = seconds;
    last_bucket_ = static_cast<size_t>(place);
    if (last_bucket_ >= buckets_.size()) buckets_.resize(last_bucket_ + 1);
  }
  ++buckets_[last_bucket_];
  ++count_;
}

double LatencyHistogram::percentile(double share) const {
  const double wanted = share * static_cast<double>(count_);
  int64_t seen = 0;
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen > 0 && static_cast<double>(seen) >= wanted) {
      return kLeast * std::pow(kStep, static_cast<double>(bucket) + 0.5);
    }
  }
  return 0;
}

}  // namespace headrace
