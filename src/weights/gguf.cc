#include "weights/gguf.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace headrace {
namespace {

template <class T>
T read_at(std::span<const std::byte> bytes, size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// The index in `order` of the item of that name, by binary search.
template <class Item>
const Item* find_by_name(const std::vector<Item>& items, const std::vector<uint32_t>& order,
                         std::string_view Item::*name, std::string_view wanted) {
  const auto at =
      std::lower_bound(order.begin(), order.end(), wanted,
                       [&](uint32_t i, std::string_view text) { return items[i].*name < text; });
  return at != order.end() && items[*at].*name == wanted ? &items[*at] : nullptr;
}

}  // namespace

std::string_view gguf_value_type_name(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
      return "uint8";
    case GgufValueType::kInt8:
      return "int8";
    case GgufValueType::kUint16:
      return "uint16";
    case GgufValueType::kInt16:
      return "int16";
    case GgufValueType::kUint32:
      return "uint32";
    case GgufValueType::kInt32:
      return "int32";
    case GgufValueType::kFloat32:
      return "float32";
    case GgufValueType::kBool:
      return "bool";
    case GgufValueType::kString:
      return "string";
    case GgufValueType::kArray:
      return "array";
    case GgufValueType::kUint64:
      return "uint64";
    case GgufValueType::kInt64:
      return "int64";
    case GgufValueType::kFloat64:
      return "float64";
  }
  return "unknown";
}

size_t gguf_value_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

