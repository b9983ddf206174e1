#include "apps/inspect.h"

#include <algorithm>
#include <map>

#include "apps/inspect_report.h"
#include "base/round_up.h"
#include "engine/kv_plan.h"
#include "stack/memory_planning.h"

namespace headrace {
namespace {

constexpr int64_t kHalfBytes = 2;  // of an element of the cache

void add_tensors(const WeightSource& weights, InspectReport& report) {
  std::map<std::string_view, TypeShare> shares;
  for (const std::string_view name : weights.names()) {
    const WeightInfo info = *weights.info(name);
    TypeShare& share = shares[info.type];
    share.name = info.type;
    share.readable = info.dtype.has_value();
    ++share.tensors;
    share.bytes += info.bytes;
    ++report.tensor_count;
    report.tensor_bytes += info.bytes;
  }
  for (const auto& [name, share] : shares) report.types.push_back(share);
  std::stable_sort(report.types.begin(), report.types.end(),
                   [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
}

void add_kv(const ModelSpec& spec, InspectReport& report) {
  std::map<int32_t, KvShare> shares;
  for (const LayerKv& layer : spec.kv) {
    if (layer.kv_heads == 0) continue;
    KvShare& share = shares[layer.window];
    share.window = layer.window;
    ++share.layers;
    const int32_t v_dim = layer.v_aliases_k ? 0 : layer.v_dim;
    const int64_t key = kHalfBytes * (layer.kv_heads * (layer.k_dim + v_dim) + layer.index_dim);
    const int64_t page_keys = divide_up(kKvBlockTokens, layer.rate);
    share.token_bytes +=
        key * page_keys / kKvBlockTokens + static_cast<int64_t>(sizeof(float)) * layer.source_dim;
  }
  for (const auto& [window, share] : shares) report.kv.push_back(share);
  report.state_bytes = state_entry_bytes(spec);
  const KvPlan plan = plan_kv(spec, {KvFormat::kF16}, kKvBlockTokens);
  report.kv_context_bytes = plan.held_bytes(report.context);
  report.kv_seen_bytes = plan.seen_bytes(report.context);
  report.kv_page_bytes = plan.page_bytes;
  report.kv_group_count = std::ssize(plan.groups);
}

}  // namespace

int64_t InspectReport::kv_token_bytes() const {
  int64_t bytes = 0;
  for (const KvShare& share : kv) bytes += share.token_bytes;
  return bytes;
}

std::string_view rope_scaling_name(RopeScaling::Kind kind) {
  using enum RopeScaling::Kind;
  switch (kind) {
    case kLinear:
      return "linear";
    case kDynamic:
      return "dynamic";
    case kLlama3:
      return "llama3";
    case kYarn:
      return "yarn";
    case kLongRope:
      return "longrope";
    case kNone:
      break;
  }
  return "none";
}

InspectReport make_report(std::unique_ptr<ModelSource> source, int32_t context) {
  InspectReport report;
  report.title = source->title();
  report.weights = read_weights(*source);
  report.text = read_text(*source);
  Problems problems = report.weights.problems;
  if (const Architecture* architecture = report.weights.architecture) {
    report.context = context > 0 ? context : report.weights.config.context_length;
    const auto spec = architecture->parse(report.weights.config);
    if (spec.ok()) add_kv(*spec, report);
  }
  if (report.weights.weights != nullptr) add_tensors(*report.weights.weights, report);
  for (const Status& problem : report.text.problems) problems.push_back(problem);
  for (const Status& problem : make_agree(*source, report.weights, report.text)) {
    problems.push_back(problem);
  }
  const auto sampling = read_sampling_defaults(*source, "auto", "");
  if (sampling.ok()) report.sampling = *sampling;
  if (!sampling.ok()) problems.push_back(sampling.status());
  for (const Status& problem : problems) report.problems.push_back(problem.message());
  report.source = std::move(source);
  return report;
}

Result<std::string> inspect_model(const std::string& path, const InspectOptions& options) {
  HR_ASSIGN_OR_RETURN(auto source, open_model_source(path));
  const InspectReport report = make_report(std::move(source), options.context);
  return options.json ? json_report(report, options.tensors) : text_report(report, options.tensors);
}

}  // namespace headrace
