#include "quantize/integer_matrix.h"

#include <algorithm>
#include <cmath>

#include "tensor/half.h"

namespace headrace {
namespace {

// Scales are kept in a type of the file's: what is computed with is what a reader will have.
float rounded(float scale, DType type) {
  if (type == DType::kF16) return half_to_float(float_to_half(scale));
  if (type == DType::kBF16) return bfloat16_to_float(float_to_bfloat16(scale));
  return scale;
}

}  // namespace

GroupScale group_scale(std::span<const float> values, const IntegerGrid& grid, float shrink) {
  float low = 0, high = 0;
  for (const float value : values) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const auto steps = static_cast<float>(grid.most() - grid.least());
  GroupScale result;
  if (grid.symmetric) {
    result.scale = rounded(2 * std::max(-low, high) * shrink / steps, grid.scale_type);
  } else {
    result.scale = rounded((high - low) * shrink / steps, grid.scale_type);
  }
  if (!(result.scale > 0)) return {1.0f, 0};  // zeros, or smaller than the type can say
  if (!grid.symmetric) {
    const auto zero = static_cast<int32_t>(
        std::lround(static_cast<float>(grid.least()) - low * shrink / result.scale));
    result.zero = std::clamp(zero, grid.least(), grid.most());
  }
  return result;
}

GroupScale fitted_group_scale(std::span<const float> values, std::span<const float> counts,
                              const IntegerGrid& grid) {
  constexpr int kTries = 16;
  constexpr float kStep = 0.03f;
  GroupScale best;
  float best_loss = 0;
  for (int t = 0; t < kTries; ++t) {
    const GroupScale scale = group_scale(values, grid, 1.0f - kStep * static_cast<float>(t));
    float loss = 0;
    for (size_t c = 0; c < values.size(); ++c) {
      const float error = value_of(nearest_step(values[c], scale, grid), scale) - values[c];
      loss += counts[c] * error * error * std::sqrt(std::fabs(error));
    }
    if (t > 0 && !(loss < best_loss)) continue;
    best = scale;
    best_loss = loss;
  }
  return best;
}

int32_t nearest_step(float value, const GroupScale& scale, const IntegerGrid& grid) {
  const float steps = std::nearbyint(value / scale.scale) + static_cast<float>(scale.zero);
  return static_cast<int32_t>(
      std::clamp(steps, static_cast<float>(grid.least()), static_cast<float>(grid.most())));
}

IntegerMatrix::IntegerMatrix(const IntegerGrid& of, int64_t row_count, int64_t column_count)
    : grid(of),
      rows(row_count),
      columns(column_count),
      q(static_cast<size_t>(row_count * column_count)),
      scales(static_cast<size_t>(row_count * (column_count / of.group))) {
  CHECK(of.group > 0 && column_count % of.group == 0);
}

void IntegerMatrix::dequantise_row(int64_t index, float* out) const {
  const int8_t* const from = row(index);
  for (int64_t g = 0; g < groups(); ++g) {
    const GroupScale& of_group = scale(index, g);
    for (int64_t c = g * grid.group; c < (g + 1) * grid.group; ++c) {
      out[c] = value_of(from[c], of_group);
    }
  }
}

IntegerMatrix quantise_nearest(ThreadPool& pool, const Matrix& weights, const IntegerGrid& grid,
                               std::span<const float> shrinks) {
  IntegerMatrix result(grid, weights.rows(), weights.columns());
  pool.parallel_for(weights.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      for (int64_t g = 0; g < result.groups(); ++g) {
        const auto index = static_cast<size_t>(r * result.groups() + g);
        const std::span<const float> values(weights.row(r) + g * grid.group,
                                            static_cast<size_t>(grid.group));
        const GroupScale scale = group_scale(values, grid, shrinks.empty() ? 1.0f : shrinks[index]);
        result.scales[index] = scale;
        int8_t* const q = result.row(r) + g * grid.group;
        for (size_t c = 0; c < values.size(); ++c) {
          q[c] = static_cast<int8_t>(nearest_step(values[c], scale, grid));
        }
      }
    }
  });
  return result;
}

}  // namespace headrace
