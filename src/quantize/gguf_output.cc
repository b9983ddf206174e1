#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "quantize/output_model.h"
#include "tensor/quantised_row.h"
#include "weights/gguf_writer.h"

namespace headrace {
namespace {

// What llama.cpp calls a file by the type of most of its matrices (its enum llama_ftype).
uint32_t file_type(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    case DType::kQ4_K:
      return 14;
    case DType::kQ5_K:
      return 16;
    case DType::kQ6_K:
      return 18;
    default:
      return 7;  // Q8_0
  }
}

const GgufType* gguf_type_of(DType dtype) {
  for (const GgufType& type : gguf_types()) {
    if (type.dtype == dtype) return &type;
  }
  return nullptr;
}

class GgufOutput final : public OutputModel {
 public:
  GgufOutput(const GgufOutputOptions& options, std::shared_ptr<const GgufFile> source,
             std::vector<GgufOutTensor> tensors, std::unique_ptr<GgufWriter> writer)
      : path_(options.path),
        partial_(options.partial),
        source_(std::move(source)),
        tensors_(std::move(tensors)),
        quantised_(tensors_.size()),
        writer_(std::move(writer)) {
    for (const auto& [name, dtype] : options.matrices) quantised_[index_of(name)] = true;
  }

  bool continued() const override { return writer_->file().continued(); }

  void write(std::string_view name, const QuantisedMatrix& matrix) override {
    const size_t index = index_of(name);
    const auto& blocks = std::get<BlockMatrix>(matrix);
    CHECK(tensors_[index].type->dtype == blocks.dtype &&
          writer_->data(index).size() == blocks.bytes.size());
    std::ranges::copy(blocks.bytes, writer_->data(index).begin());
  }

  Result<QuantisedMatrix> read(std::string_view name) const override {
    const size_t index = index_of(name);
    const Shape& shape = tensors_[index].shape;
    const auto data = writer_->data(index);
    return QuantisedMatrix(
        BlockMatrix{*tensors_[index].type->dtype, shape[0], shape[1], {data.begin(), data.end()}});
  }

  void write_float(std::string_view name, std::span<const float> values) override {
    const size_t index = index_of(name);
    quantise_row(*tensors_[index].type->dtype, values, writer_->data(index));
  }

  Result<std::vector<float>> read_float(std::string_view name) const override {
    const size_t index = index_of(name);
    std::vector<float> values(static_cast<size_t>(*tensors_[index].shape.elements()));
    dequantise_row(*tensors_[index].type->dtype, writer_->data(index), values);
    return values;
  }

  Status copy_rest() override {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (quantised_[i]) continue;
      const GgufTensor& tensor = *source_->find_tensor(tensors_[i].name);
      std::ranges::copy(tensor.bytes, writer_->data(i).begin());
      source_->release(tensor.bytes);
    }
    return ok_status();
  }

  Status flush() override { return writer_->file().flush(); }

  Status finish() override {
    HR_RETURN_IF_ERROR(flush());
    writer_.reset();
    if (std::rename(partial_.c_str(), path_.c_str()) == 0) return ok_status();
    return internal_error(
        fmt::format("{}: cannot be renamed to {}: {}", partial_, path_, std::strerror(errno)));
  }

 private:
  size_t index_of(std::string_view name) const {
    const auto found = std::ranges::find(tensors_, name, &GgufOutTensor::name);
    CHECK(found != tensors_.end());
    return static_cast<size_t>(found - tensors_.begin());
  }

  const std::string path_, partial_;
  const std::shared_ptr<const GgufFile> source_;
  const std::vector<GgufOutTensor> tensors_;
  std::vector<bool> quantised_;
  std::unique_ptr<GgufWriter> writer_;
};

}  // namespace

Result<std::unique_ptr<OutputModel>> create_gguf_output(const GgufOutputOptions& options,
                                                        std::shared_ptr<const GgufFile> source) {
  std::vector<GgufOutTensor> tensors;
  for (const GgufTensor& tensor : source->plan().tensors) {
    const auto quantised =
        std::ranges::find(options.matrices, tensor.name, &std::pair<std::string, DType>::first);
    const GgufType* const type =
        quantised == options.matrices.end() ? tensor.type : gguf_type_of(quantised->second);
    tensors.push_back({std::string(tensor.name), type, tensor.shape});
  }
  const std::array<std::pair<std::string_view, uint32_t>, 2> numbers{
      {{"general.file_type", file_type(options.dtype)}, {"general.quantization_version", 2}}};
  HR_ASSIGN_OR_RETURN(auto writer, GgufWriter::create(options.partial, *source, numbers, tensors,
                                                      OldFile::kContinue));
  return std::unique_ptr<OutputModel>(std::make_unique<GgufOutput>(
      options, std::move(source), std::move(tensors), std::move(writer)));
}

}  // namespace headrace
