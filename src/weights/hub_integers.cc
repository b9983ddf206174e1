#include "weights/hub_integers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include <fmt/format.h>

#include "weights/hub_scales.h"

namespace headrace {
namespace {

constexpr int64_t kBlock = 32;  // columns of a block of Q4_0, Q4_Z, Q8_0
constexpr size_t kBlockColumns = 32;

enum class QuantLayout : uint8_t {
  kDownColumns,  // GPTQ
  kAlongRows,    // AWQ
  kWords,        // pack-quantized
  kBytes,        // int-quantized
};

// Numbers of a tensor of words or bytes.
struct PackedNumbers {
  const std::byte* data = nullptr;
  int32_t bits = 4;

  uint32_t word(int64_t i) const {
    uint32_t word;
    std::memcpy(&word, data + i * 4, 4);
    return word;
  }
  // Number `place` of word i.
  int field(int64_t i, int64_t place) const {
    return static_cast<int>(word(i) >> (place * bits)) & ((1 << bits) - 1);
  }
};

// Where number i of 8 lies in a word of AWQ.
constexpr std::array<int64_t, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

// Numbers of 4 bits, a byte each.
uint64_t spread_nibbles(uint32_t word) {
  uint64_t spread = word;
  spread = (spread | spread << 16) & 0x0000ffff0000ffff;
  spread = (spread | spread << 8) & 0x00ff00ff00ff00ff;
  return (spread | spread << 4) & 0x0f0f0f0f0f0f0f0f;
}

// What shapes say of a matrix.
struct IntegerForm {
  QuantLayout layout;
  int32_t bits;
  int64_t n, k, groups;
  int64_t group_size = 0;  // 0: all groups are alike
  int64_t scale_row_step, scale_group_step;
  int64_t zero_row_step = 0;  // of zeros that are bytes
  bool zeros_less_one = false;

  int64_t group_columns() const { return group_size > 0 ? group_size : k / groups; }
  int64_t per_word() const { return 32 / bits; }
  int middle() const { return 1 << (bits - 1); }
};

class IntegerMatrix final : public HubMatrix {
 public:
  IntegerMatrix(const HubTensors& tensors, const IntegerForm& form, std::string type)
      : HubMatrix(tensors, Shape{form.n, form.k}, std::move(type)),
        form_(form),
        quants_{tensors.quants->bytes.data(), form.bits},
        scales_(*tensors.scales, form.scale_row_step, form.scale_group_step) {
    if (tensors.zeros != nullptr) zeros_ = {tensors.zeros->bytes.data(), form.bits};
    zero_bytes_ = tensors.zeros != nullptr && tensors.zeros->type->name != "I32";
  }

  Status prepare() const override {
    const std::lock_guard lock(mutex_);
    if (prepared_) return ok_status();
    HR_RETURN_IF_ERROR(scales_.check(/*as_half=*/true));
    HR_RETURN_IF_ERROR(read_order());
    dtype_ = chosen_dtype();
    prepared_ = true;
    return ok_status();
  }

  DType dtype() const override { return dtype_; }
  std::optional<DType> fast_type() const override {
    const bool whole = form_.k % kBlock == 0;
    return dtype_ == DType::kF32 && whole ? std::optional(DType::kQ8_0) : std::nullopt;
  }

  void read(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
            std::byte* out) const override {
    if (dtype_ == DType::kF32) return read_floats(rows, first_column, columns, out);
    const int64_t block_bytes = dtype_info(dtype_).block_bytes;
    const int64_t row_bytes = columns / kBlock * block_bytes;
    // All rows of some columns, since rows lie side by side in two of the layouts.
    for (int64_t c = 0; c < columns; c += kBlock) {
      std::byte* at = out + c / kBlock * block_bytes;
      for (const int64_t row : rows) {
        write_block(row, first_column + c, at);
        at += row_bytes;
      }
    }
  }

 private:
  // ---- what the matrix is read as ----

  // Empty where groups are runs of columns.
  Status read_order() const {
    if (tensors_.order == nullptr) return ok_status();
    const PackedNumbers groups{tensors_.order->bytes.data(), 32};
    const auto group = [&](int64_t c) { return static_cast<int32_t>(groups.word(c)); };
    bool as_is = true, unset = true;
    for (int64_t c = 0; c < form_.k; ++c) {
      as_is = as_is && group(c) == c / form_.group_columns();
      unset = unset && group(c) == -1;  // compressed-tensors' mark of no order
    }
    if (as_is || unset) return ok_status();
    order_.resize(static_cast<size_t>(form_.k));
    for (int64_t c = 0; c < form_.k; ++c) {
      if (group(c) < 0 || group(c) >= form_.groups) {
        return hub_tensor_error(*tensors_.order, fmt::format("column {} is of group {}, of {}", c,
                                                             group(c), form_.groups));
      }
      order_[static_cast<size_t>(c)] = group(c);
    }
    return ok_status();
  }

