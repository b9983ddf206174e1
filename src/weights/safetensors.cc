#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "base/json.h"
#include "weights/gguf.h"
#include "weights/git_lfs.h"

namespace headrace {
namespace {

// Of a tensor; those behind the fourth are one with it, as in the convolutions of models that also
// see, which nothing here reads.
constexpr size_t kDimensionsMax = 8;
class Dimensions {
 public:
  void add(int64_t dim) {
    if (count_ < sizes_.size()) {
      sizes_[count_++] = dim;
      return;
    }
    int64_t& last = sizes_.back();
    last = last > 0 && dim > INT64_MAX / last ? INT64_MAX : last * dim;
  }
  Shape shape() const { return Shape(std::span<const int64_t>(sizes_.data(), count_)); }

 private:
  std::array<int64_t, Shape::kRankMax> sizes_{};
  size_t count_ = 0;
};

static_assert(std::endian::native == std::endian::little, "files are little-endian");

constexpr size_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";

constexpr auto kSafetensorsTypes = std::to_array<SafetensorsType>({
    {"F64", 64, {}},          {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16}, {"BF16", 16, DType::kBF16},
    {"I64", 64, {}},          {"I32", 32, {}},
    {"I16", 16, {}},          {"I8", 8, {}},
    {"U64", 64, {}},          {"U32", 32, {}},
    {"U16", 16, {}},          {"U8", 8, {}},
    {"BOOL", 8, {}},          {"C64", 64, {}},
    {"F8_E5M2", 8, {}},       {"F8_E4M3", 8, {}},
    {"F8_E8M0", 8, {}},       {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},       {"F4", 4, {}},
});

// The file's layout, before the header is read.
struct Layout {
  std::string_view header;
  std::span<const std::byte> data;
};

class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> bytes, std::string_view name)
      : bytes_(bytes), name_(name) {}

