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

int64_t MedusaDrafter::bytes(Device& device, const Model& model,
                             const ModelRunnerOptions& options) {
  return *tensor_bytes(DType::kF32, medusa_rows_shape(options)) +
         medusa_workspace_bytes(device, *options.draft_head->medusa) +
         DraftChooser::bytes(
             device, chooser_source(options.end_ids, model.spec().vocab_size, options.draft_head));
}

Result<std::unique_ptr<Drafter>> MedusaDrafter::create(
    Device& device, const Model& model, const KvStorage& storage, const ModelRunnerOptions& options,
    std::shared_ptr<const DraftFeatures> features) {
  HR_ASSIGN_OR_RETURN(
      DraftChooser chooser,
      DraftChooser::create(
          device, chooser_source(options.end_ids, model.spec().vocab_size, options.draft_head)));
  std::unique_ptr<MedusaDrafter> drafter(
      new MedusaDrafter(device, storage, options, std::move(features), std::move(chooser)));
  HR_ASSIGN_OR_RETURN(Buffer workspace,
                      device.allocate(medusa_workspace_bytes(device, drafter->heads())));
  drafter->workspace_ = Workspace(std::move(workspace));
  const Shape shape = medusa_rows_shape(options);
  HR_ASSIGN_OR_RETURN(drafter->rows_, device.allocate(*tensor_bytes(DType::kF32, shape)));
  drafter->row_ = TensorView(drafter->rows_.data(), DType::kF32, shape);
  return std::unique_ptr<Drafter>(std::move(drafter));
}

MedusaDrafter::MedusaDrafter(Device& device, const KvStorage& storage,
                             const ModelRunnerOptions& options,
                             std::shared_ptr<const DraftFeatures> features, DraftChooser chooser)
    : Drafter(options),
      device_(device),
      features_(std::move(features)),
      stream_(device.create_stream()),
      chooser_(std::move(chooser)),
      builder_(storage.plan(), features_->layers(), /*keeps_rows=*/false) {}

void MedusaDrafter::draft(std::span<Draft> drafts, const SlotTable& slots) {
  load_rows(drafts, slots);
  for (head_ = 0; head_ < heads().spec().heads; ++head_) {
    std::vector<LogitRow> rows;
    std::vector<Draft*> going;
    int32_t row = 0;
    for (Draft& draft : drafts) {
      if (draft.known <= 1) continue;
      const int32_t of_draft = row++;
      if (!draft.begun) continue;
      if (head_ > 0 && draft.going.empty()) continue;
      going.push_back(&draft);
      rows.push_back(row_of(draft, of_draft));
    }
    if (rows.empty()) return;
    choose(going, rows, slots);
    ++drafting_.passes;
    drafting_.rows += static_cast<int32_t>(rows.size());
    for (Draft* const draft : going) draft->going = draft->tree.go_on();
  }
}

// Behind whichever token of its last depth has most.
LogitRow MedusaDrafter::row_of(const Draft& draft, int32_t hidden_row) const {
  LogitRow row = row_behind(draft, TokenTree::kBeforeAll, hidden_row);
  if (head_ == 0) return row;
  row = row_behind(draft, draft.going.front(), hidden_row);
  for (const int32_t before : draft.going) {
    row.alternatives = std::max(row.alternatives, row_behind(draft, before, 0).alternatives);
  }
  return row;
}

// Of the last token but one, where there is one.
void MedusaDrafter::load_rows(std::span<Draft> drafts, const SlotTable& slots) {
  std::vector<TokenRun> runs;
  for (Draft& draft : drafts) {
    draft.begun = draft.known > 1;
    if (!draft.begun) continue;
    const auto place = static_cast<size_t>(draft.known - 2);
    runs.push_back({.slot = draft.slot,
                    .first = draft.known - 2,
                    .tokens = TokenSpan(slots[draft.slot].tokens).subspan(place, 1)});
  }
  if (runs.empty()) return;
  OpContext op = context();
  features_->load(op, places_of(builder_.build(runs, slots)), row_.row_range(0, std::ssize(runs)));
}

void MedusaDrafter::choose(std::span<Draft*> drafts, std::span<const LogitRow> rows,
                           const SlotTable& slots) {
  for (size_t first = 0; first < rows.size(); first += kLogitRowsMax) {
    const auto part = rows.subspan(first, std::min<size_t>(kLogitRowsMax, rows.size() - first));
    OpContext op = context();
    const Workspace::Mark mark(op.workspace);
    const auto chosen = chooser_.choose(op, part, logits(part), slots);
    for (size_t i = 0; i < part.size(); ++i) {
      Draft& draft = *drafts[first + i];
      if (head_ == 0) add(draft, TokenTree::kBeforeAll, chosen[i], slots);
      for (const int32_t before : draft.going) add(draft, before, chosen[i], slots);
    }
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