  DType chosen_dtype() const {
    const bool blocks = order_.empty() && form_.group_columns() % kBlock == 0;
    if (!blocks) return DType::kF32;
    const bool symmetric = has_middle_zeros();
    if (form_.bits == 4) return symmetric ? DType::kQ4_0 : DType::kQ4_Z;
    return symmetric ? DType::kQ8_0 : DType::kF32;
  }

  bool has_middle_zeros() const {
    if (tensors_.zeros == nullptr || has_middle_words()) return true;
    for (int64_t row = 0; row < form_.n; ++row) {
      for (int64_t group = 0; group < form_.groups; ++group) {
        if (zero(row, group) != form_.middle()) return false;
      }
    }
    return true;
  }

  // The same of whole words, fast.
  bool has_middle_words() const {
    if (zero_bytes_) return false;
    const int stored = form_.middle() - (form_.zeros_less_one ? 1 : 0);
    const uint32_t all =
        static_cast<uint32_t>(stored) * (form_.bits == 4 ? 0x11111111 : 0x01010101);
    const int64_t words = tensors_.zeros->elements;
    for (int64_t i = 0; i < words; ++i) {
      if (zeros_.word(i) != all) return false;
    }
    return true;
  }

  // ---- numbers ----

  int64_t group_of(int64_t column) const {
    return order_.empty() ? column / form_.group_columns() : order_[static_cast<size_t>(column)];
  }

  int zero(int64_t row, int64_t group) const {
    if (zeros_.data == nullptr) return form_.middle();
    if (zero_bytes_) {
      return static_cast<int8_t>(zeros_.data[row * form_.zero_row_step + group]) + form_.middle();
    }
    const int64_t per_word = form_.per_word(), words = (form_.n + per_word - 1) / per_word;
    switch (form_.layout) {
      case QuantLayout::kDownColumns: {
        const int stored = zeros_.field(group * words + row / per_word, row % per_word);
        return form_.zeros_less_one ? (stored + 1) & ((1 << form_.bits) - 1) : stored;
      }
      case QuantLayout::kAlongRows:
        return zeros_.field(group * words + row / per_word,
                            kAwqPlaces[static_cast<size_t>(row % per_word)]);
      case QuantLayout::kWords:
      case QuantLayout::kBytes:
        return zeros_.field(row / per_word * form_.groups + group, row % per_word);
    }
    __builtin_unreachable();
  }

  // Of one column, unsigned.
  int quant(int64_t row, int64_t column) const {
    const int64_t per_word = form_.per_word();
    switch (form_.layout) {
      case QuantLayout::kDownColumns:
        return quants_.field(column / per_word * form_.n + row, column % per_word);
      case QuantLayout::kAlongRows:
        return quants_.field(column * (form_.n / per_word) + row / per_word,
                             kAwqPlaces[static_cast<size_t>(row % per_word)]);
      case QuantLayout::kWords:
        return quants_.field(row * words_of_row() + column / per_word, column % per_word);
      case QuantLayout::kBytes:
        return static_cast<int8_t>(quants_.data[row * form_.k + column]) + form_.middle();
    }
    __builtin_unreachable();
  }
  int64_t words_of_row() const { return (form_.k + form_.per_word() - 1) / form_.per_word(); }

  // ---- blocks of 32 columns from `column` on ----

  void write_block(int64_t row, int64_t column, std::byte* out) const {
    const int64_t group = column / form_.group_columns();
    const uint16_t scale = scales_.half_at(row, group);
    std::memcpy(out, &scale, 2);
    if (dtype_ == DType::kQ8_0) return write_bytes(row, column, out + 2);
    if (dtype_ == DType::kQ4_0) return write_nibbles(row, column, out + 2);
    out[2] = static_cast<std::byte>(zero(row, group));
    out[3] = std::byte{0};
    write_nibbles(row, column, out + 4);
  }

  // Byte j: column j in the low half, column j + 16 in the high one.
  void write_nibbles(int64_t row, int64_t column, std::byte* out) const {
    if (form_.layout == QuantLayout::kAlongRows) return write_awq_nibbles(row, column, out);
    uint32_t words[4];
    words_of(row, column, words);
    for (size_t i = 0; i < 2; ++i) {
      const uint64_t bytes = spread_nibbles(words[i]) | spread_nibbles(words[i + 2]) << 4;
      std::memcpy(out + i * 8, &bytes, 8);
    }
  }

