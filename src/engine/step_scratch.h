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

// Of `rows` rows of logits.
struct HeadScratch {
  TensorPart gathered;          // [R, D]: the hidden rows that they are made of
  ArenaPart<std::byte> logits;  // [R, V] float, `logit_row_bytes` from one row to the next

  static HeadScratch place(ArenaPlaces& places, const Model& model, int64_t rows,
                           int64_t logit_row_bytes) {
    HeadScratch scratch;
    scratch.gathered = place_hidden(places, model, rows);
    scratch.logits = places.take<std::byte>(static_cast<size_t>(rows * logit_row_bytes));
    return scratch;
  }
};

}  // namespace headrace
