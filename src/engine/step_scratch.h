// The scratch memory of a step outside of its model's ops, as parts of a workspace: what plans the
// workspace counts them, what runs the step takes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "models/model.h"
#include "tensor/arena_places.h"

namespace headrace {

// Pieces that a step takes of its workspace at most, ops included.
inline constexpr int64_t kScratchPartsMax = 256;

inline TensorPart place_hidden(ArenaPlaces& places, const Model& model, int64_t rows) {
  return places.take_tensor(model.activation_dtype(), Shape{rows, model.spec().hidden_size});
}

// From one row of logits to the next. Every row starts on 256 bytes, as the fast products and the
// 16-byte accesses of sampling need, whatever the vocabulary: with rows of 49,155 logits side by
// side, a step of 32 rows took five times as long as with 49,152. The bytes between the last logit
// of a row and the next row are not read.
constexpr int64_t device_logit_row_bytes(int64_t vocabulary) {
  constexpr int64_t kAlignment = 256;
  const auto bytes = vocabulary * static_cast<int64_t>(sizeof(float));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The tokens that are sampled from: so many or, where nothing is said, the model's.
inline int32_t sampled_tokens(const Model& model, int32_t vocabulary) {
  return vocabulary > 0 ? vocabulary : model.spec().logit_count();
}

// Of `rows` rows of logits.
struct HeadScratch {
  TensorPart gathered;          // [R, D]: the hidden rows that they are made of
  ArenaPart<std::byte> logits;  // [R, V] float, `logit_row_bytes` from one row to the next
  ArenaPart<std::byte> spread;  // as many rows of `spread_row_bytes`: over more tokens than V

  static HeadScratch place(ArenaPlaces& places, const Model& model, int64_t rows,
                           int64_t logit_row_bytes, int64_t spread_row_bytes = 0) {
    HeadScratch scratch;
    scratch.gathered = place_hidden(places, model, rows);
    scratch.logits = places.take<std::byte>(static_cast<size_t>(rows * logit_row_bytes));
    scratch.spread = places.take<std::byte>(static_cast<size_t>(rows * spread_row_bytes));
    return scratch;
  }
  // On a GPU, of a model's logits, where `vocabulary` tokens are sampled from.
  static HeadScratch on_gpu(ArenaPlaces& places, const Model& model, int64_t rows,
                            int32_t vocabulary) {
    const int32_t own = model.spec().logit_count();
    return place(places, model, rows, device_logit_row_bytes(own),
                 own < vocabulary ? device_logit_row_bytes(vocabulary) : 0);
  }
};

}  // namespace headrace
