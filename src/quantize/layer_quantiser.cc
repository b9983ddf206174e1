#include "quantize/layer_quantiser.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "quantize/awq.h"
#include "quantize/block_rows.h"
#include "quantize/gptq.h"
#include "quantize/layer_source.h"

namespace headrace {
namespace {

void divide_rows(Matrix& matrix, std::span<const float> by) {
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    const float factor = 1.0f / by[static_cast<size_t>(r)];
    for (int64_t c = 0; c < matrix.columns(); ++c) matrix.row(r)[c] *= factor;
  }
}

void multiply_columns(Matrix& matrix, std::span<const float> by) {
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    for (int64_t c = 0; c < matrix.columns(); ++c) {
      matrix.row(r)[c] *= by[static_cast<size_t>(c)];
    }
  }
}

// Of inputs x / s.
void divide_inputs(InputStatistics& inputs, std::span<const float> by) {
  Matrix& h = inputs.h;
  for (int64_t i = 0; i < h.rows(); ++i) {
    const float row = by[static_cast<size_t>(i)];
    for (int64_t j = 0; j < h.columns(); ++j) h.row(i)[j] /= row * by[static_cast<size_t>(j)];
  }
  for (size_t c = 0; c < by.size(); ++c) {
    inputs.magnitudes[c] /= double{by[c]};
    inputs.squares[c] /= double{by[c]} * double{by[c]};
  }
}

// Heads of inputs of which `shared_by` neighbours are made of the same values get one scale: what
// it is made of is the mean of theirs.
void share_magnitudes(InputStatistics& inputs, int64_t shared_by, int64_t head_dim) {
  const int64_t run = shared_by * head_dim;
  for (int64_t first = 0; first < inputs.columns(); first += run) {
    for (int64_t d = 0; d < head_dim; ++d) {
      double sum = 0;
      for (int64_t h = 0; h < shared_by; ++h) {
        sum += inputs.magnitudes[static_cast<size_t>(first + h * head_dim + d)];
      }
      for (int64_t h = 0; h < shared_by; ++h) {
        inputs.magnitudes[static_cast<size_t>(first + h * head_dim + d)] =
            sum / static_cast<double>(shared_by);
      }
    }
  }
}

std::vector<float> first_of_each(std::span<const float> scales, int64_t shared_by,
                                 int64_t head_dim) {
  std::vector<float> firsts;
  for (size_t first = 0; first < scales.size();
       first += static_cast<size_t>(shared_by * head_dim)) {
    const auto head = scales.subspan(first, static_cast<size_t>(head_dim));
    firsts.insert(firsts.end(), head.begin(), head.end());
  }
  return firsts;
}

bool all_finite(const Matrix& matrix) {
  return std::ranges::all_of(matrix.values(), [](float value) { return std::isfinite(value); });
}

}  // namespace

LayerQuantiser::LayerQuantiser(MatrixMath& math, const QuantizeJob& job, OutputModel& output,
                               int32_t layer, std::vector<InputStatistics> inputs)
    : math_(math), job_(job), output_(output), layer_(layer), inputs_(std::move(inputs)) {}

std::string LayerQuantiser::in_layer(std::string_view name) const {
  return fmt::format("blk.{}.{}", layer_, name);
}

const InputStatistics* LayerQuantiser::inputs_of(std::string_view name) const {
  for (const InputStatistics& inputs : inputs_) {
    if (std::ranges::find(inputs.matrices, name) != inputs.matrices.end()) return &inputs;
  }
  return nullptr;
}

Status LayerQuantiser::run(LayerReport& report) {
  const double start = SystemClock().now_seconds();
  for (const QuantisedName& matrix : job_.matrices) {
    if (matrix.layer != layer_) continue;
    HR_ASSIGN_OR_RETURN(Matrix weights, read_tensor(math_.pool(), job_.source, matrix.name));
    if (!all_finite(weights)) {
      return corrupt(fmt::format("{}: tensor {}: a weight is no number", job_.source.description(),
                                 job_.source.name_in_file(matrix.name)));
    }
    weights_.emplace(matrix.name, std::move(weights));
  }
  if (job_.options.method == QuantizeMethod::kAwq) HR_RETURN_IF_ERROR(scale_columns());
  for (const QuantisedName& matrix : job_.matrices) {
    if (matrix.layer == layer_) HR_RETURN_IF_ERROR(quantise(matrix.name));
  }
  report.layer = layer_;
  if (all_ > 0) report.error = changed_ / all_;
  report.seconds += SystemClock().now_seconds() - start;
  return ok_status();
}

// ---- AWQ: inputs are divided where they come from, columns multiplied.

// A norm whose rows nothing else reads, that has no bias; rows of a matrix whose product is
// multiplied by another's (of a gated network), or only summed up (of values, each head's own).
LayerQuantiser::Source LayerQuantiser::source_of(const InputStatistics& inputs) const {
  const auto reads = [&](std::string_view name) {
    return std::ranges::find(inputs.matrices, in_layer(name)) != inputs.matrices.end();
  };
  const auto is_foldable = [&](std::string_view norm) {
    return has(fmt::format("{}.weight", norm)) && !has(fmt::format("{}.bias", norm));
  };
  const bool sequential = has("attn_norm.weight") && has("ffn_norm.weight");
  if ((reads("attn_q.weight") || reads("attn_qkv.weight")) && sequential &&
      is_foldable("attn_norm")) {
    return {.norm = in_layer("attn_norm.weight")};
  }
  if (reads("ffn_up.weight") && sequential && is_foldable("ffn_norm")) {
    return {.norm = in_layer("ffn_norm.weight")};
  }
  const bool gated = weights_.contains(in_layer("ffn_gate.weight"));
  if (reads("ffn_down.weight") && gated && !has("ffn_up.bias")) {
    return {.matrix = in_layer("ffn_up.weight")};
  }
  const auto values = weights_.find(in_layer("attn_v.weight"));
  // Gemma 4 norms its values, which undoes what they are scaled by.
  const bool normed = job_.config.architecture == "gemma4";
  if (reads("attn_output.weight") && !normed && values != weights_.end() && !has("attn_v.bias") &&
      values->second.rows() == int64_t{job_.config.kv_heads} * job_.config.head_dim) {
    return {.matrix = in_layer("attn_v.weight"),
            .shared_by = job_.config.heads / job_.config.kv_heads};
  }
  return {};
}

