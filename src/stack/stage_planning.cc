#include "stack/stage_planning.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace headrace {

Status check_stage_options(StackOptions& options) {
  const int32_t stages = options.device.pipeline_parallel_size;
  if (stages == 1) return ok_status();
  const auto refuse = [&](std::string_view flag, std::string_view why) {
    return unsupported(
        fmt::format("{} does not go with --pipeline-parallel-size {}: {}", flag, stages, why),
        "pipeline_parallel_size");
  };
  if (options.device.tensor_parallel_size > 1) {
    return refuse("--tensor-parallel-size", "leave one of them out");
  }
  if (!options.draft_model.empty()) return refuse("--model-draft", "leave one of them out");
  if (options.adapters.wanted()) return refuse("--enable-lora", "leave one of them out");
  if (options.load.packed_cache == PackedCacheUse::kOn) {
    return refuse("--packed-cache on", "it keeps weights of a model that is whole");
  }
  ProposalOptions& proposals = options.engine.scheduler.proposals;
  if (proposals.method != ProposalMethod::kNone) {
    log_warning("--pipeline-parallel-size {}: nothing is proposed, --spec-method is none", stages);
    proposals.method = ProposalMethod::kNone;
    proposals.tree_width = 1;
  }
  return ok_status();
}

namespace {

// The number of the layer that a tensor's name has first ("blk.3.attn_q", "model.layers.3.mlp...");
// -1: none.
int32_t layer_in_name(std::string_view name) {
  for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    const std::string_view behind = name.substr(dot + 1);
    int32_t layer = -1;
    const auto [end, error] = std::from_chars(behind.data(), behind.data() + behind.size(), layer);
    if (error == std::errc() && end != behind.data() + behind.size() && *end == '.') return layer;
  }
  return -1;
}

std::vector<LayerRange> as_many_each(int32_t layers, int32_t stages) {
  std::vector<LayerRange> ranges;
  const auto first = [&](int32_t of) {
    return static_cast<int32_t>(int64_t{layers} * of / stages);
  };
  for (int32_t s = 0; s < stages; ++s) ranges.push_back({first(s), first(s + 1)});
  return ranges;
}

// Whether layers fit into so many stages of at most this cost, the head behind the last; if so,
// where each begins, taken from the back.
bool fits_below(const LayerCosts& costs, int32_t stages, double most, std::vector<LayerRange>& to) {
  const auto count = static_cast<int32_t>(costs.layers.size());
  to.assign(static_cast<size_t>(stages), {});
  int32_t last = count;
  for (int32_t s = stages - 1; s >= 0; --s) {
    double sum = s + 1 == stages ? costs.head : 0;
    int32_t first = last;
    // Each stage before this one needs a layer too.
    while (first > s &&
           (sum + costs.layers[static_cast<size_t>(first - 1)] <= most || first == last)) {
      sum += costs.layers[static_cast<size_t>(--first)];
    }
    if (sum > most) return false;
    to[static_cast<size_t>(s)] = {first, last};
    last = first;
  }
  return last == 0;
}

// By halving what the dearest stage may cost.
std::vector<LayerRange> as_dear_each(const LayerCosts& costs, int32_t stages) {
  double high = costs.head + std::accumulate(costs.layers.begin(), costs.layers.end(), 0.0);
  double low = 0;
  std::vector<LayerRange> best, tried;
  for (int turn = 0; turn < 60; ++turn) {
    const double middle = (low + high) / 2;
    if (fits_below(costs, stages, middle, tried)) {
      best = tried;
      high = middle;
    } else {
      low = middle;
    }
  }
  return best;
}

// "": each stage keeps what it has to.
std::string_view what_is_missing(const ModelSpec& model, LayerRange own) {
  const bool has_states = state_entry_bytes(model) > 0;
  bool keys = false, states = false;
  for (auto layer = static_cast<size_t>(own.first); layer < static_cast<size_t>(own.last);
       ++layer) {
    keys |= model.kv[layer].kv_heads > 0;
    states |= has_states && model.state_bytes[layer] > 0;
  }
  if (!keys) return "keys and values";
  return states == has_states ? "" : "states";
}

bool all_keep_what_they_must(const ModelSpec& model, const std::vector<LayerRange>& ranges) {
  return std::ranges::all_of(ranges,
                             [&](LayerRange own) { return what_is_missing(model, own).empty(); });
}

}  // namespace

LayerCosts layer_costs(const WeightSource& weights, const ModelSpec& model) {
  LayerCosts costs{.layers = std::vector<double>(static_cast<size_t>(model.layer_count)),
                   .head = double{1} * model.logit_count() * model.hidden_size};
  for (const std::string_view name : weights.names()) {
    const int32_t layer = layer_in_name(name);
    const auto info = weights.info(name);
    if (layer < 0 || layer >= model.layer_count || !info) continue;
    costs.layers[static_cast<size_t>(layer)] +=
        static_cast<double>(info->shape.elements().value_or(0));
  }
  return costs;
}

Result<std::vector<LayerRange>> plan_stages(const ModelSpec& model, const LayerCosts& costs,
                                            int32_t stages) {
  if (stages <= model.layer_count) {
    std::vector<LayerRange> ranges = as_dear_each(costs, stages);
    if (!ranges.empty() && all_keep_what_they_must(model, ranges)) return ranges;
  }
  std::vector<LayerRange> ranges = as_many_each(model.layer_count, stages);
  for (int32_t s = 0; s < stages; ++s) {
    const std::string_view missing = what_is_missing(model, ranges[static_cast<size_t>(s)]);
    if (missing.empty()) continue;
    return unsupported(
        fmt::format(
            "--pipeline-parallel-size {}: of {} layers, stage {} would have none that keeps "
            "{}: lower it",
            stages, model.layer_count, s, missing),
        "pipeline_parallel_size");
  }
  return ranges;
}

int32_t layers_of_most(const std::vector<LayerRange>& stages) {
  int32_t most = 0;
  for (const LayerRange& stage : stages) most = std::max(most, stage.last - stage.first);
  return most;
}

std::string stages_line(const std::vector<LayerRange>& stages) {
  std::string line = fmt::format("{} stages, of layers", stages.size());
  std::string_view before = " ";
  for (const LayerRange& own : stages) {
    line += fmt::format("{}{} to {}", std::exchange(before, ", "), own.first, own.last - 1);
  }
  return line;
}

}  // namespace headrace
