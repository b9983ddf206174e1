#include "engine/draft_features.h"

#include <algorithm>

#include "models/row_views.h"
#include "ops/rows/row_gather.h"

namespace headrace {
namespace {

int64_t joined_columns(const DraftFeatures::Source& source) {
  return std::ssize(source.spec.layers) * source.model.spec().hidden_size;
}

}  // namespace

TokenPlaces places_of(const ForwardBatch& batch) {
  TokenPlaces places;
  for (const ForwardBatch::Group& group : batch.groups) places.push_back(group.slots);
  return places;
}

TokenPlaces places_of(const StepInput& input) { return {input.slots.begin(), input.slots.end()}; }

int64_t DraftFeatures::bytes(const Source& source, int32_t tokens_max) {
  const int64_t columns = joined_columns(source);
  const int64_t copies = source.spec.layers.size() > 1 ? 2 : 1;
  const int64_t made = source.head == nullptr ? 0 : width(source);
  return tokens_max * (copies * columns + made) *
         dtype_info(source.model.activation_dtype()).block_bytes;
}

Result<DraftFeatures> DraftFeatures::create(Device& device, const Source& source,
                                            const KvStorage& storage, LayerRange layers,
                                            int32_t tokens_max) {
  CHECK(!source.spec.layers.empty());
  DraftFeatures features(source, storage, layers);
  const DType dtype = source.model.activation_dtype();
  const auto rows_of = [&](int64_t columns) -> Result<TensorView> {
    const Shape shape{tokens_max, columns};
    HR_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(*tensor_bytes(dtype, shape)));
    features.buffers_.push_back(std::move(buffer));
    return TensorView(features.buffers_.back().data(), dtype, shape);
  };
  for (const int32_t layer : source.spec.layers) {
    HR_ASSIGN_OR_RETURN(const TensorView rows, rows_of(source.model.spec().hidden_size));
    features.taps_.push_back({.layer = layer, .hidden = rows});
  }
  features.joined_ = features.taps_.front().hidden;
  if (features.taps_.size() > 1) {
    HR_ASSIGN_OR_RETURN(features.joined_, rows_of(joined_columns(source)));
  }
  features.made_ = features.joined_;
  if (source.head != nullptr) {
    HR_ASSIGN_OR_RETURN(features.made_, rows_of(width(source)));
  }
  return features;
}

void DraftFeatures::keep(OpContext& context, const TokenPlaces& places) const {
  const auto group =
      static_cast<size_t>(storage_.plan().layer_group[static_cast<size_t>(layers_.first)]);
  const int64_t rows = std::ssize(places[group]);
  if (rows > 0) move(context, PageRowsWay::kStore, places, make(context, rows));
}

// Of the rows at the taps.
TensorView DraftFeatures::make(OpContext& context, int64_t rows) const {
  const int64_t columns = source_.model.spec().hidden_size;
  for (size_t i = 0; i < taps_.size(); ++i) {
    const TensorView left = taps_[i].hidden.row_range(0, rows);
    if (source_.spec.normalised) source_.model.normalise_rows(context, left);
    if (taps_.size() == 1) continue;
    const TensorView joined = joined_.row_range(0, rows);
    row_gather(context, {.x = left,
                         .rows = {},
                         .out = column_range(joined, static_cast<int64_t>(i) * columns, columns)});
  }
  const TensorView made = made_.row_range(0, rows);
  if (source_.head != nullptr) {
    source_.head->make_features(context, joined_.row_range(0, rows), made);
  }
  return made;
}

void DraftFeatures::load(OpContext& context, const TokenPlaces& places,
                         const TensorView& rows) const {
  move(context, PageRowsWay::kLoad, places, rows);
}

// Layer by layer, of which each has as many numbers of a row as it can keep.
void DraftFeatures::move(OpContext& context, PageRowsWay way, const TokenPlaces& places,
                         const TensorView& rows) const {
  int64_t first = 0;
  for (int32_t layer = layers_.first; layer < layers_.last; ++layer) {
    const KvLayerView& kv = storage_.layers()[static_cast<size_t>(layer)];
    const int64_t count = std::min(page_row_components(kv), rows.columns() - first);
    const int32_t group = storage_.plan().layer_group[static_cast<size_t>(layer)];
    page_rows(context, {.way = way,
                        .rows = column_range(rows, first, count),
                        .slots = places[static_cast<size_t>(group)],
                        .kv = kv});
    first += count;
  }
  CHECK(first == rows.columns());
}

}  // namespace headrace
