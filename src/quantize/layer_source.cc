#include "quantize/layer_source.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tensor/quantised_row.h"

namespace headrace {

void LayerSource::replace(const std::string& name, const Matrix& matrix) {
  Tensor tensor{DType::kBF16, Shape{matrix.rows(), matrix.columns()}, {}};
  const auto row_size = static_cast<size_t>(*row_bytes(tensor.dtype, matrix.columns()));
  tensor.bytes.resize(row_size * static_cast<size_t>(matrix.rows()));
  for (int64_t r = 0; r < matrix.rows(); ++r) {
    quantise_row(tensor.dtype, {matrix.row(r), static_cast<size_t>(matrix.columns())},
                 std::span(tensor.bytes).subspan(static_cast<size_t>(r) * row_size, row_size));
  }
  replaced_.insert_or_assign(name, std::move(tensor));
}

void LayerSource::replace(const std::string& name, std::span<const float> vector) {
  const auto bytes = std::as_bytes(vector);
  replaced_.insert_or_assign(name, Tensor{DType::kF32,
                                          Shape{static_cast<int64_t>(vector.size())},
                                          {bytes.begin(), bytes.end()}});
}

const LayerSource::Tensor* LayerSource::find(std::string_view name) const {
  const auto found = replaced_.find(name);
  return found == replaced_.end() ? nullptr : &found->second;
}

bool LayerSource::is_own(const ConstTensorView& view) const {
  return std::ranges::any_of(
      replaced_, [&](const auto& tensor) { return tensor.second.bytes.data() == view.data; });
}

Result<ConstTensorView> LayerSource::get(std::string_view name) const {
  const Tensor* tensor = find(name);
  if (tensor == nullptr) return base_.get(name);
  return ConstTensorView(tensor->bytes.data(), tensor->dtype, tensor->shape);
}

Result<std::shared_ptr<const RowReader>> LayerSource::rows(std::string_view name,
                                                           int64_t index) const {
  if (find(name) == nullptr) return base_.rows(name, index);
  return std::shared_ptr<const RowReader>();
}

std::optional<WeightInfo> LayerSource::info(std::string_view name) const {
  const Tensor* tensor = find(name);
  auto info = base_.info(name);
  if (tensor != nullptr && info) {
    info->dtype = tensor->dtype;
    info->type = dtype_name(tensor->dtype);
  }
  return info;
}

void LayerSource::release(const ConstTensorView& view) const {
  if (!is_own(view)) base_.release(view);
}

void LayerSource::release_rows(const ConstTensorView& view, int64_t first, int64_t last) const {
  if (!is_own(view)) base_.release_rows(view, first, last);
}

Result<Matrix> read_tensor(ThreadPool& pool, const WeightSource& source, std::string_view name) {
  HR_ASSIGN_OR_RETURN(const auto reader, source.rows(name, 0));
  if (reader != nullptr) {
    const Shape shape = reader->shape();
    Matrix matrix(shape[0], shape[1]);
    const auto row_size = static_cast<size_t>(*row_bytes(reader->dtype(), shape[1]));
    constexpr int64_t kRows = 16;
    pool.parallel_for(shape[0], kRows, [&](int64_t first, int64_t last) {
      std::vector<int64_t> rows(static_cast<size_t>(last - first));
      std::iota(rows.begin(), rows.end(), first);
      std::vector<std::byte> bytes(rows.size() * row_size);
      reader->read(rows, 0, shape[1], bytes.data());
      for (int64_t r = first; r < last; ++r) {
        dequantise_row(
            reader->dtype(),
            std::span(bytes).subspan(static_cast<size_t>(r - first) * row_size, row_size),
            {matrix.row(r), static_cast<size_t>(shape[1])});
      }
    });
    return matrix;
  }
  HR_ASSIGN_OR_RETURN(const ConstTensorView view, source.get(name));
  CHECK(view.shape.rank() <= 2);
  Matrix matrix(view.rows(), view.columns());
  pool.parallel_for(view.rows(), 8, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) dequantise_row(view, r, matrix.row(r));
  });
  source.release(view);
  return matrix;
}

}  // namespace headrace