  Result<SafetensorsPlan> parse() {
    HR_ASSIGN_OR_RETURN(const Layout layout, find_header());
    data_ = layout.data;
    HR_ASSIGN_OR_RETURN(const Json header, parse_header(layout.header));
    for (const auto& [key, value] : header.as_object()) {
      HR_RETURN_IF_ERROR(key == kMetadata ? parse_metadata(value) : parse_tensor(key, value));
    }
    HR_RETURN_IF_ERROR(check_tiling());
    std::sort(plan_.tensors.begin(), plan_.tensors.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return std::move(plan_);
  }

 private:
  Status corrupt_at(std::string_view field, std::string_view what) const {
    return corrupt(fmt::format("{}: {}: {}", name_, field, what), std::string(field));
  }
  Status unsupported_at(std::string_view field, std::string_view what) const {
    return unsupported(fmt::format("{}: {}: {}", name_, field, what), std::string(field));
  }

  Result<Layout> find_header() const {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    if (is_git_lfs_pointer(bytes_)) return corrupt(fmt::format("{}: {}", name_, kGitLfsProblem));
    if (bytes_.size() < kLengthBytes) {
      return corrupt_at("header length", fmt::format("the file has {} bytes", bytes_.size()));
    }
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), kLengthBytes);
    const uint64_t left = bytes_.size() - kLengthBytes;
    if (length > kSafetensorsHeaderBytesMax) {
      return corrupt_at("header length", fmt::format("{} bytes, at most {} are allowed", length,
                                                     kSafetensorsHeaderBytesMax));
    }
    if (length > left) {
      return corrupt_at("header length",
                        fmt::format("{} bytes, the file has {} more", length, left));
    }
    const std::string_view header = text.substr(kLengthBytes, length);
    if (!header.starts_with('{')) return corrupt_at("header", "does not start with '{'");
    return Layout{header, bytes_.subspan(kLengthBytes + length)};
  }

  Result<Json> parse_header(std::string_view text) const {
    // Four members and eight numbers for each tensor are more than any needs.
    constexpr JsonLimits kLimits{.depth_max = 3,
                                 .key_count_max = 4 * kSafetensorsTensorsMax,
                                 .element_count_max = 8 * kSafetensorsTensorsMax};
    auto json = parse_json(text, kLimits);
    if (!json.ok()) return corrupt_at("header", json.status().message());
    if (!json->is_object()) return corrupt_at("header", "is no JSON object");
    if (json->as_object().size() > kSafetensorsTensorsMax) {
      return corrupt_at("header", fmt::format("{} tensors, at most {} are allowed",
                                              json->as_object().size(), kSafetensorsTensorsMax));
    }
    return json;
  }

  Status parse_metadata(const Json& metadata) {
    if (!metadata.is_object()) return corrupt_at(kMetadata, "is no JSON object");
    for (const auto& [key, value] : metadata.as_object()) {
      if (!value.is_string()) {
        return corrupt_at(kMetadata, fmt::format("{} is {}, expected a string", printable(key),
                                                 value.type_name()));
      }
      if (key == "format") plan_.format = value.as_string();
    }
    return ok_status();
  }

  Status parse_tensor(const std::string& key, const Json& json) {
    const std::string field = "tensor " + printable(key);
    if (key.empty()) return corrupt_at("header", "a tensor's name is empty");
    if (!json.is_object()) return corrupt_at(field, "is no JSON object");
    for (const auto& [member, value] : json.as_object()) {
      if (member != "dtype" && member != "shape" && member != "data_offsets") {
        return corrupt_at(field, fmt::format("member {} is not of the format", printable(member)));
      }
    }
    SafetensorsTensor tensor{.name = key, .type = nullptr, .shape = {}, .elements = 0, .bytes = {}};
    HR_RETURN_IF_ERROR(parse_type(field, json.find("dtype"), tensor));
    HR_RETURN_IF_ERROR(parse_shape(field, json.find("shape"), tensor));
    HR_RETURN_IF_ERROR(place(field, json.find("data_offsets"), tensor));
    plan_.tensors.push_back(std::move(tensor));
    return ok_status();
  }

  Status parse_type(const std::string& field, const Json* json, SafetensorsTensor& tensor) const {
    if (json == nullptr || !json->is_string()) return corrupt_at(field, "dtype is no string");
    tensor.type = find_safetensors_type(json->as_string());
    if (tensor.type == nullptr) {
      return unsupported_at(field,
                            fmt::format("type {} is not known", printable(json->as_string())));
    }
    return ok_status();
  }

  Status parse_shape(const std::string& field, const Json* json, SafetensorsTensor& tensor) const {
    if (json == nullptr || !json->is_array()) return corrupt_at(field, "shape is no list");
    const Json::Array& list = json->as_array();
    if (list.size() > kDimensionsMax) {
      return unsupported_at(field, fmt::format("{} dimensions ({} at most are supported)",
                                               list.size(), kDimensionsMax));
    }
    // A dimension of 0 must not hide that the others leave the range: a view multiplies some of
    // them. Elements have at most 8 bytes.
    Dimensions dims, no_zeros;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!list[i].is_int() || list[i].as_int() < 0) {
        return corrupt_at(field, fmt::format("dimension {} is no count", i));
      }
      dims.add(list[i].as_int());
      no_zeros.add(std::max<int64_t>(list[i].as_int(), 1));
    }
    tensor.shape = dims.shape();
    const auto elements = tensor.shape.elements(), at_least = no_zeros.shape().elements();
    if (!elements || !at_least || *at_least > INT64_MAX / 8) {
      return corrupt_at(field, fmt::format("shape {} has more elements than 60 bits count",
                                           tensor.shape.to_string()));
    }
    tensor.elements = *elements;
    return ok_status();
  }

  Status place(const std::string& field, const Json* json, SafetensorsTensor& tensor) const {
    if (json == nullptr || !json->is_array() || json->as_array().size() != 2 ||
        !json->as_array()[0].is_int() || !json->as_array()[1].is_int()) {
      return corrupt_at(field, "data_offsets is no pair of 63-bit integers");
    }
    const int64_t begin = json->as_array()[0].as_int(), end = json->as_array()[1].as_int();
    if (begin < 0 || end < begin || static_cast<uint64_t>(end) > data_.size()) {
      return corrupt_at(field, fmt::format("data_offsets [{}, {}] leave the {} bytes of data",
                                           begin, end, data_.size()));
    }
    const auto size = safetensors_tensor_bytes(*tensor.type, tensor.shape);
    if (!size || *size != end - begin) {
      return corrupt_at(field, fmt::format("data_offsets [{}, {}] are no {} bytes of {} {}", begin,
                                           end, size ? std::to_string(*size) : "whole",
                                           tensor.type->name, tensor.shape.to_string()));
    }
    tensor.bytes = data_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    return ok_status();
  }

  // Sorts plan_.tensors by place. The format wants every byte of the data in one tensor, so that a
  // file cannot carry anything else.
  Status check_tiling() {
    std::vector<SafetensorsTensor>& tensors = plan_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      return std::pair(a.bytes.data(), a.bytes.size()) < std::pair(b.bytes.data(), b.bytes.size());
    });
    size_t position = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto begin = static_cast<size_t>(tensors[i].bytes.data() - data_.data());
      const std::string field = "tensor " + printable(tensors[i].name);
      if (begin < position) {
        return corrupt_at(
            field, fmt::format("its data overlaps tensor {}", printable(tensors[i - 1].name)));
      }
      if (begin > position) {
        return corrupt_at(field,
                          fmt::format("a gap of {} bytes before its data", begin - position));
      }
      position += tensors[i].bytes.size();
    }
    if (position == data_.size()) return ok_status();
    return corrupt_at("data", fmt::format("{} bytes after the last tensor belong to none",
                                          data_.size() - position));
  }

  std::span<const std::byte> bytes_;
  std::string_view name_;
  std::span<const std::byte> data_;
  SafetensorsPlan plan_;
};

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) {
  const auto at = std::find_if(kSafetensorsTypes.begin(), kSafetensorsTypes.end(),
                               [&](const SafetensorsType& type) { return type.name == name; });
  return at == kSafetensorsTypes.end() ? nullptr : &*at;
}

