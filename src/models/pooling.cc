#include "models/pooling.h"

#include <algorithm>
#include <cmath>

namespace headrace {

void pool_rows(Pooling pooling, const ConstTensorView& rows, std::span<float> out) {
  const int64_t count = rows.rows();
  const auto row_of = [&](int64_t r) { return std::span(f32_row(rows, r), out.size()); };
  const auto copy_row = [&](int64_t r) { std::ranges::copy(row_of(r), out.begin()); };
  switch (pooling) {
    case Pooling::kFirst:
      return copy_row(0);
    case Pooling::kLast:
      return copy_row(count - 1);
    case Pooling::kMax:
      copy_row(0);
      for (int64_t r = 1; r < count; ++r) {
        for (size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], row_of(r)[i]);
      }
      return;
    case Pooling::kMean:
      copy_row(0);
      for (int64_t r = 1; r < count; ++r) {
        for (size_t i = 0; i < out.size(); ++i) out[i] += row_of(r)[i];
      }
      for (float& value : out) value /= static_cast<float>(count);
      return;
  }
}

void scale_to_unit(std::span<float> vector) {
  double squares = 0.0;
  for (const float value : vector) squares += double{value} * value;
  const auto factor = static_cast<float>(1.0 / std::max(std::sqrt(squares), 1e-12));
  for (float& value : vector) value *= factor;
}

}  // namespace headrace
