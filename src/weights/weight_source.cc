#include "weights/weight_source.h"

#include <fmt/format.h>

namespace headrace {

namespace {

Status wrong_shape(const WeightSource& source, std::string_view name, const Shape& shape,
                   const Shape& wanted) {
  return corrupt(fmt::format("{}: tensor {}: shape {}, the model's configuration needs {}",
                             source.description(), name, shape.to_string(), wanted.to_string()),
                 std::string(name));
}

}  // namespace

bool is_of_shape(const Shape& tensor, const Shape& wanted) {
  if (tensor == wanted) return true;
  // A convolution by channel, [channels, 1, taps].
  if (tensor.rank() == 3 && tensor[1] == 1 && wanted == Shape{tensor[0], tensor[2]}) return true;
  const auto is_one_row_of = [](const Shape& matrix, const Shape& vector) {
    return vector.rank() == 1 && matrix.rank() == 2 && matrix == Shape{1, vector[0]};
  };
  return is_one_row_of(wanted, tensor) || is_one_row_of(tensor, wanted);
}

Result<ConstTensorView> WeightSource::get(std::string_view name, const Shape& shape) const {
  HR_ASSIGN_OR_RETURN(const ConstTensorView view, get(name));
  if (!is_of_shape(view.shape, shape)) return wrong_shape(*this, name, view.shape, shape);
  return ConstTensorView(view.data, view.dtype, shape);
}

Result<ConstTensorView> WeightSource::get_matrix(std::string_view name, const Shape& shape,
                                                 int64_t index) const {
  const auto known = info(name);
  if (known && known->shape != shape) return wrong_shape(*this, name, known->shape, shape);
  return get_matrix(name, index);
}

Result<ConstTensorView> WeightSource::get_matrix(std::string_view name, int64_t index) const {
  HR_ASSIGN_OR_RETURN(const ConstTensorView all, get(name));
  CHECK(all.shape.rank() == 3 && index >= 0 && index < all.shape[0]);
  const Shape matrix{all.shape[1], all.shape[2]};
  return ConstTensorView(all.data + index * *tensor_bytes(all.dtype, matrix), all.dtype, matrix);
}

Result<std::shared_ptr<const RowReader>> WeightSource::rows(std::string_view, int64_t) const {
  return std::shared_ptr<const RowReader>();
}

std::optional<WeightInfo> WeightSource::info(std::string_view name) const {
  if (!has(name)) return std::nullopt;
  const auto view = get(name);
  if (!view.ok()) return std::nullopt;
  return WeightInfo{.name_in_file = name_in_file(name),
                    .type = dtype_name(view->dtype),
                    .dtype = view->dtype,
                    .shape = view->shape,
                    .bytes = tensor_bytes(view->dtype, view->shape).value_or(0)};
}

void WeightSource::release_rows(const ConstTensorView&, int64_t, int64_t) const {}

std::optional<WeightInfo> GgufWeightSource::info(std::string_view name) const {
  const GgufTensor* tensor = file_->find_tensor(name);
  if (tensor == nullptr) return std::nullopt;
  return WeightInfo{.name_in_file = printable(name),
                    .type = tensor->type->name,
                    .dtype = tensor->type->dtype,
                    .shape = tensor->shape,
                    .bytes = static_cast<int64_t>(tensor->bytes.size())};
}

std::vector<std::string_view> GgufWeightSource::names() const {
  std::vector<std::string_view> names;
  names.reserve(file_->plan().tensors.size());
  for (const GgufTensor& tensor : file_->plan().tensors) names.push_back(tensor.name);
  return names;
}

Result<ConstTensorView> GgufWeightSource::get(std::string_view name) const {
  const GgufTensor* tensor = file_->find_tensor(name);
  if (tensor == nullptr) {
    return corrupt(fmt::format("{}: tensor {}: missing", file_->name(), name), std::string(name));
  }
  return file_->view(*tensor);
}

void GgufWeightSource::release(const ConstTensorView& view) const {
  // Readable tensors passed the size check when the file was opened.
  file_->release({view.data, static_cast<size_t>(*tensor_bytes(view.dtype, view.shape))});
}

void GgufWeightSource::release_rows(const ConstTensorView& view, int64_t first,
                                    int64_t last) const {
  file_->release({view.row(first), static_cast<size_t>(view.row(last) - view.row(first))});
}

}  // namespace headrace