  void write_awq_nibbles(int64_t row, int64_t column, std::byte* out) const {
    const int64_t stride = form_.n / 8, shift = kAwqPlaces[static_cast<size_t>(row % 8)] * 4;
    const int64_t first = column * stride + row / 8;
    for (int64_t j = 0; j < 16; ++j) {
      const uint32_t low = quants_.word(first + j * stride) >> shift & 15;
      const uint32_t high = quants_.word(first + (j + 16) * stride) >> shift & 15;
      out[j] = static_cast<std::byte>(low | high << 4);
    }
  }

  // Signed.
  void write_bytes(int64_t row, int64_t column, std::byte* out) const {
    if (form_.layout == QuantLayout::kBytes) {
      std::memcpy(out, quants_.data + row * form_.k + column, kBlockColumns);
      return;
    }
    uint32_t words[8];
    words_of(row, column, words);
    for (uint32_t& word : words) word ^= 0x80808080;
    std::memcpy(out, words, sizeof words);
  }

  // REQUIRES: words along the columns
  template <size_t kWords>
  void words_of(int64_t row, int64_t column, uint32_t (&words)[kWords]) const {
    const int64_t first = column / form_.per_word();
    for (size_t i = 0; i < kWords; ++i) {
      const int64_t at = first + static_cast<int64_t>(i);
      words[i] =
          quants_.word(form_.layout == QuantLayout::kDownColumns ? at * form_.n + row
                                                                 : row * words_of_row() + at);
    }
  }

  // ---- floats ----

  // Scale and zero point of each group of one row.
  struct RowGroups {
    std::vector<float> scales;
    std::vector<int> zeros;
  };
  RowGroups groups_of(int64_t row) const {
    RowGroups groups;
    for (int64_t g = 0; g < form_.groups; ++g) {
      groups.scales.push_back(scales_.at(row, g));
      groups.zeros.push_back(zero(row, g));
    }
    return groups;
  }

  void read_floats(std::span<const int64_t> rows, int64_t first_column, int64_t columns,
                   std::byte* out) const {
    std::vector<RowGroups> groups;
    for (const int64_t row : rows) groups.push_back(groups_of(row));
    for (int64_t c = 0; c < columns; c += kBlock) {
      const int64_t count = std::min(kBlock, columns - c);
      for (size_t r = 0; r < rows.size(); ++r) {
        std::byte* const at = out + (static_cast<int64_t>(r) * columns + c) * 4;
        write_floats(rows[r], first_column + c, count, groups[r], at);
      }
    }
  }

  // Up to a block.
  void write_floats(int64_t row, int64_t column, int64_t count, const RowGroups& groups,
                    std::byte* out) const {
    std::array<int, kBlockColumns> quants;
    read_quants(row, column, count, quants);
    std::array<float, kBlockColumns> values;
    for (int64_t i = 0; i < count; ++i) {
      const auto group = static_cast<size_t>(group_of(column + i)), at = static_cast<size_t>(i);
      values[at] = static_cast<float>(quants[at] - groups.zeros[group]) * groups.scales[group];
    }
    std::memcpy(out, values.data(), static_cast<size_t>(count) * 4);
  }

  // Unsigned.
  void read_quants(int64_t row, int64_t column, int64_t count,
                   std::array<int, kBlockColumns>& quants) const {
    if (count < kBlock || column % kBlock != 0) {
      for (int64_t i = 0; i < count; ++i) {
        quants[static_cast<size_t>(i)] = quant(row, column + i);
      }
      return;
    }
    std::array<std::byte, kBlockColumns> bytes;
    if (form_.bits == 4) {
      write_nibbles(row, column, bytes.data());
      for (size_t i = 0; i < 16; ++i) {
        quants[i] = static_cast<int>(bytes[i]) & 15;
        quants[i + 16] = static_cast<int>(bytes[i]) >> 4;
      }
      return;
    }
    write_bytes(row, column, bytes.data());
    for (size_t i = 0; i < kBlockColumns; ++i) {
      quants[i] = static_cast<int8_t>(bytes[i]) + form_.middle();
    }
  }

