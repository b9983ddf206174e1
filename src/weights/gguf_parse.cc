// From bytes to a checked GgufPlan, in the order of the file: header, metadata, tensor table, data.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "weights/gguf.h"
#include "weights/git_lfs.h"

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF fields are read in place");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kAlignmentMin = 8;  // the format's; also what reading floats in place needs
constexpr uint64_t kKeyBytesMax = 65535;
constexpr uint64_t kTensorNameBytesMax = 128;  // ggml's largest build-time setting
// Smallest forms in a file: key length, one character, type, one byte of value; name length, one
// character, dimension count, one dimension, type, offset.
constexpr uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 8 + 4 + 8;
constexpr std::string_view kAlignmentKey = "general.alignment";

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  Result<GgufPlan> parse() {
    uint64_t entry_count = 0, tensor_count = 0;
    HR_RETURN_IF_ERROR(parse_header(entry_count, tensor_count));
    HR_RETURN_IF_ERROR(parse_entries(entry_count));
    HR_RETURN_IF_ERROR(find_alignment());
    HR_RETURN_IF_ERROR(parse_tensors(tensor_count));
    HR_RETURN_IF_ERROR(place_tensors());
    HR_RETURN_IF_ERROR(check_overlap());
    return std::move(plan_);
  }

 private:
  // ---- errors: "file: field: what"
  Status corrupt_at(std::string_view field, std::string_view what) const {
    return corrupt(fmt::format("{}: {}: {}", name_, field, what), std::string(field));
  }
  Status unsupported_at(std::string_view field, std::string_view what) const {
    return unsupported(fmt::format("{}: {}: {}", name_, field, what), std::string(field));
  }
  Status truncated_at(std::string_view field, uint64_t needed) const {
    return corrupt_at(
        field, fmt::format("file ends at byte {}, inside this field ({} of its {} bytes are there)",
                           bytes_.size(), remaining(), needed));
  }

  // ---- the cursor
  uint64_t remaining() const { return bytes_.size() - position_; }

  template <class T>
  Status read(std::string_view field, T& value) {
    if (remaining() < sizeof(T)) return truncated_at(field, sizeof(T));
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return ok_status();
  }

  Status read_string(std::string_view field, std::string_view& text) {
    uint64_t length = 0;
    HR_RETURN_IF_ERROR(read(field, length));
    if (length > remaining()) {
      return corrupt_at(
          field, fmt::format("string length {} is more than the {} bytes left in the file", length,
                             remaining()));
    }
    text = {reinterpret_cast<const char*>(bytes_.data()) + position_, length};
    position_ += length;
    return ok_status();
  }

  // A count of things that take at least `bytes_min` each.
  Status check_count(std::string_view field, uint64_t count, uint64_t bytes_min,
                     uint64_t count_max) const {
    if (count > remaining() / bytes_min) {
      return corrupt_at(
          field,
          fmt::format("{} entries need at least {} bytes each, {} bytes are left in the file",
                      count, bytes_min, remaining()));
    }
    if (count > count_max) {
      return unsupported_at(field,
                            fmt::format("{} entries are over the limit of {}", count, count_max));
    }
    return ok_status();
  }

  // ---- header
  Status parse_header(uint64_t& entry_count, uint64_t& tensor_count) {
    if (is_git_lfs_pointer(bytes_)) return corrupt(fmt::format("{}: {}", name_, kGitLfsProblem));
    uint32_t magic = 0;
    HR_RETURN_IF_ERROR(read("magic", magic));
    if (magic != kMagic)
      return corrupt_at("magic", "not a GGUF file (the first four bytes are not \"GGUF\")");
    HR_RETURN_IF_ERROR(read("version", plan_.version));
    if (plan_.version == 0x02000000 || plan_.version == 0x03000000) {
      return unsupported_at("version", "big-endian GGUF files are not supported");
    }
    if (plan_.version != 2 && plan_.version != 3) {
      return unsupported_at(
          "version", fmt::format("GGUF version {} is not supported (2 and 3 are)", plan_.version));
    }
    HR_RETURN_IF_ERROR(read("tensor_count", tensor_count));
    HR_RETURN_IF_ERROR(read("metadata_kv_count", entry_count));
    HR_RETURN_IF_ERROR(check_count("metadata_kv_count", entry_count, kEntryBytesMin, kGgufKeysMax));
    return check_count("tensor_count", tensor_count, kTensorBytesMin, kGgufTensorsMax);
  }

  // ---- metadata
  Status parse_entries(uint64_t count) {
    plan_.entries.reserve(count);
    for (uint64_t i = 0; i < count; ++i) HR_RETURN_IF_ERROR(parse_entry(i));
    return index_names(plan_.entries, plan_.entries_by_key, &GgufEntry::key, "metadata key");
  }

  Status parse_entry(uint64_t index) {
    const std::string ordinal = fmt::format("metadata key {}", index);
    const uint64_t first = position_;
    std::string_view key;
    HR_RETURN_IF_ERROR(read_string(ordinal, key));
    if (key.empty()) return corrupt_at(ordinal, "the key is empty");
    if (key.size() > kKeyBytesMax) {
      return corrupt_at(ordinal, fmt::format("the key has {} bytes, the format allows {}",
                                             key.size(), kKeyBytesMax));
    }
    const std::string field = printable(key);
    uint32_t type = 0;
    HR_RETURN_IF_ERROR(read(field, type));
    if (type > static_cast<uint32_t>(GgufValueType::kFloat64)) {
      return corrupt_at(field, fmt::format("value type {} does not exist", type));
    }
    GgufEntry entry{key, static_cast<GgufValueType>(type), int64_t{0}};
    HR_RETURN_IF_ERROR(parse_value(field, entry.type, entry.value));
    entry.bytes = bytes_.subspan(first, position_ - first);
    plan_.entries.push_back(std::move(entry));
    return ok_status();
  }

  template <class T, class Wide>
  Status parse_scalar(std::string_view field, GgufValue& value) {
    T scalar{};
    HR_RETURN_IF_ERROR(read(field, scalar));
    value = static_cast<Wide>(scalar);
    return ok_status();
  }

  Status parse_value(std::string_view field, GgufValueType type, GgufValue& value) {
    switch (type) {
      case GgufValueType::kUint8:
        return parse_scalar<uint8_t, int64_t>(field, value);
      case GgufValueType::kInt8:
        return parse_scalar<int8_t, int64_t>(field, value);
      case GgufValueType::kUint16:
        return parse_scalar<uint16_t, int64_t>(field, value);
      case GgufValueType::kInt16:
        return parse_scalar<int16_t, int64_t>(field, value);
      case GgufValueType::kUint32:
        return parse_scalar<uint32_t, int64_t>(field, value);
      case GgufValueType::kInt32:
        return parse_scalar<int32_t, int64_t>(field, value);
      case GgufValueType::kInt64:
        return parse_scalar<int64_t, int64_t>(field, value);
      case GgufValueType::kFloat32:
        return parse_scalar<float, double>(field, value);
      case GgufValueType::kFloat64:
        return parse_scalar<double, double>(field, value);
      case GgufValueType::kUint64:
        return parse_uint64(field, value);
      case GgufValueType::kBool:
        return parse_bool(field, value);
      case GgufValueType::kString: {
        std::string_view text;
        HR_RETURN_IF_ERROR(read_string(field, text));
        value = text;
        return ok_status();
      }
      case GgufValueType::kArray:
        return parse_array(field, value);
    }
    CHECK_MSG(false, "parse_entry() checked the type");
    return ok_status();
  }

  Status parse_uint64(std::string_view field, GgufValue& value) {
    uint64_t scalar = 0;
    HR_RETURN_IF_ERROR(read(field, scalar));
    if (scalar <= static_cast<uint64_t>(INT64_MAX)) {
      value = static_cast<int64_t>(scalar);
    } else {
      value = scalar;
    }
    return ok_status();
  }

  Status parse_bool(std::string_view field, GgufValue& value) {
    uint8_t byte = 0;
    HR_RETURN_IF_ERROR(read(field, byte));
    if (byte > 1) return corrupt_at(field, fmt::format("a bool is 0 or 1, not {}", byte));
    value = byte == 1;
    return ok_status();
  }

  Status parse_array(std::string_view field, GgufValue& value) {
    uint32_t raw_type = 0;
    uint64_t count = 0;
    HR_RETURN_IF_ERROR(read(field, raw_type));
    HR_RETURN_IF_ERROR(read(field, count));
    const auto type = static_cast<GgufValueType>(raw_type);
    if (raw_type > static_cast<uint32_t>(GgufValueType::kFloat64)) {
      return corrupt_at(field, fmt::format("array element type {} does not exist", raw_type));
    }
    if (type == GgufValueType::kArray) {
      return unsupported_at(field, "an array of arrays is not supported (no known key has one)");
    }
    const uint64_t element_bytes = type == GgufValueType::kString ? 8 : gguf_value_bytes(type);
    if (count > remaining() / element_bytes) {
      return corrupt_at(
          field, fmt::format("array of {} x {} needs more than the {} bytes left in the file",
                             count, gguf_value_type_name(type), remaining()));
    }
    const uint64_t first = position_;
    if (type == GgufValueType::kString) {
      HR_RETURN_IF_ERROR(skip_strings(field, count));
    } else {
      position_ += count * element_bytes;
    }
    const auto elements = bytes_.subspan(first, position_ - first);
    if (type == GgufValueType::kBool) HR_RETURN_IF_ERROR(check_bools(field, elements));
    value = GgufArray(type, elements, count);
    return ok_status();
  }

  Status skip_strings(std::string_view field, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t length = 0;
      if (remaining() < sizeof(length)) {
        return corrupt_at(field, fmt::format("file ends before element {} of {}", i, count));
      }
      std::memcpy(&length, bytes_.data() + position_, sizeof(length));
      position_ += sizeof(length);
      if (length > remaining()) {
        return corrupt_at(
            field, fmt::format("element {} has length {}, {} bytes are left in the file", i, length,
                               remaining()));
      }
      position_ += length;
    }
    return ok_status();
  }

  Status check_bools(std::string_view field, std::span<const std::byte> elements) const {
    for (size_t i = 0; i < elements.size(); ++i) {
      if (elements[i] > std::byte{1}) {
        return corrupt_at(field, fmt::format("element {} of a bool array is {}", i,
                                             static_cast<int>(elements[i])));
      }
    }
    return ok_status();
  }

  // Fills `order` with the indices of `items` sorted by name and refuses two of one name.
  template <class Item>
  Status index_names(const std::vector<Item>& items, std::vector<uint32_t>& order,
                     std::string_view Item::*name, std::string_view what) const {
    order.resize(items.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return items[a].*name < items[b].*name; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (items[order[i]].*name == items[order[i - 1]].*name) {
        return corrupt_at(printable(items[order[i]].*name),
                          fmt::format("this {} is there twice", what));
      }
    }
    return ok_status();
  }

  Status find_alignment() {
    plan_.alignment = kDefaultAlignment;
    for (const GgufEntry& entry : plan_.entries) {
      if (entry.key != kAlignmentKey) continue;
      if (const auto* large = std::get_if<uint64_t>(&entry.value)) {
        return corrupt_at(kAlignmentKey, fmt::format("{} is beyond 63 bits", *large));
      }
      const auto* value = std::get_if<int64_t>(&entry.value);
      if (value == nullptr) {
        return corrupt_at(kAlignmentKey, fmt::format("is {}, expected an integer",
                                                     gguf_value_type_name(entry.type)));
      }
      const auto alignment = static_cast<uint64_t>(*value);
      if (*value <= 0 || !std::has_single_bit(alignment) || alignment < kAlignmentMin) {
        return corrupt_at(kAlignmentKey, fmt::format("{} is no power of two of at least {}", *value,
                                                     kAlignmentMin));
      }
      plan_.alignment = alignment;
    }
    return ok_status();
  }

  // ---- tensor table
  Status parse_tensors(uint64_t count) {
    HR_RETURN_IF_ERROR(check_count("tensor_count", count, kTensorBytesMin, kGgufTensorsMax));
    plan_.tensors.reserve(count);
    offsets_.reserve(count);
    for (uint64_t i = 0; i < count; ++i) HR_RETURN_IF_ERROR(parse_tensor(i));
    return index_names(plan_.tensors, plan_.tensors_by_name, &GgufTensor::name, "tensor name");
  }

  Status parse_tensor(uint64_t index) {
    const std::string ordinal = fmt::format("tensor {}", index);
    GgufTensor tensor{};
    HR_RETURN_IF_ERROR(read_string(ordinal, tensor.name));
    if (tensor.name.empty()) return corrupt_at(ordinal, "the name is empty");
    if (tensor.name.size() > kTensorNameBytesMax) {
      return corrupt_at(ordinal, fmt::format("the name has {} bytes, {} are allowed",
                                             tensor.name.size(), kTensorNameBytesMax));
    }
    const std::string field = "tensor " + printable(tensor.name);
    HR_RETURN_IF_ERROR(parse_shape(field, tensor.shape));
    uint32_t type = 0;
    uint64_t offset = 0;
    HR_RETURN_IF_ERROR(read(field + " type", type));
    HR_RETURN_IF_ERROR(read(field + " offset", offset));
    tensor.type = find_gguf_type(type);
    if (tensor.type == nullptr)
      return unsupported_at(field, fmt::format("type {} is not known", type));
    if (tensor.type->block_elements == 0) {
      return unsupported_at(field,
                            fmt::format("type {} was removed from the format", tensor.type->name));
    }
    plan_.tensors.push_back(tensor);
    offsets_.push_back(offset);
    return ok_status();
  }

  Status parse_shape(const std::string& field, Shape& shape) {
    uint32_t rank = 0;
    HR_RETURN_IF_ERROR(read(field + " dimension count", rank));
    if (rank < 1 || rank > Shape::kRankMax) {
      return corrupt_at(field,
                        fmt::format("{} dimensions (1 to {} are allowed)", rank, Shape::kRankMax));
    }
    std::array<int64_t, Shape::kRankMax> dims{};  // the file's first is the innermost
    for (uint32_t i = 0; i < rank; ++i) {
      uint64_t ne = 0;
      HR_RETURN_IF_ERROR(read(field + " dimensions", ne));
      if (ne == 0 || ne > static_cast<uint64_t>(INT64_MAX)) {
        return corrupt_at(field, fmt::format("dimension {} is {}", i, ne));
      }
      dims[rank - 1 - i] = static_cast<int64_t>(ne);
    }
    shape = Shape(std::span<const int64_t>(dims.data(), rank));
    return ok_status();
  }

  // ---- tensor data
  Status place_tensors() {
    const uint64_t mask = plan_.alignment - 1;
    plan_.data_offset = (position_ + mask) & ~mask;  // no overflow: both are below 2^63
    const uint64_t data_bytes =
        plan_.data_offset <= bytes_.size() ? bytes_.size() - plan_.data_offset : 0;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      HR_RETURN_IF_ERROR(place_tensor(plan_.tensors[i], offsets_[i], data_bytes));
    }
    return ok_status();
  }

  Status place_tensor(GgufTensor& tensor, uint64_t offset, uint64_t data_bytes) const {
    const std::string field = "tensor " + printable(tensor.name);
    const auto elements = tensor.shape.elements();
    if (!elements) {
      return corrupt_at(field, fmt::format("shape {} has more elements than 63 bits count",
                                           tensor.shape.to_string()));
    }
    tensor.elements = *elements;
    const int64_t row = tensor.shape[tensor.shape.rank() - 1];
    if (row % tensor.type->block_elements != 0) {
      return corrupt_at(
          field, fmt::format("rows of {} elements are no whole number of {} blocks of {}", row,
                             tensor.type->name, tensor.type->block_elements));
    }
    const auto bytes = gguf_tensor_bytes(*tensor.type, tensor.shape);
    if (!bytes) {
      return corrupt_at(field, fmt::format("shape {} of type {} has more bytes than 63 bits count",
                                           tensor.shape.to_string(), tensor.type->name));
    }
    const int64_t size = *bytes;
    if (offset % plan_.alignment != 0) {
      return corrupt_at(field, fmt::format("offset {} is no multiple of the alignment {}", offset,
                                           plan_.alignment));
    }
    if (offset > data_bytes || static_cast<uint64_t>(size) > data_bytes - offset) {
      return corrupt_at(
          field,
          fmt::format("{} bytes at offset {} leave the file, which has {} bytes of tensor data",
                      size, offset, data_bytes));
    }
    tensor.bytes = bytes_.subspan(plan_.data_offset + offset, static_cast<uint64_t>(size));
    return ok_status();
  }

  Status check_overlap() const {
    std::vector<uint32_t> order(plan_.tensors.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return offsets_[a] < offsets_[b]; });
    for (size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = plan_.tensors[order[i - 1]];
      const GgufTensor& tensor = plan_.tensors[order[i]];
      if (offsets_[order[i]] < offsets_[order[i - 1]] + before.bytes.size()) {
        return corrupt_at("tensor " + printable(tensor.name),
                          fmt::format("its data overlaps tensor {}", printable(before.name)));
      }
    }
    return ok_status();
  }

  std::span<const std::byte> bytes_;
  std::string_view name_;
  uint64_t position_ = 0;  // <= bytes_.size()
  GgufPlan plan_;
  std::vector<uint64_t> offsets_;  // of plan_.tensors, as the file has them
};

}  // namespace

std::optional<int64_t> gguf_tensor_bytes(const GgufType& type, const Shape& shape) {
  const auto elements = shape.elements();
  const int64_t row = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  if (!elements || type.block_elements == 0 || row % type.block_elements != 0) return {};
  int64_t bytes = 0;
  if (__builtin_mul_overflow(*elements / type.block_elements, int64_t{type.block_bytes}, &bytes)) {
    return {};
  }
  return bytes;
}

Result<GgufPlan> parse_gguf(std::span<const std::byte> bytes, std::string_view name) {
  return Parser(bytes, name).parse();
}

}  // namespace headrace
