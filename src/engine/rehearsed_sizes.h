// RehearsedSizes: the numbers of rows that the products of a rank's steps have had, by classes of
// rows, for each of which the library chooses an algorithm once (tensor/gemm_library.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>

#include "engine/step_stages.h"
#include "tensor/gemm_library.h"

namespace headrace {

class RehearsedSizes {
 public:
  // Whether `input` has products of a class that no step before it had.
  bool adds(const StepInput& input) {
    const bool of_layers = adds_rows(of_layers_, input.tokens.size());
    // Of rows that are kept the last layer has all products but the first.
    const size_t kept = input.keeps_rows ? input.kept_rows.size() : 0;
    const bool of_last_layer = !of_layers_.contains(class_of(kept)) && adds_rows(of_kept_, kept);
    // The head has its rows in pieces.
    constexpr size_t kPiece = kDeviceLogitRowsMax;
    const size_t rows = input.logit_rows.size();
    const bool of_pieces = adds_rows(of_head_, std::min(rows, kPiece));
    const bool of_last_piece = adds_rows(of_head_, rows % kPiece);
    return of_layers || of_last_layer || of_pieces || of_last_piece;
  }

 private:
  static int64_t class_of(size_t rows) {
    return rows == 0 ? 0 : gemm_row_class(static_cast<int64_t>(rows));
  }
  static bool adds_rows(std::set<int64_t>& classes, size_t rows) {
    return rows > 0 && classes.insert(class_of(rows)).second;
  }

  std::set<int64_t> of_layers_, of_kept_, of_head_;
};

}  // namespace headrace