  const IntegerForm form_;
  const PackedNumbers quants_;
  PackedNumbers zeros_;
  bool zero_bytes_ = false;
  const HubScales scales_;
  mutable std::mutex mutex_;
  mutable bool prepared_ = false;
  mutable DType dtype_ = DType::kF32;
  mutable std::vector<int32_t> order_;  // the group of each column; empty: runs of columns
};

// ---- shapes -------------------------------------------------------------------------------------

// Holds the tensors of one matrix against each other.
class FormReader {
 public:
  FormReader(const HubTensors& tensors, const HubQuantisation& quantisation)
      : tensors_(tensors), quants_(*tensors.quants), quantisation_(quantisation) {}

  Result<IntegerForm> read() {
    const bool bytes = quants_.type->name == "I8";
    if (quants_.shape.rank() != 2 || quants_.elements == 0) {
      return hub_tensor_error(quants_,
                              fmt::format("shape {} is no matrix", quants_.shape.to_string()));
    }
    const bool may_be_bytes = quantisation_.method == HubMethod::kCompressedTensors;
    if (!(bytes && may_be_bytes) && quants_.type->name != "I32") return wrong_type(quants_, "I32");
    if (!HubScales::is_readable(*tensors_.scales)) return wrong_type(*tensors_.scales, "F16");
    if (tensors_.order != nullptr && tensors_.order->type->name != "I32") {
      return wrong_type(*tensors_.order, "I32");
    }
    switch (quantisation_.method) {
      case HubMethod::kGptq:
        HR_RETURN_IF_ERROR(gptq());
        break;
      case HubMethod::kAwq:
        awq();
        break;
      case HubMethod::kCompressedTensors:
      case HubMethod::kModelOpt:
      case HubMethod::kFp8:
      case HubMethod::kMxfp4:  // is read by names of its own
        HR_RETURN_IF_ERROR(bytes ? of_bytes() : packed());
    }
    HR_RETURN_IF_ERROR(check_scales());
    HR_RETURN_IF_ERROR(check_zeros());
    HR_RETURN_IF_ERROR(check_order());
    return form_;
  }

 private:
  Status wrong_type(const SafetensorsTensor& tensor, std::string_view wanted) const {
    return hub_tensor_error(tensor, fmt::format("type {}, expected {}", tensor.type->name, wanted));
  }
  Status wrong_shape(const SafetensorsTensor& tensor) const {
    return hub_tensor_error(
        tensor, fmt::format("shape {} does not go with {} bits of {} x {} in {} groups of columns",
                            tensor.shape.to_string(), form_.bits, form_.n, form_.k, form_.groups));
  }
  bool by_groups() const { return form_.layout <= QuantLayout::kAlongRows; }

  Status gptq() {
    const int64_t words = quants_.shape[0];
    form_ = {.layout = QuantLayout::kDownColumns,
             .bits = quantisation_.bits,
             .n = quants_.shape[1],
             .k = words * 32 / quantisation_.bits,
             .zeros_less_one = quantisation_.zeros_less_one};
    if (tensors_.order == nullptr) return ok_status();
    // Modules may have bits of their own, which the number of columns tells.
    form_.k = tensors_.order->elements;
    form_.bits = form_.k > 0 ? static_cast<int32_t>(words * 32 / form_.k) : 0;
    const bool known = form_.bits == 4 || form_.bits == 8;
    if (known && form_.k * form_.bits == words * 32) return ok_status();
    return hub_tensor_error(quants_, fmt::format("shape {} is no {} columns of 4 or 8 bits",
                                                 quants_.shape.to_string(), form_.k));
  }

  void awq() {
    form_ = {.layout = QuantLayout::kAlongRows,
             .bits = quantisation_.bits,
             .n = quants_.shape[1] * 32 / quantisation_.bits,
             .k = quants_.shape[0]};
  }

  Status packed() {
    if (tensors_.shape == nullptr) {
      return hub_tensor_error(quants_, "weight_shape is missing beside it");
    }
    HR_ASSIGN_OR_RETURN(const Shape shape, weight_shape(*tensors_.shape));
    form_ = {.layout = QuantLayout::kWords, .bits = 0, .n = shape[0], .k = shape[1]};
    for (const int32_t bits : {4, 8}) {
      if (quants_.shape == Shape{form_.n, (form_.k * bits + 31) / 32}) form_.bits = bits;
    }
    if (form_.bits != 0) return ok_status();
    return hub_tensor_error(quants_, fmt::format("shape {} is no {} of 4 or 8 bits",
                                                 quants_.shape.to_string(), shape.to_string()));
  }

