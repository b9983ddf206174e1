#include "stack/stage_planning.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/log.h"
#include "stack/model_device.h"

namespace headrace {

Status check_stage_options(StackOptions& options) {
  const int32_t stages = options.device.pipeline_parallel_size;
  if (stages == 1) return ok_status();
  const auto refuse = [&](std::string_view flag, std::string_view why) {
    return unsupported(
        fmt::format("{} does not go with --pipeline-parallel-size {}: {}", flag, stages, why),
        "pipeline_parallel_size");
  };
  if (takes_gpu(options.device)) {
    return refuse("a GPU",
                  "stages are of CPUs so far: use --device cpu, or --tensor-parallel-size");
  }
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

LayerRange layers_of_stage(int32_t layers, int32_t stage, int32_t stages) {
  const auto first = [&](int32_t of) {
    return static_cast<int32_t>(int64_t{layers} * of / stages);
  };
  return {first(stage), first(stage + 1)};
}

Status check_stages(const ModelSpec& model, int32_t stages) {
  const bool has_states = state_entry_bytes(model) > 0;
  for (int32_t stage = 0; stage < stages; ++stage) {
    const LayerRange own = layers_of_stage(model.layer_count, stage, stages);
    bool keys = false, states = false;
    for (auto layer = static_cast<size_t>(own.first); layer < static_cast<size_t>(own.last);
         ++layer) {
      keys |= model.kv[layer].kv_heads > 0;
      states |= has_states && model.state_bytes[layer] > 0;
    }
    if (keys && states == has_states) continue;
    return unsupported(
        fmt::format(
            "--pipeline-parallel-size {}: of {} layers, stage {} would have none that keeps "
            "{}: lower it",
            stages, model.layer_count, stage, keys ? "states" : "keys and values"),
        "pipeline_parallel_size");
  }
  return ok_status();
}

}  // namespace headrace