Status LayerQuantiser::scale_columns() {
  for (InputStatistics& inputs : inputs_) {
    const Source source = source_of(inputs);
    if (source.norm.empty() && source.matrix.empty()) continue;
    HR_RETURN_IF_ERROR(scale_columns(inputs, source));
  }
  return ok_status();
}

Status LayerQuantiser::scale_columns(InputStatistics& inputs, const Source& source) {
  std::vector<const Matrix*> matrices;
  for (const std::string& name : inputs.matrices) {
    if (weights_.contains(name)) matrices.push_back(&weights_.at(name));
  }
  if (matrices.size() != inputs.matrices.size()) return ok_status();  // some stay as they are
  const int64_t head_dim = job_.config.head_dim;
  if (source.shared_by > 1) share_magnitudes(inputs, source.shared_by, head_dim);
  HR_ASSIGN_OR_RETURN(std::vector<float> scales,
                      search_column_scales(math_, matrices, inputs, job_.options.grid));
  if (source.shared_by > 1) {
    divide_rows(weights_.at(source.matrix), first_of_each(scales, source.shared_by, head_dim));
  } else if (source.matrix.empty()) {
    HR_ASSIGN_OR_RETURN(scales, divide_norm(source.norm, std::move(scales)));
  } else {
    divide_rows(weights_.at(source.matrix), scales);
  }
  for (const std::string& name : inputs.matrices) multiply_columns(weights_.at(name), scales);
  divide_inputs(inputs, scales);
  return ok_status();
}

// What it was divided by once its values are those of its type.
Result<std::vector<float>> LayerQuantiser::divide_norm(const std::string& norm,
                                                       std::vector<float> scales) {
  HR_ASSIGN_OR_RETURN(const Matrix before, read_tensor(math_.pool(), job_.source, norm));
  std::vector<float> divided(before.values().begin(), before.values().end());
  CHECK(divided.size() == scales.size());
  for (size_t c = 0; c < divided.size(); ++c) divided[c] /= scales[c];
  output_.write_float(norm, divided);
  HR_ASSIGN_OR_RETURN(const std::vector<float> written, output_.read_float(norm));
  for (size_t c = 0; c < scales.size(); ++c) {
    const float value = before.values()[c];
    scales[c] = value != 0 && written[c] != 0 ? value / written[c] : 1.0f;
  }
  return scales;
}

// ---- Rounding

Status LayerQuantiser::quantise(const std::string& name) {
  const Matrix& weights = weights_.at(name);
  auto matrix = rounded(name, weights);
  if (!matrix.ok()) return matrix.status().with_context(job_.source.name_in_file(name));
  output_.write(name, *matrix);
  const InputStatistics* const inputs = inputs_of(name);
  if (inputs == nullptr || inputs->h.rows() == 0) return ok_status();
  HR_ASSIGN_OR_RETURN(const ProductError error,
                      product_error(math_, weights, dequantise(math_.pool(), *matrix), inputs->h));
  changed_ += error.changed;
  all_ += error.all;
  return ok_status();
}

Result<QuantisedMatrix> LayerQuantiser::rounded(const std::string& name, const Matrix& weights) {
  const QuantizeOptions& options = job_.options;
  if (!options.block_type) {
    HR_ASSIGN_OR_RETURN(IntegerMatrix matrix, integers(name, weights));
    return QuantisedMatrix(std::move(matrix));
  }
  if (options.method != QuantizeMethod::kNearest) {
    HR_ASSIGN_OR_RETURN(const IntegerMatrix matrix, integers(name, weights));
    return QuantisedMatrix(as_q4_0(matrix));
  }
  std::vector<float> importance;
  if (const InputStatistics* const inputs = inputs_of(name)) {
    for (const double squares : inputs->squares) {
      importance.push_back(static_cast<float>(squares / static_cast<double>(inputs->rows)));
    }
  }
  const DType dtype = *block_type_for(*options.block_type, weights.columns());
  return QuantisedMatrix(BlockMatrix{dtype, weights.rows(), weights.columns(),
                                     quantise_blocks(math_.pool(), weights, dtype, importance)});
}

Result<IntegerMatrix> LayerQuantiser::integers(const std::string& name, const Matrix& weights) {
  const QuantizeOptions& options = job_.options;
  const InputStatistics* const inputs = inputs_of(name);
  if (inputs == nullptr || options.method == QuantizeMethod::kNearest) {
    return quantise_nearest(math_.pool(), weights, options.grid);
  }
  if (options.method == QuantizeMethod::kGptq) {
    return quantise_gptq(math_, weights, inputs->h, options.grid,
                         {.act_order = options.act_order, .damping = options.damping});
  }
  const std::vector<float> shrinks = search_shrinks(math_.pool(), weights, inputs->h, options.grid);
  return quantise_nearest(math_.pool(), weights, options.grid, shrinks);
}

}  // namespace headrace