std::span<const SafetensorsType> safetensors_types() { return kSafetensorsTypes; }

std::optional<int64_t> safetensors_tensor_bytes(const SafetensorsType& type, const Shape& shape) {
  const auto elements = shape.elements();
  int64_t bits = 0;
  if (!elements || __builtin_mul_overflow(*elements, int64_t{type.bits}, &bits)) return {};
  if (bits % 8 != 0) return {};
  return bits / 8;
}

Result<SafetensorsPlan> parse_safetensors(std::span<const std::byte> bytes, std::string_view name) {
  return HeaderParser(bytes, name).parse();
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::open(const std::string& path) {
  HR_ASSIGN_OR_RETURN(auto mapping, MappedFile::open(path));
  HR_ASSIGN_OR_RETURN(SafetensorsPlan plan, parse_safetensors(mapping->bytes(), path));
  const auto bytes = mapping->bytes();
  return std::shared_ptr<const SafetensorsFile>(
      new SafetensorsFile(path, bytes, std::move(plan), std::move(mapping)));
}

Result<std::shared_ptr<const SafetensorsFile>> SafetensorsFile::from_memory(
    std::span<const std::byte> bytes, std::string name) {
  HR_ASSIGN_OR_RETURN(SafetensorsPlan plan, parse_safetensors(bytes, name));
  return std::shared_ptr<const SafetensorsFile>(
      new SafetensorsFile(std::move(name), bytes, std::move(plan), nullptr));
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view tensor_name) const {
  const auto at = std::lower_bound(
      plan_.tensors.begin(), plan_.tensors.end(), tensor_name,
      [](const SafetensorsTensor& tensor, std::string_view name) { return tensor.name < name; });
  return at != plan_.tensors.end() && at->name == tensor_name ? &*at : nullptr;
}

void SafetensorsFile::release(std::span<const std::byte> bytes) const {
  if (mapping_ != nullptr) mapping_->release(bytes);
}

}  // namespace headrace