  static Result<Shape> weight_shape(const SafetensorsTensor& tensor) {
    const bool wide = tensor.type->name == "I64";
    if (tensor.elements != 2 || (!wide && tensor.type->name != "I32")) {
      return hub_tensor_error(tensor, "is no pair of sizes");
    }
    int64_t sizes[2] = {};
    for (size_t i = 0; i < 2; ++i) {
      int32_t narrow = 0;
      if (wide) {
        std::memcpy(&sizes[i], tensor.bytes.data() + i * 8, 8);
      } else {
        std::memcpy(&narrow, tensor.bytes.data() + i * 4, 4);
        sizes[i] = narrow;
      }
      if (sizes[i] < 1 || sizes[i] > INT32_MAX) {
        return hub_tensor_error(tensor, "is no pair of sizes");
      }
    }
    return Shape{sizes[0], sizes[1]};
  }

  Status of_bytes() {
    form_ = {
        .layout = QuantLayout::kBytes, .bits = 8, .n = quants_.shape[0], .k = quants_.shape[1]};
    return ok_status();
  }

  // How many groups there are.
  Status check_scales() {
    const SafetensorsTensor& scales = *tensors_.scales;
    const Shape& shape = scales.shape;
    form_.groups = 1;
    if (by_groups()) {
      if (shape.rank() != 2 || shape[1] != form_.n) return wrong_shape(scales);
      form_.groups = shape[0];
      form_.scale_row_step = 1;
      form_.scale_group_step = form_.n;
    } else if (scales.elements == 1) {
      form_.scale_row_step = form_.scale_group_step = 0;
    } else {
      if (shape != Shape{form_.n} && (shape.rank() != 2 || shape[0] != form_.n)) {
        return wrong_shape(scales);
      }
      if (shape.rank() == 2) form_.groups = shape[1];
      form_.scale_row_step = form_.groups;
      form_.scale_group_step = 1;
    }
    if (form_.groups > 0 && form_.k % form_.groups == 0) return ok_status();
    // The last group is a short one; their size is a power of two.
    for (int64_t size = 16; by_groups() && size < form_.k; size *= 2) {
      if ((form_.k + size - 1) / size != form_.groups) continue;
      form_.group_size = size;
      return ok_status();
    }
    return wrong_shape(scales);
  }

  Status check_zeros() {
    if (tensors_.zeros == nullptr) {
      if (quantisation_.method != HubMethod::kGptq) return ok_status();
      return hub_tensor_error(quants_, "qzeros is missing beside it");
    }
    const SafetensorsTensor& zeros = *tensors_.zeros;
    const int64_t words = (form_.n * form_.bits + 31) / 32;
    if (by_groups()) {
      if (zeros.type->name != "I32") return wrong_type(zeros, "I32");
      if (zeros.shape != Shape{form_.groups, words}) return wrong_shape(zeros);
      return ok_status();
    }
    if (zeros.type->name == "I8") {
      form_.zero_row_step = form_.scale_row_step;
      const int64_t rows = form_.scale_row_step == 0 ? 1 : form_.n;
      return zeros.elements == rows * form_.groups ? ok_status() : wrong_shape(zeros);
    }
    if (zeros.type->name != "I32") return wrong_type(zeros, "I8 or I32");
    if (zeros.shape != Shape{words, form_.groups}) return wrong_shape(zeros);
    return ok_status();
  }

  Status check_order() const {
    if (tensors_.order == nullptr || tensors_.order->elements == form_.k) return ok_status();
    return wrong_shape(*tensors_.order);
  }

  const HubTensors& tensors_;
  const SafetensorsTensor& quants_;
  const HubQuantisation& quantisation_;
  IntegerForm form_{};
};

std::string type_name(HubMethod method, const IntegerForm& form) {
  const std::string_view maker = method == HubMethod::kGptq  ? "GPTQ-"
                                 : method == HubMethod::kAwq ? "AWQ-"
                                                             : "";
  const std::string group = form.groups > 1            ? fmt::format("g{}", form.group_columns())
                            : form.scale_row_step == 0 ? std::string("tensor")
                                                       : std::string("channel");
  return fmt::format("{}INT{}-{}", maker, form.bits, group);
}

}  // namespace

Result<std::unique_ptr<HubMatrix>> open_hub_integers(const HubTensors& tensors,
                                                     const HubQuantisation& quantisation) {
  HR_ASSIGN_OR_RETURN(const IntegerForm form, FormReader(tensors, quantisation).read());
  return std::unique_ptr<HubMatrix>(
      std::make_unique<IntegerMatrix>(tensors, form, type_name(quantisation.method, form)));
}

}  // namespace headrace
