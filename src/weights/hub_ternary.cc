#include "weights/hub_ternary.h"

#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "tensor/half.h"
#include "weights/hub_scales.h"

namespace headrace {
namespace {

constexpr int64_t kPacked = 4;  // ternary numbers in a byte

// A block of Q2_K is 16 parts of 16 columns, w = (d s) q - (e m): with s and m of 1 and e as d the
// quants of a file are those of the block.
constexpr int64_t kTernaryBlock = 256, kTernaryParts = 16;

class TernaryMatrix final : public HubMatrix {
 public:
  TernaryMatrix(const HubTensors& tensors, bool divides)
      : HubMatrix(tensors, Shape{kPacked * tensors.quants->shape[0], tensors.quants->shape[1]},
                  "TERNARY"),
        divides_(divides),
        scales_(*tensors.scales, 1, 1) {}

  Status prepare() const override {
    HR_RETURN_IF_ERROR(scales_.check(/*as_half=*/false));
    if (std::isfinite(scale())) return ok_status();
    return hub_tensor_error(*tensors_.scales,
                            fmt::format("a scale of {} has no reciprocal", scales_.at(0, 0)));
  }
  // A scale that an f16 does not hold makes floats of all.
  DType dtype() const override {
    const bool is_half = half_to_float(float_to_half(scale())) == scale();
    return is_half && shape()[1] % kTernaryBlock == 0 ? DType::kQ2_K : DType::kF32;
  }
  std::optional<DType> fast_type() const override {
    return dtype() == DType::kF32 ? std::optional(DType::kQ8_0) : std::nullopt;
  }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    for (const int64_t row : rows) {
      if (dtype() == DType::kF32) {
        for (int64_t c = first_column; c < first_column + columns; ++c, out += sizeof(float)) {
          const float value = scale() * (static_cast<float>(quant(row, c)) - 1.0f);
          std::memcpy(out, &value, sizeof(float));
        }
        continue;
      }
      for (int64_t c = first_column; c < first_column + columns; c += kTernaryBlock) {
        out = write_block(row, c, out);
      }
    }
  }

 private:
  float scale() const { return divides_ ? 1.0f / scales_.at(0, 0) : scales_.at(0, 0); }
  // 0, 1 or 2.
  uint32_t quant(int64_t row, int64_t column) const {
    const int64_t packed_rows = tensors_.quants->shape[0];
    const auto at = static_cast<size_t>(row % packed_rows * shape()[1] + column);
    return static_cast<uint32_t>(tensors_.quants->bytes[at]) >> (2 * (row / packed_rows)) & 3;
  }

  // Halves of 128 columns, of which a byte has four columns 32 apart.
  std::byte* write_block(int64_t row, int64_t column, std::byte* out) const {
    for (int64_t part = 0; part < kTernaryParts; ++part) *out++ = std::byte{0x11};  // s and m
    for (int64_t half = column; half < column + kTernaryBlock; half += kTernaryBlock / 2) {
      for (int64_t c = half; c < half + 32; ++c, ++out) {
        uint32_t byte = 0;
        for (int64_t n = 0; n < kPacked; ++n) byte |= quant(row, c + 32 * n) << (2 * n);
        *out = static_cast<std::byte>(byte);
      }
    }
    const uint16_t bits = float_to_half(scale());
    for (int i = 0; i < 2; ++i, out += sizeof(bits)) std::memcpy(out, &bits, sizeof(bits));
    return out;
  }

  const bool divides_;
  const HubScales scales_;
};

}  // namespace

Result<std::unique_ptr<HubMatrix>> open_hub_ternary(const HubTensors& tensors,
                                                    const HubQuantisation& quantisation) {
  const SafetensorsTensor &quants = *tensors.quants, &scales = *tensors.scales;
  if (quants.shape.rank() != 2 || quants.elements == 0 || quants.type->name != "U8") {
    return hub_tensor_error(quants, fmt::format("{} {} is no ternary matrix", quants.type->name,
                                                quants.shape.to_string()));
  }
  if (!HubScales::is_readable(scales) || scales.elements != 1) {
    return hub_tensor_error(scales, fmt::format("{} {} is no scale of a ternary matrix",
                                                scales.type->name, scales.shape.to_string()));
  }
  if (tensors.zeros != nullptr) {
    return hub_tensor_error(*tensors.zeros, "a ternary matrix has no zero points");
  }
  return std::unique_ptr<HubMatrix>(std::make_unique<TernaryMatrix>(tensors, quantisation.divides));
}

}  // namespace headrace
