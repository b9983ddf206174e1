#include "weights/hub_float4.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include "tensor/block_quants.h"
#include "tensor/float8.h"
#include "weights/mxfp4.h"

namespace headrace {
namespace {

constexpr int64_t kNvfp4Columns = 16;  // that share a scale

// The shape of what lies two columns a byte.
Shape unpacked_shape(const SafetensorsTensor& quants) {
  return {quants.shape[0], 2 * quants.shape[1]};
}

class Nvfp4Matrix final : public HubMatrix {
 public:
  explicit Nvfp4Matrix(const HubTensors& tensors)
      : HubMatrix(tensors, unpacked_shape(*tensors.quants), "NVFP4"),
        divides_(tensors.global->name.ends_with(".weight_global_scale")) {
    std::memcpy(&global_, tensors.global->bytes.data(), sizeof(global_));
  }

  Status prepare() const override {
    if (!std::isfinite(global_) || global_ == 0) {
      return hub_tensor_error(*tensors_.global, fmt::format("{} is no scale of weights", global_));
    }
    constexpr auto kNan = std::byte{0x7f};
    const auto bytes = tensors_.scales->bytes;
    const auto nan =
        std::ranges::find_if(bytes, [](std::byte scale) { return (scale & kNan) == kNan; });
    if (nan == bytes.end()) return ok_status();
    return hub_tensor_error(*tensors_.scales,
                            fmt::format("scale {} of {} is NaN, which no weights can have",
                                        nan - bytes.begin(), bytes.size()));
  }
  DType dtype() const override { return DType::kF32; }
  std::optional<DType> fast_type() const override { return DType::kQ8_0; }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    for (const int64_t row : rows) {
      const std::byte* const quants = tensors_.quants->bytes.data() + row * (shape()[1] / 2);
      const std::byte* const scales =
          tensors_.scales->bytes.data() + row * (shape()[1] / kNvfp4Columns);
      for (int64_t c = first_column; c < first_column + columns; ++c) {
        const float scale = e4m3_to_float(static_cast<uint8_t>(scales[c / kNvfp4Columns]));
        const int bits = static_cast<int>(quants[c / 2]) >> (c % 2 * 4) & 15;
        const float value = 0.5f * kE2m1Values[static_cast<size_t>(bits)] *
                            (divides_ ? scale / global_ : scale * global_);
        std::memcpy(out, &value, sizeof(value));
        out += sizeof(value);
      }
    }
  }

 private:
  const bool divides_;
  float global_ = 0;
};

class PackedMxfp4Matrix final : public HubMatrix {
 public:
  explicit PackedMxfp4Matrix(const HubTensors& tensors)
      : HubMatrix(tensors, unpacked_shape(*tensors.quants), "MXFP4") {}

  Status prepare() const override {
    std::call_once(looked_, [this] {
      const int64_t count = std::ssize(tensors_.scales->bytes);
      is_e2m1_ = true;
      for (int64_t b = 0; is_e2m1_ && b < count; ++b) is_e2m1_ = fits_e2m1(block(b));
    });
    return ok_status();
  }
  DType dtype() const override { return is_e2m1_ ? DType::kE2M1 : DType::kF32; }
  std::optional<DType> fast_type() const override {
    return is_e2m1_ ? std::nullopt : std::optional(DType::kQ8_0);
  }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    const int64_t blocks = shape()[1] / kMxfp4Columns;
    for (const int64_t row : rows) {
      out = read_mxfp4_columns([&](int64_t b) { return block(row * blocks + b); },
                               Mxfp4Order::kNeighbours, dtype(), first_column, columns, out);
    }
  }

 private:
  Mxfp4Block block(int64_t index) const {
    return {static_cast<uint8_t>(tensors_.scales->bytes[static_cast<size_t>(index)]),
            tensors_.quants->bytes.data() + index * kMxfp4NibbleBytes};
  }

  mutable std::once_flag looked_;
  mutable bool is_e2m1_ = false;
};

}  // namespace

Result<std::unique_ptr<HubMatrix>> open_hub_float4(const HubTensors& tensors) {
  const SafetensorsTensor &quants = *tensors.quants, &scales = *tensors.scales;
  if (quants.shape.rank() != 2 || quants.elements == 0) {
    return hub_tensor_error(quants, fmt::format("shape {} is no matrix", quants.shape.to_string()));
  }
  if (tensors.zeros != nullptr) {
    return hub_tensor_error(*tensors.zeros, "4-bit floats have no zero points");
  }
  const int64_t n = quants.shape[0], k = 2 * quants.shape[1];
  const std::string_view type = scales.type->name;
  const bool powers = type == "U8" || type == "F8_E8M0";
  if (!powers && type != "F8_E4M3") {
    return hub_tensor_error(scales, fmt::format("type {} is none of scales of 4-bit floats", type));
  }
  const int64_t together = powers ? kMxfp4Columns : kNvfp4Columns;
  if (k % together != 0 || scales.shape != Shape{n, k / together}) {
    return hub_tensor_error(scales,
                            fmt::format("shape {} is no scale for each {} columns of [{}, {}]",
                                        scales.shape.to_string(), together, n, k));
  }
  if (powers) return std::unique_ptr<HubMatrix>(std::make_unique<PackedMxfp4Matrix>(tensors));
  if (tensors.global == nullptr) {
    return hub_tensor_error(quants,
                            "the scale of all of it is missing (weight_scale_2 or "
                            "weight_global_scale beside it)");
  }
  if (tensors.global->type->dtype != DType::kF32 || tensors.global->elements != 1) {
    return hub_tensor_error(*tensors.global, "is no single F32 scale");
  }
  return std::unique_ptr<HubMatrix>(std::make_unique<Nvfp4Matrix>(tensors));
}

}  // namespace headrace
