// Split GGUF files: keys split.no, split.count and split.tensors.count in every part, the model's
// keys in the first, names that end in -00001-of-00003.gguf.
#include <algorithm>
#include <filesystem>
#include <numeric>

#include <fmt/format.h>

#include "weights/gguf.h"

namespace headrace {
namespace {

constexpr std::string_view kIndexKey = "split.no";
constexpr std::string_view kCountKey = "split.count";
constexpr std::string_view kTensorsKey = "split.tensors.count";

std::string part_suffix(int64_t index, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

}  // namespace

// Empty for a file that is whole.
Result<std::optional<GgufFile::Split>> GgufFile::split() const {
  HR_ASSIGN_OR_RETURN(const auto count, optional_int(kCountKey));
  if (!count || *count == 1) return std::optional<Split>();
  constexpr int64_t kCountMax = 65535;  // the keys are 16 bits wide
  if (*count < 1 || *count > kCountMax) {
    return corrupt_field(kCountKey, fmt::format("{} is outside 1 to {}", *count, kCountMax));
  }
  HR_ASSIGN_OR_RETURN(const int64_t index, require_int(kIndexKey));
  if (index < 0 || index >= *count) {
    return corrupt_field(kIndexKey, fmt::format("{} is no part of {}", index, *count));
  }
  HR_ASSIGN_OR_RETURN(const int64_t tensors, require_int(kTensorsKey));
  if (tensors < 0 || tensors > static_cast<int64_t>(kGgufTensorsMax)) {
    return corrupt_field(kTensorsKey,
                         fmt::format("{} is outside 0 to {}", tensors, kGgufTensorsMax));
  }
  return std::optional(Split{.index = index, .count = *count, .tensor_count = tensors});
}

// That this is the part `expected`.
Status GgufFile::check_part(const Split& expected) const {
  HR_ASSIGN_OR_RETURN(const auto split, this->split());
  const Split actual = split.value_or(Split{});
  if (actual.count != expected.count || actual.index != expected.index) {
    return corrupt_field(kIndexKey,
                         fmt::format("is part {} of {}, its name says {} of {}", actual.index + 1,
                                     actual.count, expected.index + 1, expected.count));
  }
  if (actual.tensor_count != expected.tensor_count) {
    return corrupt_field(kTensorsKey, fmt::format("{}, another part says {}", actual.tensor_count,
                                                  expected.tensor_count));
  }
  return ok_status();
}

Status GgufFile::append(GgufFile&& part) {
  if (plan_.tensors.size() + part.plan_.tensors.size() > kGgufTensorsMax) {
    return part.corrupt_field(kTensorsKey,
                              fmt::format("the parts have more than {} tensors", kGgufTensorsMax));
  }
  plan_.tensors.insert(plan_.tensors.end(), part.plan_.tensors.begin(), part.plan_.tensors.end());
  mappings_.insert(mappings_.end(), part.mappings_.begin(), part.mappings_.end());
  file_bytes_ += part.file_bytes_;
  return ok_status();
}

Status GgufFile::index_tensors() {
  const auto name = [&](uint32_t i) { return plan_.tensors[i].name; };
  std::vector<uint32_t>& order = plan_.tensors_by_name;
  order.resize(plan_.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
  const auto twin = std::adjacent_find(order.begin(), order.end(),
                                       [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
  if (twin == order.end()) return ok_status();
  return corrupt_field("tensor " + printable(name(*twin)), "is in two parts of the file");
}

// `split` is what the part at `path` says of itself.
Result<std::shared_ptr<GgufFile>> GgufFile::open_parts(const std::string& path,
                                                       const Split& split) {
  const std::string suffix = part_suffix(split.index, split.count);
  if (!path.ends_with(suffix)) {
    return corrupt(fmt::format("{}: is part {} of {}: its name must end in {} for the other parts "
                               "to be found",
                               path, split.index + 1, split.count, suffix),
                   std::string(kCountKey));
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  std::shared_ptr<GgufFile> whole;
  for (int64_t i = 0; i < split.count; ++i) {
    const std::string part_path = stem + part_suffix(i, split.count);
    auto part = open_part(part_path);
    if (part.status().code() == StatusCode::kNotFound) {
      return not_found(fmt::format("{}: missing: part {} of {} must lie beside the others",
                                   part_path, i + 1, split.count));
    }
    HR_RETURN_IF_ERROR(part.status());
    HR_RETURN_IF_ERROR((*part)->check_part({i, split.count, split.tensor_count}));
    if (whole == nullptr) {
      whole = std::move(part).value();
    } else {
      HR_RETURN_IF_ERROR(whole->append(std::move(**part)));
    }
  }
  if (whole->plan_.tensors.size() != static_cast<size_t>(split.tensor_count)) {
    return whole->corrupt_field(kTensorsKey,
                                fmt::format("{}, the parts have {} tensors", split.tensor_count,
                                            whole->plan_.tensors.size()));
  }
  HR_RETURN_IF_ERROR(whole->index_tensors());
  return whole;
}

}  // namespace headrace
