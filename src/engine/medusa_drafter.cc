#include "engine/medusa_drafter.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "ops/sampling/sample.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

Shape medusa_rows_shape(const ModelRunnerOptions& options) {
  return {options.max_num_seqs, options.draft_head->medusa->spec().hidden_size};
}

// Of the rows whose logits are made at a time.
struct MedusaScratch {
  TensorPart gathered;  // [R, D]
  TensorPart logits;    // [R, logit_count]

  static MedusaScratch place(ArenaPlaces& places, const MedusaSpec& spec, int64_t rows) {
    MedusaScratch scratch;
    scratch.gathered = places.take_tensor(DType::kF32, Shape{rows, spec.hidden_size});
    scratch.logits = places.take_tensor(DType::kF32, Shape{rows, spec.logit_count()});
    return scratch;
  }
};

int64_t medusa_workspace_bytes(Device& device, const MedusaHeads& heads) {
  constexpr int64_t kParts = 64;
  const int threads = device.pool().thread_count();
  ArenaPlaces places;
  MedusaScratch::place(places, heads.spec(), kLogitRowsMax);
  places.take<std::byte>(
      static_cast<size_t>(sample_workspace_bytes(threads, heads.spec().logit_count())));
  places.take<std::byte>(static_cast<size_t>(heads.workspace_bytes(kLogitRowsMax)));
  return places.bytes_for(kParts);
}

}  // namespace

int64_t MedusaDrafter::pass_bytes(Device& device, const ModelRunnerOptions& options) {
  return *tensor_bytes(DType::kF32, medusa_rows_shape(options)) +
         medusa_workspace_bytes(device, *options.draft_head->medusa);
}

Result<std::unique_ptr<Drafter>> MedusaDrafter::create(Device& device, const Model& model,
                                                       const ModelRunnerOptions& options) {
  std::unique_ptr<MedusaDrafter> drafter(new MedusaDrafter(device, model, options));
  HR_ASSIGN_OR_RETURN(Buffer workspace,
                      device.allocate(medusa_workspace_bytes(device, drafter->heads())));
  drafter->workspace_ = Workspace(std::move(workspace));
  const Shape shape = medusa_rows_shape(options);
  HR_ASSIGN_OR_RETURN(drafter->rows_, device.allocate(*tensor_bytes(DType::kF32, shape)));
  drafter->row_ = TensorView(drafter->rows_.data(), DType::kF32, shape);
  return std::unique_ptr<Drafter>(std::move(drafter));
}

void MedusaDrafter::draft(const SlotTable& slots, Sampler& sampler) {
  for (size_t i = 0; i < drafts_.size(); ++i) {
    Draft& draft = drafts_[i];
    draft.going = draft.known > 1;
    if (!draft.going) continue;
    const TensorView row = row_.row_range(static_cast<int64_t>(i), 1);
    features_->read(slots, draft.slot, draft.known - 2, row);
  }
  for (head_ = 0; head_ < heads().spec().heads; ++head_) {
    std::vector<LogitRow> rows;
    std::vector<Draft*> going;
    for (size_t i = 0; i < drafts_.size(); ++i) {
      if (!drafts_[i].going) continue;
      going.push_back(&drafts_[i]);
      rows.push_back({.hidden_row = static_cast<int32_t>(i),
                      .sequence = drafts_[i].sequence,
                      .slot = drafts_[i].slot,
                      .samples = true,
                      .ahead = head_});
    }
    if (rows.empty()) return;
    sample(going, rows, slots, sampler);
    ++drafting_.passes;
    drafting_.rows += static_cast<int32_t>(rows.size());
  }
}

TensorView MedusaDrafter::logits(std::span<const LogitRow> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  ArenaPlaces places;
  const MedusaScratch scratch = MedusaScratch::place(places, heads().spec(), count);
  std::byte* const memory = workspace_.take(places.used());
  const TensorView gathered = scratch.gathered.in(memory);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(f32_row(gathered, i), f32_row(row_, rows[static_cast<size_t>(i)].hidden_row),
                static_cast<size_t>(gathered.columns()) * sizeof(float));
  }
  const TensorView logits = scratch.logits.in(memory);
  OpContext op = context();
  heads().logits(op, head_, gathered, logits);
  return logits;
}

}  // namespace headrace
