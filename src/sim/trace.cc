#include "sim/trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rng.h"

namespace headrace {
namespace {

class TraceMaker {
 public:
  explicit TraceMaker(const TraceOptions& options) : options_(options), rng_(options.seed) {}

  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - rng_.uniform()));
    return radius * std::cos(2 * std::numbers::pi * rng_.uniform());
  }
  double exponential() { return -std::log(1 - rng_.uniform()); }
  // Of mean `shape` (Marsaglia and Tsang, 2000; for shapes below 1 by a power of a uniform).
  double gamma(double shape) {
    if (shape < 1) return gamma(shape + 1) * std::pow(1 - rng_.uniform(), 1 / shape);
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal(), cube = 1 + c * x;
      if (cube <= 0) continue;
      const double v = cube * cube * cube;
      if (std::log(1 - rng_.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }
  int32_t log_normal(double mu, double sigma, int32_t least, int32_t most) {
    const double value = std::exp(mu + sigma * normal());
    return std::clamp(static_cast<int32_t>(std::lround(std::min(value, 1e6))), least, most);
  }
  PromptSpan fresh_span(int32_t tokens) { return {rng_.next(), tokens}; }
  Rng& rng() { return rng_; }
  int32_t limit() const { return options_.max_model_len; }

 private:
  const TraceOptions& options_;
  Rng rng_;
};

// When requests come.
using NextGap = double (*)(TraceMaker&, const TraceOptions&, double now);

double poisson_gap(TraceMaker& maker, const TraceOptions& options, double) {
  return maker.exponential() / options.rate;
}
double gamma_gap(TraceMaker& maker, const TraceOptions& options, double) {
  return maker.gamma(options.burstiness) / options.burstiness / options.rate;
}
// By thinning arrivals at the highest rate.
double diurnal_gap(TraceMaker& maker, const TraceOptions& options, double now) {
  constexpr double kSwing = 0.8;
  double gap = 0;
  while (true) {
    gap += maker.exponential() / (options.rate * (1 + kSwing));
    const double angle = 2 * std::numbers::pi * (now + gap) / options.period_seconds;
    if (maker.rng().uniform() * (1 + kSwing) < 1 + kSwing * std::sin(angle)) return gap;
  }
}

struct ArrivalRow {
  std::string_view name;
  NextGap next;
};
constexpr std::array kArrivals = {ArrivalRow{"poisson", poisson_gap},
                                  ArrivalRow{"gamma", gamma_gap},
                                  ArrivalRow{"diurnal", diurnal_gap}};

void let_arrive(TraceMaker& maker, const TraceOptions& options, NextGap next,
                std::vector<TraceRequest>& trace) {
  double now = 0;
  for (TraceRequest& request : trace) {
    if (request.background) continue;
    now += next(maker, options, now);
    request.arrival_seconds = now;
  }
}

// What they ask for.
using MakeRequest = TraceRequest (*)(TraceMaker&);

TraceRequest with_lengths(TraceMaker& maker, int32_t prompt, int32_t output, int32_t max_tokens) {
  TraceRequest request;
  request.max_tokens = std::min(max_tokens, maker.limit() / 2);
  request.output = std::min(output, request.max_tokens);
  request.prompt = {maker.fresh_span(std::min(prompt, maker.limit() - request.max_tokens))};
  return request;
}

TraceRequest conversation(TraceMaker& maker) {
  const int32_t prompt = maker.log_normal(6.6, 1.0, 16, 8192);
  return with_lengths(maker, prompt, maker.log_normal(4.9, 0.95, 4, 1024), 1024);
}

TraceRequest sharegpt(TraceMaker& maker) {
  const int32_t prompt = maker.log_normal(5.02, 1.0, 4, 1024);
  return with_lengths(maker, prompt, maker.log_normal(4.92, 1.0, 4, 1024), 1024);
}

TraceRequest summarisation(TraceMaker& maker) {
  const int32_t prompt = maker.log_normal(8.6, 0.45, 256, 16384);
  return with_lengths(maker, prompt, maker.log_normal(5.2, 0.5, 16, 512), 512);
}

TraceRequest heavy_tail(TraceMaker& maker) {
  const auto prompt = static_cast<int32_t>(maker.rng().between(32, 256));
  return with_lengths(maker, prompt, maker.log_normal(4.16, 1.5, 1, 2048), 2048);
}

// Task t answers with about 10 * 1.4^t tokens: 10 to 1,500. Clients allow what the context leaves.
TraceRequest task(TraceMaker& maker, bool told) {
  constexpr uint64_t kTasks = 0x7461736b73;  // contents that all prompts share
  constexpr int32_t kGreeting = 8, kTask = 8;
  const auto kind = static_cast<int32_t>(maker.rng().below(16));
  const int32_t output = maker.log_normal(std::log(10) + kind * std::log(1.4), 0.25, 1, 2048);
  const auto prompt = static_cast<int32_t>(maker.rng().between(64, 256));
  TraceRequest request = with_lengths(maker, prompt - kGreeting - kTask, output, maker.limit());
  const PromptSpan rest = request.prompt[0];
  const PromptSpan what = {told ? kTasks + 1 + static_cast<uint64_t>(kind) : rest.content + 1,
                           kTask};
  request.prompt = {{kTasks, kGreeting}, what, rest};
  return request;
}
TraceRequest learnable(TraceMaker& maker) { return task(maker, true); }
TraceRequest random_lengths(TraceMaker& maker) { return task(maker, false); }

TraceRequest flood(TraceMaker& maker) {
  TraceRequest request = with_lengths(maker, static_cast<int32_t>(maker.rng().between(64, 256)),
                                      maker.log_normal(4.2, 0.6, 4, 512), 512);
  request.tenant = maker.rng().below(51) == 0 ? "calm" : "flood";
  return request;
}

TraceRequest flood_chat(TraceMaker& maker) {
  TraceRequest request = conversation(maker);
  request.tenant = maker.rng().below(51) == 0 ? "calm" : "flood";
  return request;
}

template <MakeRequest make>
std::vector<TraceRequest> independent(TraceMaker& maker, const TraceOptions& options) {
  std::vector<TraceRequest> trace;
  trace.reserve(static_cast<size_t>(options.requests));
  for (int32_t i = 0; i < options.requests; ++i) trace.push_back(make(maker));
  return trace;
}

// A turn is what was said before, an answer of the tool or the user, and a short output.
std::vector<TraceRequest> agentic(TraceMaker& maker, const TraceOptions& options) {
  constexpr int32_t kAgents = 40, kOutputMax = 256, kTurnMax = 256;
  struct Agent {
    PromptSpan system;
    TraceRequest said;
  };
  std::vector<Agent> agents(kAgents);
  for (Agent& agent : agents) {
    agent.system = maker.fresh_span(static_cast<int32_t>(maker.rng().between(1024, 3072)));
  }
  const int32_t most = options.max_model_len - kOutputMax;
  std::vector<TraceRequest> trace;
  for (int32_t i = 0; i < options.requests; ++i) {
    // Some agents work much more than others.
    const double place = maker.rng().uniform();
    Agent& agent = agents[static_cast<size_t>(place * place * kAgents)];
    std::vector<PromptSpan>& said = agent.said.prompt;
    if (said.empty() || agent.said.prompt_tokens() + kTurnMax > most) {
      said = {{agent.system.content, std::min(agent.system.tokens, most - kTurnMax)}};
    }
    said.push_back(maker.fresh_span(static_cast<int32_t>(maker.rng().between(32, kTurnMax))));
    TraceRequest request = agent.said;
    request.output = maker.log_normal(4.0, 0.6, 4, kOutputMax);
    request.max_tokens = kOutputMax;
    trace.push_back(std::move(request));
  }
  return trace;
}

// Decoders first: they are there before the first long prompt.
std::vector<TraceRequest> long_prompts(TraceMaker& maker, const TraceOptions& options) {
  constexpr int32_t kDecoders = 32, kDecoderOutput = 4096, kPromptOutput = 16;
  std::vector<TraceRequest> trace;
  for (int32_t i = 0; i < options.requests; ++i) {
    const bool decodes = i < kDecoders;
    const int32_t prompt = decodes ? 128 : maker.limit() - kPromptOutput;
    const int32_t output = decodes ? std::min(maker.limit() - 128, kDecoderOutput) : kPromptOutput;
    trace.push_back({.prompt = {maker.fresh_span(prompt)},
                     .output = output,
                     .max_tokens = output,
                     .tenant = decodes ? "decoders" : "prompts"});
    if (!decodes) trace.back().arrival_seconds = (i - kDecoders + 1) / options.rate;
  }
  return trace;
}

std::vector<TraceRequest> batch_beside(TraceMaker& maker, const TraceOptions& options) {
  std::vector<TraceRequest> trace = independent<sharegpt>(maker, options);
  for (size_t i = 0; i < trace.size(); ++i) {
    trace[i].background = i % 2 == 0;
    trace[i].tenant = trace[i].background ? "background" : "live";
  }
  return trace;
}

struct KindRow {
  std::string_view name;
  std::vector<TraceRequest> (*make)(TraceMaker&, const TraceOptions&);
  bool has_arrivals = false;  // of its own
};

constexpr std::array kKinds = {
    KindRow{"conversation", independent<conversation>},
    KindRow{"sharegpt", independent<sharegpt>},
    KindRow{"summarisation", independent<summarisation>},
    KindRow{"heavy-tail", independent<heavy_tail>},
    KindRow{"learnable", independent<learnable>},
    KindRow{"random", independent<random_lengths>},
    KindRow{"flood", independent<flood>},
    KindRow{"flood-chat", independent<flood_chat>},
    KindRow{"agentic", agentic},
    KindRow{"long-prompts", long_prompts, true},
    KindRow{"batch-beside", batch_beside},
};

template <class Rows>
auto find_row(const Rows& rows, std::string_view name) {
  return std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
}

template <class Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

}  // namespace

