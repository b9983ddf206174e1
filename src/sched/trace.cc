#include "sched/trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rng.h"

namespace headrace {
namespace {

constexpr int32_t kVocab = 32000;

class TraceMaker {
 public:
  explicit TraceMaker(const TraceOptions& options) : options_(options), rng_(options.seed) {}

  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - rng_.uniform()));
    return radius * std::cos(2 * std::numbers::pi * rng_.uniform());
  }
  int32_t log_normal(double mu, double sigma, int32_t least, int32_t most) {
    const double value = std::exp(mu + sigma * normal());
    return std::clamp(static_cast<int32_t>(std::lround(std::min(value, 1e6))), least, most);
  }
  void arrive(TraceRequest& request) {
    time_ += -std::log(1 - rng_.uniform()) / options_.rate;
    request.arrival_seconds = time_;
  }
  void add_random_tokens(std::vector<TokenId>& tokens, int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      tokens.push_back(static_cast<TokenId>(1 + rng_.below(kVocab - 1)));
    }
  }
  Rng& rng() { return rng_; }
  int32_t limit() const { return options_.max_model_len; }

 private:
  const TraceOptions& options_;
  Rng rng_;
  double time_ = 0;
};

using MakeRequest = TraceRequest (*)(TraceMaker&);

TraceRequest with_lengths(TraceMaker& maker, int32_t prompt, int32_t output, int32_t max_tokens) {
  TraceRequest request{.output = output, .max_tokens = max_tokens, .tenant = {}};
  request.max_tokens = std::min(max_tokens, maker.limit() / 2);
  request.output = std::min(output, request.max_tokens);
  maker.add_random_tokens(request.prompt, std::min(prompt, maker.limit() - request.max_tokens));
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

TraceRequest heavy_tail(TraceMaker& maker) {
  const auto prompt = static_cast<int32_t>(maker.rng().between(32, 256));
  return with_lengths(maker, prompt, maker.log_normal(4.16, 1.5, 1, 2048), 2048);
}

// Task t answers with about 10 * 1.4^t tokens: 10 to 1,500. Clients allow what the context leaves.
TraceRequest task(TraceMaker& maker, bool told) {
  const auto kind = static_cast<int32_t>(maker.rng().below(16));
  const int32_t output = maker.log_normal(std::log(10) + kind * std::log(1.4), 0.25, 1, 2048);
  TraceRequest request = with_lengths(maker, static_cast<int32_t>(maker.rng().between(64, 256)),
                                      output, maker.limit());
  for (int32_t i = 0; i < 8; ++i) request.prompt[static_cast<size_t>(i)] = 5;
  for (int32_t i = 8; told && i < 16; ++i) request.prompt[static_cast<size_t>(i)] = 100 + kind;
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

std::vector<TraceRequest> independent(const TraceOptions& options, MakeRequest make) {
  TraceMaker maker(options);
  std::vector<TraceRequest> trace;
  for (int32_t i = 0; i < options.requests; ++i) {
    trace.push_back(make(maker));
    maker.arrive(trace.back());
  }
  return trace;
}

// A turn is what was said before, an answer of the tool or the user, and a short output.
std::vector<TraceRequest> agentic(const TraceOptions& options) {
  TraceMaker maker(options);
  struct Agent {
    std::vector<TokenId> system, said;
  };
  std::vector<Agent> agents(40);
  for (Agent& agent : agents) {
    maker.add_random_tokens(agent.system, static_cast<int32_t>(maker.rng().between(1024, 3072)));
  }
  std::vector<TraceRequest> trace;
  for (int32_t i = 0; i < options.requests; ++i) {
    // Some agents work much more than others.
    const double place = maker.rng().uniform();
    Agent& agent = agents[static_cast<size_t>(place * place * 40)];
    constexpr int32_t kOutputMax = 256;
    const auto most = static_cast<size_t>(options.max_model_len - kOutputMax);
    if (agent.said.empty() || agent.said.size() + 256 > most) agent.said = agent.system;
    maker.add_random_tokens(agent.said, static_cast<int32_t>(maker.rng().between(32, 256)));
    if (agent.said.size() > most) agent.said.resize(most);
    TraceRequest request{.prompt = agent.said,
                         .output = maker.log_normal(4.0, 0.6, 4, kOutputMax),
                         .max_tokens = kOutputMax,
                         .tenant = {}};
    maker.arrive(request);
    trace.push_back(std::move(request));
  }
  return trace;
}

struct KindRow {
  std::string_view name;
  MakeRequest make;
};

constexpr std::array kKinds = {
    KindRow{"conversation", conversation}, KindRow{"sharegpt", sharegpt},
    KindRow{"heavy-tail", heavy_tail},     KindRow{"learnable", learnable},
    KindRow{"random", random_lengths},     KindRow{"flood", flood},
};

}  // namespace

Result<std::vector<TraceRequest>> make_trace(const TraceOptions& options) {
  if (options.kind == "agentic") return agentic(options);
  for (const KindRow& row : kKinds) {
    if (row.name == options.kind) return independent(options, row.make);
  }
  return invalid_argument(fmt::format("there is no trace \"{}\"; there are {}", options.kind,
                                      fmt::join(trace_kinds(), ", ")),
                          "trace");
}

std::vector<std::string> trace_kinds() {
  std::vector<std::string> names = {"agentic"};
  for (const KindRow& row : kKinds) names.emplace_back(row.name);
  return names;
}

}  // namespace headrace
