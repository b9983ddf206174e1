#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "bench/ablation.h"

namespace headrace {
namespace {

constexpr std::string_view kMaterialised = "attention/cpu/materialised";
constexpr std::string_view kUnsplit = "attention/cpu/avx512_unsplit";

// ---- what is timed

// Submission of the prompts to the last first token.
Result<double> prefill_seconds(AblationBench& bench, std::span<const WorkItem> items) {
  HR_ASSIGN_OR_RETURN(const WorkloadResult result, bench.run(items));
  double last = 0;
  for (const WorkloadTimes& request : result.requests) last = std::max(last, request.first_token);
  return last;
}

// A token of one stream after its first.
Result<double> token_seconds(AblationBench& bench, const WorkItem& item) {
  HR_ASSIGN_OR_RETURN(const WorkloadResult result, bench.run({&item, 1}));
  return result.requests.front().per_token();
}

// Time of attention in a run, all calls together.
double attention_seconds(const AblationBench& bench) {
  int64_t nanoseconds = 0;
  for (const OpTotal& total : bench.profile()) {
    if (total.kernel.starts_with("attention/")) nanoseconds += total.nanoseconds;
  }
  return static_cast<double>(nanoseconds) * 1e-9;
}

// Time of the matrix products of one layer in steps that decode `streams` sequences. The head is
// left out: its rows come in chunks of their own.
Result<double> product_seconds(AblationBench& bench, int32_t streams) {
  const std::vector<WorkItem> items(static_cast<size_t>(streams), {.prompt = 8, .output = 24});
  HR_RETURN_IF_ERROR(bench.run(items).status());
  std::vector<OpTotal> products;
  int64_t layers = 0;  // of all steps
  for (const OpTotal& total : bench.profile()) {
    if (!total.kernel.starts_with("linear/") || total.cost.rows != streams) continue;
    products.push_back(total);
    layers = std::max(layers, total.calls);
  }
  if (products.empty()) return internal_error("no step decoded all streams at once");
  int64_t nanoseconds = 0;
  for (const OpTotal& product : products) {
    if (2 * product.calls > layers) nanoseconds += product.nanoseconds;
  }
  return static_cast<double>(nanoseconds) * 1e-9 / static_cast<double>(layers);
}

// ---- the rows

// Runs with `kernel` in the place of the best; fails where it never fitted.
AblationMeasure with_kernel(std::string_view kernel, AblationMeasure measure) {
  return [kernel = std::string(kernel), measure = std::move(measure)](AblationBench& bench) {
    bench.set_preferred({kernel});
    Result<double> seconds = measure(bench);
    bench.set_preferred({});
    if (seconds.ok() && !bench.ran(kernel)) {
      return Result<double>(unsupported(fmt::format(
          "{} fits no layer of this model on this CPU (it needs AVX-512, and heads without window, "
          "cap and sinks)",
          kernel)));
    }
    return seconds;
  };
}

}  // namespace

std::vector<AblationCase> flash_attention_cases() {
  std::vector<AblationCase> cases;
  for (const int32_t prompt : {512, 2048, 4096}) {
    const WorkItem item{.prompt = prompt, .output = 1};
    const AblationMeasure whole = [item](AblationBench& bench) {
      return prefill_seconds(bench, {&item, 1});
    };
    const AblationMeasure attention = [whole](AblationBench& bench) -> Result<double> {
      HR_RETURN_IF_ERROR(whole(bench).status());
      return attention_seconds(bench);
    };
    const std::string name = fmt::format("prompt of {}", prompt);
    cases.push_back({name, "attention", attention, with_kernel(kMaterialised, attention)});
    cases.push_back({name, "whole prefill", whole, with_kernel(kMaterialised, whole)});
  }
  return cases;
}

std::vector<AblationCase> flash_decoding_cases() {
  std::vector<AblationCase> cases;
  for (const int32_t depth : {512, 2048, 4096}) {
    const AblationMeasure token = [depth](AblationBench& bench) {
      return token_seconds(bench, {.prompt = depth, .output = 33});
    };
    cases.push_back(
        {fmt::format("1 stream behind {}", depth), "a token", token, with_kernel(kUnsplit, token)});
  }
  return cases;
}

std::vector<AblationCase> flat_product_cases() {
  std::vector<AblationCase> cases;
  for (const int32_t streams : {1, 2, 4, 8, 16, 32}) {
    cases.push_back({fmt::format("{} rows", streams), "products of a layer",
                     [streams](AblationBench& bench) { return product_seconds(bench, streams); },
                     [](AblationBench& bench) { return product_seconds(bench, 64); }});
  }
  return cases;
}

std::vector<AblationCase> fusion_cases() {
  const auto unfused = [](AblationMeasure measure) -> AblationMeasure {
    return [measure = std::move(measure)](AblationBench& bench) {
      bench.set_unfused(true);
      Result<double> seconds = measure(bench);
      bench.set_unfused(false);
      return seconds;
    };
  };
  const AblationMeasure token = [](AblationBench& bench) {
    return token_seconds(bench, {.prompt = 16, .output = 65});
  };
  const AblationMeasure prompt = [](AblationBench& bench) {
    const WorkItem item{.prompt = 512, .output = 1};
    return prefill_seconds(bench, {&item, 1});
  };
  return {{"1 stream", "a token", token, unfused(token)},
          {"prompt of 512", "whole prefill", prompt, unfused(prompt)}};
}

std::vector<AblationCase> packed_rows_cases() {
  // Lengths as people's questions have them: most short, a few long.
  constexpr int32_t kMixedPrompts[] = {24, 33, 41, 57, 64, 88, 120, 152, 199, 260, 345, 512};
  const int32_t longest = *std::max_element(std::begin(kMixedPrompts), std::end(kMixedPrompts));
  std::vector<WorkItem> packed, padded;
  for (const int32_t prompt : kMixedPrompts) {
    packed.push_back({.prompt = prompt, .output = 1});
    padded.push_back({.prompt = longest, .output = 1});
  }
  return {{"12 prompts of 24 to 512", "whole prefill",
           [packed](AblationBench& bench) { return prefill_seconds(bench, packed); },
           [padded](AblationBench& bench) { return prefill_seconds(bench, padded); }}};
}

}  // namespace headrace
