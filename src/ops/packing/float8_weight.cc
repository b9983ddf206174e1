// Linear weights that are FP8 on a CUDA device: e4m3 numbers [N, K] with a scale a row, as a file
// has them or from rows of any float type.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "ops/packing/packed_weight.h"
#include "tensor/float8.h"
#include "tensor/quantised_row.h"
#include "tensor/uploader.h"

namespace headrace {
namespace {

constexpr uint8_t kNanBits = 0x7f;

// The rows of one source, in its row order. Owns what it needs but the source's memory.
class Float8Source {
 public:
  explicit Float8Source(const LinearSource& source)
      : source_(source), row_order_(source.row_order.begin(), source.row_order.end()) {
    source_.row_order = {};
  }

  // Numbers of rows [first, last), dense.
  void numbers(int64_t first, int64_t last, std::byte* out) const {
    Row row(source_);
    for (int64_t r = first; r < last; ++r, out += row.columns()) {
      row.read(from_row(r));
      std::copy_n(row.numbers(), row.columns(), out);
    }
  }
  void scales(int64_t first, int64_t last, std::byte* out) const {
    Row row(source_);
    for (int64_t r = first; r < last; ++r, out += sizeof(float)) {
      row.read(from_row(r));
      const float scale = row.scale();
      std::memcpy(out, &scale, sizeof scale);
    }
  }

 private:
  // One row at a time: its numbers and its scale.
  class Row {
   public:
    explicit Row(const LinearSource& source)
        : source_(source),
          values_(static_cast<size_t>(columns())),
          numbers_(static_cast<size_t>(columns())),
          made_(static_cast<size_t>(*row_bytes(source.weight.dtype, source.weight.columns()))) {}
    int64_t columns() const { return source_.weight.columns(); }
    const std::byte* numbers() const { return numbers_.data(); }
    float scale() const { return scale_; }

    void read(int64_t from) {
      const RowReader* const reader = source_.reader.get();
      if (reader != nullptr && reader->has_float8_rows()) {
        scale_ = reader->read_float8_row(source_.first_row + from, source_.first_column, columns(),
                                         numbers_.data());
        const bool nan = std::ranges::any_of(numbers_, [](std::byte number) {
          return (static_cast<uint8_t>(number) & kNanBits) == kNanBits;
        });
        if (nan) scale_ = std::numeric_limits<float>::quiet_NaN();
        return;
      }
      const std::byte* data = made_.data();
      if (reader != nullptr) {
        source_.read(std::span(&from, 1), made_.data());
      } else {
        data = source_.weight.row(from);
      }
      dequantise_row(source_.weight.dtype, {data, made_.size()}, values_);
      quantise();
    }

   private:
    void quantise() {
      float largest = 0.0f;
      bool finite = true;
      for (const float value : values_) {
        largest = std::max(largest, std::abs(value));
        finite = finite && std::isfinite(value);
      }
      scale_ = float8_row_scale(largest);
      if (!finite) scale_ = std::numeric_limits<float>::quiet_NaN();
      for (size_t i = 0; i < values_.size(); ++i) {
        numbers_[i] = std::byte{float_to_e4m3(values_[i] / scale_)};
      }
    }

    const LinearSource& source_;
    std::vector<float> values_;
    std::vector<std::byte> numbers_, made_;
    float scale_ = 1.0f;
  };

  int64_t from_row(int64_t r) const {
    return row_order_.empty() ? r : row_order_[static_cast<size_t>(r)];
  }

  LinearSource source_;  // holds what is read
  std::vector<int32_t> row_order_;
};

}  // namespace

// Rows are read twice: for their numbers, and for their scales, which lie elsewhere.
Result<LinearWeight> LinearWeight::start_float8(Device& device, Uploader& uploader,
                                                std::span<const LinearSource> sources,
                                                LinearCompute compute) {
  constexpr int64_t kScalesOn = 256;  // bytes
  LinearWeight weight;
  weight.compute_ = compute;
  weight.k_ = sources[0].weight.columns();
  for (const LinearSource& source : sources) weight.n_ += source.rows();
  const int64_t numbers = (weight.n_ * weight.k_ + kScalesOn - 1) / kScalesOn * kScalesOn;
  constexpr auto kScaleBytes = static_cast<int64_t>(sizeof(float));
  HR_ASSIGN_OR_RETURN(weight.buffer_, device.allocate(numbers + weight.n_ * kScaleBytes));
  weight.matrix_ = {weight.buffer_.data(), DType::kF8, Shape{weight.n_, weight.k_}};
  std::byte* at = weight.buffer_.data();
  std::byte* scales_at = at + numbers;
  weight.row_scales_ = reinterpret_cast<const float*>(scales_at);
  for (const LinearSource& source : sources) {
    const int64_t rows = source.rows();
    const auto made = std::make_shared<const Float8Source>(source);
    uploader.start(at, rows, weight.k_, [made](int64_t first, int64_t last, std::byte* out) {
      made->numbers(first, last, out);
    });
    uploader.start(
        scales_at, rows, kScaleBytes,
        [made](int64_t first, int64_t last, std::byte* out) { made->scales(first, last, out); });
    at += rows * weight.k_;
    scales_at += rows * kScaleBytes;
  }
  return weight;
}

}  // namespace headrace
