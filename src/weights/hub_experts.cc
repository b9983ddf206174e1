#include "weights/hub_experts.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "weights/mxfp4.h"

namespace headrace {
namespace {

// The sizes of a turned matrix in its tensor, which may be a stack of them.
struct TurnedSizes {
  explicit TurnedSizes(const Shape& shape)
      : matrices(shape.rank() == 3 ? shape[0] : 1),
        columns(shape[shape.rank() - 2]),
        rows(shape[shape.rank() - 1]) {}
  int64_t matrices, columns, rows;
};

class TurnedMatrix final : public HubMatrix {
 public:
  TurnedMatrix(const HubTensors& tensors, const ExpertRowsOf& rows)
      : HubMatrix(tensors,
                  Shape{TurnedSizes(tensors.quants->shape).rows / rows.step / rows.parts,
                        TurnedSizes(tensors.quants->shape).columns},
                  std::string(tensors.quants->type->name)),
        sizes_(tensors.quants->shape),
        rows_(rows) {}

  Status prepare() const override { return ok_status(); }
  int64_t bytes() const override {
    return HubMatrix::bytes() / sizes_.matrices / rows_.step / rows_.parts;
  }
  DType dtype() const override { return *tensors_.quants->type->dtype; }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    const auto size = static_cast<size_t>(dtype_info(dtype()).block_bytes);
    const int64_t in_file = sizes_.rows;
    const std::byte* const matrix =
        tensors_.quants->bytes.data() +
        static_cast<size_t>(rows_.expert * sizes_.columns * in_file) * size;
    // Rows that are neighbours lie in the same lines of memory.
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t before = (first_column + c) * in_file + rows_.first;
      for (size_t r = 0; r < rows.size(); ++r) {
        const int64_t at = before + rows[r] * rows_.step;
        std::memcpy(out + (static_cast<int64_t>(r) * columns + c) * static_cast<int64_t>(size),
                    matrix + static_cast<size_t>(at) * size, size);
      }
    }
  }

 private:
  const TurnedSizes sizes_;
  const ExpertRowsOf rows_;
};

class Mxfp4Matrix final : public HubMatrix {
 public:
  Mxfp4Matrix(const HubTensors& tensors, const ExpertRowsOf& rows)
      : HubMatrix(
            tensors,
            Shape{tensors.quants->shape[1] / rows.step, tensors.quants->shape[2] * kMxfp4Columns},
            "MXFP4"),
        rows_(rows) {}

  Status prepare() const override {
    std::call_once(looked_, [this] {
      bool all_fit = true;
      for (int64_t row = 0; all_fit && row < shape()[0]; ++row) {
        for (int64_t b = 0; b < blocks() && all_fit; ++b) all_fit = fits_e2m1(block(row, b));
      }
      is_e2m1_ = all_fit;
    });
    return ok_status();
  }
  int64_t bytes() const override {
    return HubMatrix::bytes() / tensors_.quants->shape[0] / rows_.step;
  }
  DType dtype() const override { return is_e2m1_ ? DType::kE2M1 : DType::kF32; }
  std::optional<DType> fast_type() const override {
    return is_e2m1_ ? std::nullopt : std::optional(DType::kQ8_0);
  }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    for (const int64_t row : rows) {
      out = read_mxfp4_columns([&](int64_t b) { return block(row, b); }, Mxfp4Order::kNeighbours,
                               dtype(), first_column, columns, out);
    }
  }

 private:
  int64_t blocks() const { return tensors_.quants->shape[2]; }

  Mxfp4Block block(int64_t row, int64_t b) const {
    const int64_t in_file =
        rows_.expert * tensors_.quants->shape[1] + rows_.first + row * rows_.step;
    const auto at = static_cast<size_t>(in_file * blocks() + b);
    return {static_cast<uint8_t>(tensors_.scales->bytes[at]),
            tensors_.quants->bytes.data() + at * static_cast<size_t>(kMxfp4NibbleBytes)};
  }

  const ExpertRowsOf rows_;
  mutable std::once_flag looked_;
  mutable bool is_e2m1_ = false;
};

