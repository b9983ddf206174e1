#include "engine/draft_features.h"

#include <algorithm>
#include <cstring>

#include "ops/attention/kv_numbers.h"

namespace headrace {
namespace {

// F16 ends there, and a hidden row may have some numbers beyond it.
constexpr float kFeatureMax = 65504.0f;

int64_t joined_columns(const DraftFeatures::Source& source) {
  return std::ssize(source.spec.layers) * source.model.spec().hidden_size;
}

// Numbers [first, first + count) of a row: those of a key or a value of a layer.
struct FeaturePiece {
  size_t layer = 0;
  int32_t head = 0;
  bool key = false;
  int64_t first = 0, count = 0;
};

template <class Visit>
void for_each_piece(std::span<const KvLayerView> layers, int64_t width, const Visit& visit) {
  FeaturePiece piece;
  for (; piece.layer < layers.size(); ++piece.layer) {
    const KvLayerView& kv = layers[piece.layer];
    for (piece.head = 0; piece.head < kv.kv_heads; ++piece.head) {
      for (const bool key : {true, false}) {
        if (piece.first >= width || (!key && kv.v_aliases_k)) continue;
        piece.key = key;
        piece.count = std::min<int64_t>(key ? kv.k_dim : kv.v_dim, width - piece.first);
        visit(piece);
        piece.first += piece.count;
      }
    }
  }
  CHECK(piece.first == width);
}

}  // namespace

int64_t DraftFeatures::bytes(const Source& source, int32_t tokens_max) {
  const int64_t columns = joined_columns(source);
  const int64_t copies = source.spec.layers.size() > 1 ? 2 : 1;
  return tokens_max * (copies * columns + width(source)) * int64_t{sizeof(float)};
}

Result<DraftFeatures> DraftFeatures::create(Device& device, const Source& source,
                                            const KvStorage& storage, LayerRange layers,
                                            int32_t tokens_max) {
  CHECK(source.model.activation_dtype() == DType::kF32 && !source.spec.layers.empty());
  DraftFeatures features(source, storage, layers);
  const auto rows_of = [&](int64_t columns) -> Result<TensorView> {
    const Shape shape{tokens_max, columns};
    HR_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(*tensor_bytes(DType::kF32, shape)));
    features.buffers_.push_back(std::move(buffer));
    return TensorView(features.buffers_.back().data(), DType::kF32, shape);
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

DraftFeatures::DraftFeatures(const Source& source, const KvStorage& storage, LayerRange layers)
    : source_(source),
      storage_(storage),
      kv_(storage.layers().subspan(static_cast<size_t>(layers.first),
                                   static_cast<size_t>(layers.last - layers.first))),
      groups_(std::span(storage.plan().layer_group)
                  .subspan(static_cast<size_t>(layers.first), kv_.size())) {}

void DraftFeatures::keep(OpContext& context, const StepPlan& plan, const SlotTable& slots) {
  if (plan.work.empty()) return;
  const TensorView made = make(context, plan.token_count);
  std::vector<FeaturePlace> places;  // [T]
  for (const Work& work : plan.work) {
    for (int32_t i = 0; i < work.count; ++i) places.push_back({work.slot, work.first + i});
  }
  context.device.pool().parallel_for(made.rows(), 16, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      store_row(slots, places[static_cast<size_t>(row)], f32_row(made, row));
    }
  });
}

// Of the rows at the taps.
TensorView DraftFeatures::make(OpContext& context, int64_t rows) {
  const auto row_floats = static_cast<size_t>(source_.model.spec().hidden_size);
  if (source_.spec.normalised) {
    for (const LayerTap& tap : taps_) {
      source_.model.normalise_rows(context, tap.hidden.row_range(0, rows));
    }
  }
  for (size_t tap = 0; taps_.size() > 1 && tap < taps_.size(); ++tap) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(f32_row(joined_, row) + tap * row_floats, f32_row(taps_[tap].hidden, row),
                  row_floats * sizeof(float));
    }
  }
  const TensorView made = made_.row_range(0, rows);
  if (source_.head != nullptr) {
    source_.head->make_features(context, joined_.row_range(0, rows), made);
  }
  return made;
}

int64_t DraftFeatures::cache_slot(const SlotTable& slots, FeaturePlace place, size_t layer) const {
  const int32_t block_tokens = storage_.plan().block_tokens;
  const auto table = slots.block_table(place.slot, groups_[layer]);
  const int32_t page = table[static_cast<size_t>(place.token / block_tokens)];
  CHECK(page >= 0);
  return int64_t{page} * block_tokens + place.token % block_tokens;
}

void DraftFeatures::store_row(const SlotTable& slots, FeaturePlace place, const float* row) const {
  std::vector<float> numbers;
  for_each_piece(kv_, made_.columns(), [&](const FeaturePiece& piece) {
    const KvLayerView& kv = kv_[piece.layer];
    numbers.assign(static_cast<size_t>(std::max(kv.k_dim, kv.v_dim)), 0.0f);
    for (int64_t i = 0; i < piece.count; ++i) {
      numbers[static_cast<size_t>(i)] = std::clamp(row[piece.first + i], -kFeatureMax, kFeatureMax);
    }
    const int64_t at = cache_slot(slots, place, piece.layer);
    if (piece.key) {
      store_key(kv, at, piece.head, numbers.data());
    } else {
      store_value(kv, at, piece.head, numbers.data());
    }
  });
}

void DraftFeatures::load_row(const SlotTable& slots, FeaturePlace place, float* row) const {
  for_each_piece(kv_, made_.columns(), [&](const FeaturePiece& piece) {
    const KvLayerView& kv = kv_[piece.layer];
    const int64_t at = cache_slot(slots, place, piece.layer);
    for (int32_t i = 0; i < piece.count; ++i) {
      row[piece.first + i] =
          piece.key ? load_key(kv, at, piece.head, i) : load_value(kv, at, piece.head, i);
    }
  });
}

void DraftFeatures::read(const SlotTable& slots, SlotId slot, int32_t first,
                         const TensorView& rows) const {
  for (int64_t row = 0; row < rows.rows(); ++row) {
    load_row(slots, {slot, first + static_cast<int32_t>(row)}, f32_row(rows, row));
  }
}

}  // namespace headrace
