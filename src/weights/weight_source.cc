#include "weights/weight_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "weights/file_identity.h"
#include "weights/mxfp4.h"

namespace headrace {

namespace {

Status wrong_shape(const WeightSource& source, std::string_view name, const Shape& shape,
                   const Shape& wanted) {
  return corrupt(fmt::format("{}: tensor {}: shape {}, the model's configuration needs {}",
                             source.description(), name, shape.to_string(), wanted.to_string()),
                 std::string(name));
}

std::vector<int64_t> without_ones(const Shape& shape) {
  std::vector<int64_t> dimensions;
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] != 1) dimensions.push_back(shape[d]);
  }
  return dimensions;
}

}  // namespace

bool is_of_shape(const Shape& tensor, const Shape& wanted) {
  if (tensor == wanted) return true;
  // With dimensions of 1 before and between (Kimi-Linear's rates and convolutions).
  if (tensor.rank() == Shape::kRankMax && without_ones(tensor) == without_ones(wanted)) return true;
  if (tensor.rank() == 0) return wanted == Shape{1};
  // A convolution by channel, [channels, 1, taps].
  if (tensor.rank() == 3 && tensor[1] == 1 && wanted == Shape{tensor[0], tensor[2]}) return true;
  // A vector, or some beside each other, with dimensions of 1 between (RWKV-7's mixes).
  if (tensor.rank() > 2 && tensor[tensor.rank() - 1] == wanted[wanted.rank() - 1] &&
      tensor.elements() == wanted.elements()) {
    const int ones = static_cast<int>(tensor[0] != 1);
    bool all = true;
    for (int d = ones; d + 1 < tensor.rank(); ++d) all = all && tensor[d] == 1;
    if (all && wanted.rank() == 1 + ones && (ones == 0 || wanted[0] == tensor[0])) return true;
  }
  const auto is_one_row_of = [](const Shape& matrix, const Shape& vector) {
    return vector.rank() == 1 && matrix.rank() == 2 && matrix == Shape{1, vector[0]};
  };
  // A vector by heads or groups, [heads, 1] or [groups, columns].
  if (wanted.rank() == 1 && tensor.rank() == 2 && tensor[0] * tensor[1] == wanted[0]) return true;
  return is_one_row_of(wanted, tensor);
}

uint64_t GgufWeightSource::content_sample() const { return files_sample(file_->paths()); }

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

namespace {

bool is_mxfp4(const GgufTensor* tensor) {
  return tensor != nullptr && tensor->type->name == "MXFP4";
}

// A matrix of MXFP4, whose rows are made as E2M1, or as floats where it has a scale that is no f16
// number.
class GgufMxfp4Rows final : public RowReader {
 public:
  // `bytes`: the matrix's.
  GgufMxfp4Rows(std::span<const std::byte> bytes, Shape shape) : bytes_(bytes), shape_(shape) {
    const int64_t count = shape[0] * blocks();
    for (int64_t b = 0; is_e2m1_ && b < count; ++b) is_e2m1_ = fits_e2m1(block(b));
  }
  DType dtype() const override { return is_e2m1_ ? DType::kE2M1 : DType::kF32; }
  Shape shape() const override { return shape_; }
  std::optional<DType> fast_type() const override {
    return is_e2m1_ ? std::nullopt : std::optional(DType::kQ8_0);
  }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    for (const int64_t row : rows) {
      out = read_mxfp4_columns([&](int64_t b) { return block(row * blocks() + b); },
                               Mxfp4Order::kHalves, dtype(), first_column, columns, out);
    }
  }

 private:
  static constexpr int64_t kBlockBytes = 1 + kMxfp4NibbleBytes;
  int64_t blocks() const { return shape_[1] / kMxfp4Columns; }
  Mxfp4Block block(int64_t index) const {
    const std::byte* const at = bytes_.data() + index * kBlockBytes;
    return {static_cast<uint8_t>(*at), at + 1};
  }

  const std::span<const std::byte> bytes_;
  const Shape shape_;
  bool is_e2m1_ = true;
};

}  // namespace

GgufWeightSource::GgufWeightSource(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {
  for (const GgufTensor& tensor : file_->plan().tensors) {
    std::string name;
    if (tensor.name.ends_with(".ffn_norm")) name = fmt::format("{}.weight", tensor.name);
    // Ling 3's output gates of Kimi Delta Attention, which no other matrix follows.
    constexpr std::string_view kGates = "ssm_g_a.weight";
    if (tensor.name.ends_with(kGates)) {
      const std::string_view layer = tensor.name.substr(0, tensor.name.size() - kGates.size());
      const bool first = file_->find_tensor(fmt::format("{}ssm_g_b.weight", layer)) != nullptr;
      if (!first) name = fmt::format("{}attn_gate.weight", layer);
    }
    if (!name.empty() && file_->find_tensor(name) == nullptr) {
      renamed_.emplace(std::move(name), &tensor);
    }
  }
}

const GgufTensor* GgufWeightSource::find(std::string_view name) const {
  const auto at = renamed_.find(name);
  return at == renamed_.end() ? file_->find_tensor(name) : at->second;
}

std::string_view GgufWeightSource::name_of(const GgufTensor& tensor) const {
  for (const auto& [name, found] : renamed_) {
    if (found == &tensor) return name;
  }
  return tensor.name;
}

Result<std::shared_ptr<const RowReader>> GgufWeightSource::rows(std::string_view name,
                                                                int64_t index) const {
  const GgufTensor* tensor = find(name);
  if (!is_mxfp4(tensor) || tensor->shape.rank() < 2) return std::shared_ptr<const RowReader>();
  const Shape& all = tensor->shape;
  const int rank = all.rank();
  const Shape matrix{all[rank - 2], all[rank - 1]};
  const size_t count = rank == 3 ? static_cast<size_t>(all[0]) : 1;
  const size_t size = tensor->bytes.size() / count;
  return std::shared_ptr<const RowReader>(std::make_shared<GgufMxfp4Rows>(
      tensor->bytes.subspan(static_cast<size_t>(index) * size, size), matrix));
}

std::optional<WeightInfo> GgufWeightSource::info(std::string_view name) const {
  const GgufTensor* tensor = find(name);
  if (tensor == nullptr) return std::nullopt;
  return WeightInfo{.name_in_file = printable(tensor->name),
                    .type = tensor->type->name,
                    .dtype = is_mxfp4(tensor) ? std::optional(DType::kF32) : tensor->type->dtype,
                    .shape = tensor->shape,
                    .bytes = static_cast<int64_t>(tensor->bytes.size())};
}

std::vector<std::string_view> GgufWeightSource::names() const {
  std::vector<std::string_view> names;
  names.reserve(file_->plan().tensors.size());
  for (const GgufTensor& tensor : file_->plan().tensors) names.push_back(name_of(tensor));
  return names;
}

Result<ConstTensorView> GgufWeightSource::get(std::string_view name) const {
  const GgufTensor* tensor = find(name);
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
