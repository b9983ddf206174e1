#include "stack/state_planning.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "base/log.h"

namespace headrace {
namespace {

// Of the memory that is free: a part of it, as keys and values take the rest, where there are any.
constexpr int64_t kShareOfFree = 8, kShareWithoutKeys = 3;
constexpr int64_t kCheckpointsOfSequence = 2;

int64_t states_in_share(const ModelSpec& model, const Device& device) {
  const bool attends =
      std::ranges::any_of(model.kv, [](const LayerKv& kv) { return kv.kv_heads > 0; });
  return device.free_bytes() / (attends ? kShareOfFree : kShareWithoutKeys) /
         state_entry_bytes(model);
}

}  // namespace

Status check_state_options(StackOptions& options) {
  const auto refuse = [&](std::string_view flag, std::string_view why) {
    return unsupported(fmt::format("{}: the model's layers keep states of fixed size: {} {}",
                                   options.model, flag, why),
                       std::string(flag));
  };
  if (options.tiers.host_gib > 0) return refuse("--kv-offloading-size", "does not hold them");
  if (options.tiers.disk_gib > 0) return refuse("--kv-disk-size", "does not hold them");
  if (!options.engine.kv_save_path.empty()) return refuse("--kv-save", "does not save them");
  ProposalOptions& proposals = options.engine.scheduler.proposals;
  if (drafts_in_runner(proposals.method)) {
    return refuse("--model-draft", "proposes tokens, and no state undoes a rejected one");
  }
  if (proposals.method != ProposalMethod::kNone) {
    log_warning(
        "{}: its layers keep states that do not undo a rejected proposal: --spec-method is "
        "none",
        options.model);
    proposals.method = ProposalMethod::kNone;
    proposals.tree_width = 1;
  }
  return ok_status();
}

Status check_trees(const StackOptions& options) {
  if (options.engine.scheduler.proposals.tree_width == 1) return ok_status();
  return unsupported(fmt::format("{}: --spec-tree-width: its tokens share keys, which are those of "
                                 "one text: leave it out, so that proposals are chains",
                                 options.model),
                     "spec-tree-width");
}

int32_t sequences_with_states(int32_t wanted, const ModelSpec& model, const Device& device) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(states_in_share(model, device), 1, std::max(wanted, 1)));
}

int32_t plan_state_checkpoints(const StackOptions& options, const ModelSpec& model,
                               int32_t sequences, const Device& device) {
  const bool keeps_prefixes = options.engine.scheduler.enable_prefix_caching &&
                              options.runner.kv_memory != KvMemoryKind::kContiguous;
  if (!keeps_prefixes) return 0;
  if (options.memory.state_checkpoints >= 0) return options.memory.state_checkpoints;
  return static_cast<int32_t>(
      std::clamp<int64_t>(states_in_share(model, device), 2, kCheckpointsOfSequence * sequences));
}

std::string state_plan_line(const ModelSpec& model, int32_t sequences, int32_t checkpoints) {
  const auto entry = static_cast<double>(state_entry_bytes(model));
  return fmt::format(
      "states of {:.2f} MiB a sequence, whatever its length: {} sequences and {} checkpoints, "
      "{:.2f} GiB",
      entry / (1 << 20), sequences, checkpoints, entry * (sequences + checkpoints) / (1 << 30));
}

}  // namespace headrace
