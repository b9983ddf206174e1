#include "bench/ablation_simulated.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headrace {
namespace {

constexpr int32_t kBlockTokens = 16;

std::vector<double> each(const ReplayReport& report, double ReplayReport::Row::*field) {
  std::vector<double> values;
  for (const auto& row : report.rows) {
    if (!row.refused && !row.background) values.push_back(row.*field);
  }
  return values;
}

Result<ReplayReport> replay_setup(SimulatedSetup setup) {
  HR_ASSIGN_OR_RETURN(const MachineRow machine, find_machine("h200-8b"));
  SchedulerOptions& scheduler = setup.scheduler;
  const int32_t kv_tokens = setup.kv_tokens > 0 ? setup.kv_tokens : machine.kv_tokens;
  scheduler.max_model_len = setup.trace.max_model_len;
  scheduler.groups = {{.block_tokens = kBlockTokens}};
  scheduler.block_count = kv_tokens / kBlockTokens;
  scheduler.max_queued_requests = setup.trace.requests;
  HR_ASSIGN_OR_RETURN(std::vector<TraceRequest> trace, make_trace(setup.trace));
  if (setup.load > 0) {
    SchedulerOptions first_come = scheduler;
    first_come.policy = "fcfs";
    HR_ASSIGN_OR_RETURN(const double full, saturated_rate(trace, first_come, machine.cost));
    setup.trace.rate = setup.load * full;
    HR_ASSIGN_OR_RETURN(trace, make_trace(setup.trace));
  }
  if (setup.live_only) {
    std::erase_if(trace, [](const TraceRequest& request) { return request.background; });
  }
  if (setup.edit != nullptr) std::for_each(trace.begin(), trace.end(), setup.edit);
  return replay(trace, scheduler, machine.cost);
}

}  // namespace

AblationMeasure simulated(SimulatedSetup setup, ReportFigure figure) {
  return [=](AblationBench& bench) -> Result<double> {
    SimulatedSetup drawn = setup;
    drawn.trace.seed = bench.seed();
    HR_ASSIGN_OR_RETURN(const ReplayReport report, replay_setup(std::move(drawn)));
    return figure(report);
  };
}

double ttft_p50(const ReplayReport& report) {
  return percentile_of(each(report, &ReplayReport::Row::ttft), 0.5);
}
double ttft_p99(const ReplayReport& report) {
  return percentile_of(each(report, &ReplayReport::Row::ttft), 0.99);
}
double completion_mean(const ReplayReport& report) {
  const auto values = each(report, &ReplayReport::Row::completion);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return sum / static_cast<double>(std::max<size_t>(values.size(), 1));
}
double requests_in_time(const ReplayReport& report) {
  const auto good = std::count_if(report.rows.begin(), report.rows.end(), [](const auto& row) {
    return !row.refused && row.ttft <= 0.5 && row.tpot <= 0.03;
  });
  return static_cast<double>(good) / report.seconds;
}

}  // namespace headrace
