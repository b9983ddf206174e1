#include "engine/draft_chooser.h"

#include <utility>

#include "engine/model_pass.h"
#include "ops/sampling/sample.h"
#include "ops/sampling/spread_logits.h"

namespace headrace {
namespace {

int64_t choosing_bytes(Device& device, int32_t vocabulary) {
  return sample_workspace_bytes(device.pool().thread_count(), vocabulary) + 4096;
}

int64_t all_logits_bytes(int32_t vocabulary) {
  return kLogitRowsMax * int64_t{vocabulary} * int64_t{sizeof(float)};
}

}  // namespace

DraftChooser::Source chooser_source(const std::vector<TokenId>& end_ids, int32_t vocabulary,
                                    const std::optional<DraftHead>& head) {
  return {.end_ids = end_ids,
          .vocabulary = vocabulary,
          .ids = head ? head->tokens : std::vector<TokenId>()};
}

int64_t DraftChooser::bytes(Device& device, const Source& source) {
  if (source.ids.empty()) return 0;
  return choosing_bytes(device, source.vocabulary) + all_logits_bytes(source.vocabulary);
}

Result<DraftChooser> DraftChooser::create(Device& device, Source source) {
  DraftChooser chooser(device, std::move(source));
  const Source& made = chooser.source_;
  if (made.ids.empty()) return chooser;
  HR_ASSIGN_OR_RETURN(chooser.all_logits_, device.allocate(all_logits_bytes(made.vocabulary)));
  HR_ASSIGN_OR_RETURN(Buffer choosing, device.allocate(choosing_bytes(device, made.vocabulary)));
  chooser.choosing_ = Workspace(std::move(choosing));
  return chooser;
}

std::span<const SampleResult> DraftChooser::choose(OpContext& context,
                                                   std::span<const LogitRow> rows,
                                                   const TensorView& logits,
                                                   const SlotTable& slots) {
  if (source_.ids.empty()) return sampler_.propose(context, rows, logits, slots);
  const TensorView all(all_logits_.data(), DType::kF32, Shape{logits.rows(), source_.vocabulary});
  spread_logits(context, {.logits = logits, .ids = source_.ids.data(), .all = all});
  OpContext choosing{*device_, context.stream, choosing_, context.mesh, context.hooks};
  return sampler_.propose(choosing, rows, all, slots);
}

}  // namespace headrace