class IntegerTable final : public HubMatrix {
 public:
  explicit IntegerTable(const HubTensors& tensors)
      : HubMatrix(tensors, tensors.quants->shape, std::string(tensors.quants->type->name)) {}

  Status prepare() const override { return ok_status(); }
  DType dtype() const override { return DType::kF32; }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    auto* next = reinterpret_cast<float*>(out);
    for (const int64_t row : rows) {
      for (int64_t c = first_column; c < first_column + columns; ++c) {
        *next++ = static_cast<float>(number(row * shape()[1] + c));
      }
    }
  }

 private:
  template <class Integer>
  int64_t number_of(int64_t at) const {
    Integer number;
    std::memcpy(&number, tensors_.quants->bytes.data() + at * int64_t{sizeof(number)},
                sizeof(number));
    return number;
  }
  int64_t number(int64_t at) const {
    return type() == "I64" ? number_of<int64_t>(at) : number_of<int32_t>(at);
  }
};

}  // namespace

Result<std::unique_ptr<HubMatrix>> open_integer_matrix(const SafetensorsTensor& tensor) {
  if (tensor.shape.rank() != 2 || (tensor.type->name != "I64" && tensor.type->name != "I32")) {
    return hub_tensor_error(tensor, fmt::format("{} {} is no matrix of I32 or I64",
                                                tensor.type->name, tensor.shape.to_string()));
  }
  return std::unique_ptr<HubMatrix>(std::make_unique<IntegerTable>(HubTensors{.quants = &tensor}));
}

Result<int64_t> hub_expert_count(const HubTensors& tensors, HfForm form, int64_t step) {
  const SafetensorsTensor& quants = *tensors.quants;
  const Shape& shape = quants.shape;
  const auto wrong = [&](std::string_view what) {
    return hub_tensor_error(quants, fmt::format("shape {} is {}", shape.to_string(), what));
  };
  if (is_turned_stack(form)) {
    if (shape.rank() != 3 || shape[2] % step != 0) return wrong("no stack of turned matrices");
    if (!quants.type->dtype) {
      return hub_tensor_error(quants, fmt::format("type {} is not supported", quants.type->name));
    }
    return shape[0];
  }
  if (shape.rank() != 4 || shape[3] != kMxfp4NibbleBytes || shape[1] % step != 0 ||
      quants.type->name != "U8") {
    return wrong("no stack of matrices of MXFP4");
  }
  if (tensors.scales == nullptr) return hub_tensor_error(quants, "its scales are missing");
  const SafetensorsTensor& scales = *tensors.scales;
  if (scales.type->name != "U8" || scales.shape != Shape{shape[0], shape[1], shape[2]}) {
    return hub_tensor_error(scales, fmt::format("shape {} is none of the scales of {}",
                                                scales.shape.to_string(), shape.to_string()));
  }
  return shape[0];
}

Result<std::unique_ptr<HubMatrix>> open_turned_matrix(const SafetensorsTensor& tensor) {
  if (tensor.shape.rank() != 2) {
    return hub_tensor_error(tensor, fmt::format("shape {} is no matrix", tensor.shape.to_string()));
  }
  if (!tensor.type->dtype) {
    return hub_tensor_error(tensor, fmt::format("type {} is not supported", tensor.type->name));
  }
  return std::unique_ptr<HubMatrix>(
      std::make_unique<TurnedMatrix>(HubTensors{.quants = &tensor}, ExpertRowsOf{}));
}

std::unique_ptr<HubMatrix> open_hub_expert(const HubTensors& tensors, HfForm form,
                                           const ExpertRowsOf& rows) {
  if (is_turned_stack(form)) return std::make_unique<TurnedMatrix>(tensors, rows);
  return std::make_unique<Mxfp4Matrix>(tensors, rows);
}

}  // namespace headrace
