#include "weights/hub_float8.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tensor/float8.h"
#include "weights/hub_scales.h"

namespace headrace {
namespace {

std::array<float, 256> all_values() {
  std::array<float, 256> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = e4m3_to_float(static_cast<uint8_t>(i));
  }
  return values;
}

class Float8Matrix final : public HubMatrix {
 public:
  // Rows and columns that share a scale.
  struct Block {
    int64_t rows, columns;
  };
  Float8Matrix(const HubTensors& tensors, std::string type, Block block)
      : HubMatrix(tensors, tensors.quants->shape, std::move(type)),
        block_(block),
        scales_(*tensors.scales, (shape()[1] + block.columns - 1) / block.columns, 1) {}

  Status prepare() const override { return scales_.check(/*as_half=*/false); }
  DType dtype() const override { return DType::kF32; }
  std::optional<DType> fast_type() const override { return DType::kQ8_0; }
  bool has_float8_rows() const override { return block_.columns == shape()[1]; }
  float read_float8_row(int64_t row, int64_t first_column, int64_t columns,
                        std::byte* out) const override {
    const auto from = static_cast<size_t>(row * shape()[1] + first_column);
    const auto quants = tensors_.quants->bytes.subspan(from, static_cast<size_t>(columns));
    std::ranges::copy(quants, out);
    return scales_.at(row / block_.rows, 0);
  }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    static const std::array<float, 256> kValues = all_values();
    const int64_t end = first_column + columns;
    for (const int64_t row : rows) {
      const std::byte* const quants = tensors_.quants->bytes.data() + row * shape()[1];
      for (int64_t c = first_column; c < end;) {
        const int64_t block_end = std::min(end, (c / block_.columns + 1) * block_.columns);
        const float scale = scales_.at(row / block_.rows, c / block_.columns);
        for (; c < block_end; ++c, out += sizeof(float)) {
          const float value = kValues[static_cast<size_t>(quants[c])] * scale;
          std::memcpy(out, &value, sizeof(float));
        }
      }
    }
  }

 private:
  const Block block_;
  const HubScales scales_;
};

}  // namespace

Result<std::unique_ptr<HubMatrix>> open_hub_float8(const HubTensors& tensors,
                                                   const HubQuantisation& quantisation) {
  const SafetensorsTensor &quants = *tensors.quants, &scales = *tensors.scales;
  if (quants.shape.rank() != 2 || quants.elements == 0) {
    return hub_tensor_error(quants, fmt::format("shape {} is no matrix", quants.shape.to_string()));
  }
  if (!HubScales::is_readable(scales)) {
    return hub_tensor_error(scales, fmt::format("type {} is none of scales", scales.type->name));
  }
  if (tensors.zeros != nullptr) return hub_tensor_error(*tensors.zeros, "FP8 has no zero points");
  const int64_t n = quants.shape[0], k = quants.shape[1];
  const auto found = [&](std::string_view name, int64_t rows, int64_t columns) {
    return std::unique_ptr<HubMatrix>(std::make_unique<Float8Matrix>(
        tensors, fmt::format("E4M3-{}", name), Float8Matrix::Block{rows, columns}));
  };
  if (scales.elements == 1) return found("tensor", n, k);
  const bool by_row = scales.shape == Shape{n} || scales.shape == Shape{n, 1};
  if (by_row) return found("channel", 1, k);
  const int64_t rows = quantisation.block_rows, columns = quantisation.block_columns;
  if (scales.shape == Shape{(n + rows - 1) / rows, (k + columns - 1) / columns}) {
    return found(fmt::format("{}x{}", rows, columns), rows, columns);
  }
  return hub_tensor_error(
      scales, fmt::format("shape {} is no scale for all, each row or each {} x {} of {}",
                          scales.shape.to_string(), rows, columns, quants.shape.to_string()));
}

}  // namespace headrace