int32_t TraceRequest::prompt_tokens() const {
  int32_t tokens = 0;
  for (const PromptSpan& span : prompt) tokens += span.tokens;
  return tokens;
}

std::vector<TokenId> prompt_of(const TraceRequest& request, int32_t vocab_size) {
  std::vector<TokenId> tokens;
  tokens.reserve(static_cast<size_t>(request.prompt_tokens()));
  for (const PromptSpan& span : request.prompt) {
    Rng rng(span.content);
    for (int32_t i = 0; i < span.tokens; ++i) {
      tokens.push_back(static_cast<TokenId>(1 + rng.below(static_cast<uint64_t>(vocab_size - 1))));
    }
  }
  return tokens;
}

Result<std::vector<TraceRequest>> make_trace(const TraceOptions& given) {
  constexpr int32_t kRequests = 2000;
  constexpr double kRate = 10;
  TraceOptions options = given;
  if (options.requests == 0) options.requests = kRequests;
  if (options.rate == 0) options.rate = kRate;
  const auto kind = find_row(kKinds, options.kind);
  if (kind == kKinds.end()) {
    return invalid_argument(fmt::format("there is no trace \"{}\"; there are {}", options.kind,
                                        fmt::join(trace_kinds(), ", ")),
                            "trace");
  }
  const auto arrivals = find_row(kArrivals, options.arrivals);
  if (arrivals == kArrivals.end()) {
    return invalid_argument(fmt::format("there are no arrivals \"{}\"; there are {}",
                                        options.arrivals, fmt::join(arrival_kinds(), ", ")),
                            "arrivals");
  }
  TraceMaker maker(options);
  std::vector<TraceRequest> trace = kind->make(maker, options);
  if (!kind->has_arrivals) let_arrive(maker, options, arrivals->next, trace);
  std::stable_sort(trace.begin(), trace.end(), [](const auto& a, const auto& b) {
    return a.arrival_seconds < b.arrival_seconds;
  });
  return trace;
}

std::vector<std::string> trace_kinds() { return names_of(kKinds); }
std::vector<std::string> arrival_kinds() { return names_of(kArrivals); }

}  // namespace headrace