std::string printable(std::string_view text) {
  constexpr size_t kShownMax = 80;
  std::string shown;
  for (const char c : text.substr(0, kShownMax)) {
    if (c >= ' ' && c <= '~') {
      shown += c;
    } else {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kShownMax) shown += "...";
  return shown;
}

std::string_view GgufStrings::Iterator::operator*() const {
  uint64_t length;
  std::memcpy(&length, at_, sizeof(length));
  return {reinterpret_cast<const char*>(at_) + sizeof(length), length};
}

GgufStrings::Iterator& GgufStrings::Iterator::operator++() {
  at_ += sizeof(uint64_t) + (**this).size();
  return *this;
}

std::optional<int64_t> GgufArray::int_at(size_t i) const {
  CHECK(i < size_);
  switch (element_type_) {
    case GgufValueType::kBool:
    case GgufValueType::kUint8:
      return read_at<uint8_t>(bytes_, i);
    case GgufValueType::kInt8:
      return read_at<int8_t>(bytes_, i);
    case GgufValueType::kUint16:
      return read_at<uint16_t>(bytes_, i);
    case GgufValueType::kInt16:
      return read_at<int16_t>(bytes_, i);
    case GgufValueType::kUint32:
      return read_at<uint32_t>(bytes_, i);
    case GgufValueType::kInt32:
      return read_at<int32_t>(bytes_, i);
    case GgufValueType::kInt64:
      return read_at<int64_t>(bytes_, i);
    case GgufValueType::kUint64: {
      const auto value = read_at<uint64_t>(bytes_, i);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufArray::float_at(size_t i) const {
  CHECK(i < size_);
  switch (element_type_) {
    case GgufValueType::kFloat32:
      return read_at<float>(bytes_, i);
    case GgufValueType::kFloat64:
      return read_at<double>(bytes_, i);
    default: {
      const auto value = int_at(i);
      return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
    }
  }
}

GgufStrings GgufArray::strings() const {
  CHECK(element_type_ == GgufValueType::kString);
  return GgufStrings(bytes_, size_);
}

GgufFile::GgufFile(std::string name, size_t file_bytes, GgufPlan plan,
                   std::shared_ptr<MappedFile> mapping)
    : name_(std::move(name)), file_bytes_(file_bytes), plan_(std::move(plan)) {
  if (mapping != nullptr) mappings_.push_back(std::move(mapping));
}

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::string& path) {
  HR_ASSIGN_OR_RETURN(std::shared_ptr<GgufFile> file, open_part(path));
  HR_ASSIGN_OR_RETURN(const auto split, file->split());
  if (!split) return std::shared_ptr<const GgufFile>(std::move(file));
  HR_ASSIGN_OR_RETURN(std::shared_ptr<GgufFile> whole, open_parts(path, *split));
  return std::shared_ptr<const GgufFile>(std::move(whole));
}

Result<std::shared_ptr<GgufFile>> GgufFile::open_part(const std::string& path) {
  HR_ASSIGN_OR_RETURN(auto mapping, MappedFile::open(path));
  HR_ASSIGN_OR_RETURN(GgufPlan plan, parse_gguf(mapping->bytes(), path));
  const size_t size = mapping->bytes().size();
  return std::shared_ptr<GgufFile>(new GgufFile(path, size, std::move(plan), std::move(mapping)));
}

Result<std::shared_ptr<const GgufFile>> GgufFile::from_memory(std::span<const std::byte> bytes,
                                                              std::string name) {
  HR_ASSIGN_OR_RETURN(GgufPlan plan, parse_gguf(bytes, name));
  return std::shared_ptr<const GgufFile>(
      new GgufFile(std::move(name), bytes.size(), std::move(plan), nullptr));
}

const GgufEntry* GgufFile::find(std::string_view key) const {
  return find_by_name(plan_.entries, plan_.entries_by_key, &GgufEntry::key, key);
}

const GgufTensor* GgufFile::find_tensor(std::string_view tensor_name) const {
  return find_by_name(plan_.tensors, plan_.tensors_by_name, &GgufTensor::name, tensor_name);
}

Status GgufFile::corrupt_field(std::string_view field, std::string_view what) const {
  return corrupt(fmt::format("{}: {}: {}", name_, field, what), std::string(field));
}

Status GgufFile::unsupported_field(std::string_view field, std::string_view what) const {
  return unsupported(fmt::format("{}: {}: {}", name_, field, what), std::string(field));
}

template <class T>
Result<std::optional<T>> GgufFile::optional_value(std::string_view key,
                                                  std::string_view expected) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return std::optional<T>();
  if (const T* value = std::get_if<T>(&entry->value)) return std::optional<T>(*value);
  if (std::holds_alternative<uint64_t>(entry->value)) {
    return corrupt_field(key,
                         fmt::format("{} is beyond 63 bits", std::get<uint64_t>(entry->value)));
  }
  return corrupt_field(
      key, fmt::format("is {}, expected {}", gguf_value_type_name(entry->type), expected));
}

Result<std::optional<int64_t>> GgufFile::optional_int(std::string_view key) const {
  return optional_value<int64_t>(key, "an integer");
}
Result<std::optional<bool>> GgufFile::optional_bool(std::string_view key) const {
  return optional_value<bool>(key, "a bool");
}
Result<std::optional<std::string_view>> GgufFile::optional_string(std::string_view key) const {
  return optional_value<std::string_view>(key, "a string");
}
Result<std::optional<GgufArray>> GgufFile::optional_array(std::string_view key) const {
  return optional_value<GgufArray>(key, "an array");
}

Result<std::optional<double>> GgufFile::optional_float(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry != nullptr && std::holds_alternative<int64_t>(entry->value)) {
    return std::optional<double>(static_cast<double>(std::get<int64_t>(entry->value)));
  }
  return optional_value<double>(key, "a number");
}

Result<int64_t> GgufFile::require_int(std::string_view key) const {
  HR_ASSIGN_OR_RETURN(const auto value, optional_int(key));
  if (!value) return corrupt_field(key, "missing");
  return *value;
}
Result<double> GgufFile::require_float(std::string_view key) const {
  HR_ASSIGN_OR_RETURN(const auto value, optional_float(key));
  if (!value) return corrupt_field(key, "missing");
  return *value;
}
Result<std::string_view> GgufFile::require_string(std::string_view key) const {
  HR_ASSIGN_OR_RETURN(const auto value, optional_string(key));
  if (!value) return corrupt_field(key, "missing");
  return *value;
}
Result<GgufStrings> GgufFile::require_strings(std::string_view key) const {
  HR_ASSIGN_OR_RETURN(const auto value, optional_array(key));
  if (!value) return corrupt_field(key, "missing");
  if (value->element_type() != GgufValueType::kString) {
    return corrupt_field(key, fmt::format("is an array of {}, expected strings",
                                          gguf_value_type_name(value->element_type())));
  }
  return value->strings();
}

Result<ConstTensorView> GgufFile::view(const GgufTensor& tensor) const {
  if (!tensor.type->dtype) {
    return unsupported(fmt::format("{}: tensor {}: type {} is not supported yet", name_,
                                   printable(tensor.name), tensor.type->name),
                       std::string(tensor.name));
  }
  return ConstTensorView(tensor.bytes.data(), *tensor.type->dtype, tensor.shape);
}

void GgufFile::release(std::span<const std::byte> bytes) const {
  for (const auto& mapping : mappings_) {
    const auto whole = mapping->bytes();
    if (bytes.data() >= whole.data() && bytes.data() < whole.data() + whole.size()) {
      return mapping->release(bytes);
    }
  }
}

std::vector<std::string> GgufFile::paths() const {
  std::vector<std::string> paths;
  for (const auto& mapping : mappings_) paths.push_back(mapping->path());
  return paths;
}

void GgufFile::release_all() const {
  for (const auto& mapping : mappings_) mapping->release(mapping->bytes());
}

}  // namespace headrace
