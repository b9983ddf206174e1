#include "weights/safetensors_source.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "tensor/quantised_row.h"
#include "weights/safetensors_index.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

using Files = std::vector<std::shared_ptr<const SafetensorsFile>>;

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr uintptr_t kAlignment = 8;  // that WeightSource promises

// ---- files --------------------------------------------------------------------------------------

// A shard holds what the index says, no more and no less.
Status check_shard(const SafetensorsFile& file, std::vector<std::string>& expected) {
  for (const std::string& name : expected) {
    if (file.find(name) == nullptr) {
      return corrupt(fmt::format("{}: tensor {}: missing ({} says it is here)", file.name(),
                                 printable(name), kIndex),
                     name);
    }
  }
  if (file.plan().tensors.size() == expected.size()) return ok_status();
  std::sort(expected.begin(), expected.end());
  for (const SafetensorsTensor& tensor : file.plan().tensors) {
    if (!std::binary_search(expected.begin(), expected.end(), tensor.name)) {
      return corrupt(fmt::format("{}: tensor {}: {} does not say it is here", file.name(),
                                 printable(tensor.name), kIndex),
                     tensor.name);
    }
  }
  return ok_status();
}

Result<Files> open_shards(const fs::path& folder) {
  const std::string index = (folder / kIndex).string();
  HR_ASSIGN_OR_RETURN(ShardTensors shards, read_safetensors_index(index));
  Files files;
  for (auto& [name, tensors] : shards) {
    auto file = SafetensorsFile::open((folder / name).string());
    if (file.status().code() == StatusCode::kNotFound) {
      return not_found(fmt::format("{}: missing, but {} names it: fetch the folder again",
                                   (folder / name).string(), kIndex));
    }
    HR_RETURN_IF_ERROR(file.status());
    HR_RETURN_IF_ERROR(check_shard(**file, tensors));
    files.push_back(std::move(file).value());
  }
  return files;
}

// What a folder without safetensors has instead, for the message.
std::string other_weights(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) {
      return fmt::format(
          " ({} is a pickle, which can run code when it is opened: it is not read; "
          "convert it to safetensors)",
          printable(name));
    }
    if (name.ends_with(".gguf")) return fmt::format(" (name {} itself)", printable(name));
  }
  return "";
}

Result<Files> open_files(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    HR_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open(path));
    return Files{std::move(file)};
  }
  const fs::path folder(path);
  if (fs::exists(folder / kIndex, ignored)) return open_shards(folder);
  if (!fs::exists(folder / kSingle, ignored)) {
    return not_found(fmt::format("{}: there is no {} and no {}{}", path, kSingle, kIndex,
                                 other_weights(folder)));
  }
  HR_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open((folder / kSingle).string()));
  return Files{std::move(file)};
}

// A base class (Qwen3Model) saves its tensors without the name that it has in a class with a head.
std::optional<HfMatch> match_in_model(HfTensorNames names, std::string_view name) {
  auto match = match_hf_name(names, name);
  return match ? match : match_hf_name(names, "model." + std::string(name));
}

bool is_aligned(const std::byte* data) {
  return reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
}

bool inside(std::span<const std::byte> outer, const std::byte* at) {
  return at >= outer.data() && at < outer.data() + outer.size();
}

}  // namespace

// ---- opening ----------------------------------------------------------------------------------

Result<std::unique_ptr<SafetensorsWeightSource>> SafetensorsWeightSource::open(
    const std::string& path, const SafetensorsOptions& options) {
  HR_ASSIGN_OR_RETURN(Files files, open_files(path));
  return create(std::move(files), path, options);
}

Result<std::unique_ptr<SafetensorsWeightSource>> SafetensorsWeightSource::create(
    Files files, std::string description, const SafetensorsOptions& options) {
  std::vector<Entry> entries;
  for (const auto& file : files) {
    for (const SafetensorsTensor& tensor : file->plan().tensors) {
      const auto match = match_in_model(options.names, tensor.name);
      if (match && match->gguf.empty()) continue;
      if (match && match->gguf == "output.weight" && options.tied_embeddings) continue;
      entries.push_back(
          {match ? match->gguf : tensor.name, &tensor, match ? match->offset : 0.0f, nullptr});
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  const auto twin =
      std::adjacent_find(entries.begin(), entries.end(),
                         [](const Entry& a, const Entry& b) { return a.name == b.name; });
  if (twin != entries.end()) {
    return corrupt(
        fmt::format("{}: tensors {} and {} are both {}", description, printable(twin->tensor->name),
                    printable(twin[1].tensor->name), printable(twin->name)),
        twin->name);
  }
  return std::unique_ptr<SafetensorsWeightSource>(new SafetensorsWeightSource(
      std::move(files), std::move(description), options.names, std::move(entries)));
}

SafetensorsWeightSource::SafetensorsWeightSource(Files files, std::string description,
                                                 HfTensorNames names, std::vector<Entry> entries)
    : files_(std::move(files)),
      description_(std::move(description)),
      names_(names),
      entries_(std::move(entries)) {}

// ---- reading ----------------------------------------------------------------------------------

SafetensorsWeightSource::Entry* SafetensorsWeightSource::find(std::string_view name) const {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), name,
                       [](const Entry& entry, std::string_view text) { return entry.name < text; });
  return at != entries_.end() && at->name == name ? &*at : nullptr;
}

std::vector<std::string_view> SafetensorsWeightSource::names() const {
  std::vector<std::string_view> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

DType SafetensorsWeightSource::dtype_of(const Entry& entry) {
  return entry.offset != 0 ? DType::kF32 : *entry.tensor->type->dtype;
}

std::optional<WeightInfo> SafetensorsWeightSource::info(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) return std::nullopt;
  const SafetensorsType& type = *entry->tensor->type;
  return WeightInfo{.name_in_file = printable(entry->tensor->name),
                    .type = type.name,
                    .dtype = type.dtype ? std::optional(dtype_of(*entry)) : std::nullopt,
                    .shape = entry->tensor->shape,
                    .bytes = static_cast<int64_t>(entry->tensor->bytes.size())};
}

Result<ConstTensorView> SafetensorsWeightSource::get(std::string_view name) const {
  Entry* entry = find(name);
  if (entry == nullptr) {
    return corrupt(
        fmt::format("{}: tensor {}: missing", description_, printable(name_in_file(name))),
        std::string(name));
  }
  const SafetensorsTensor& tensor = *entry->tensor;
  if (!tensor.type->dtype) {
    return unsupported(fmt::format("{}: tensor {}: type {} is not supported yet", description_,
                                   printable(tensor.name), tensor.type->name),
                       tensor.name);
  }
  const DType dtype = dtype_of(*entry);
  if (entry->offset == 0 && is_aligned(tensor.bytes.data())) {
    return ConstTensorView(tensor.bytes.data(), dtype, tensor.shape);
  }
  const std::lock_guard lock(mutex_);
  if (entry->copy == nullptr) entry->copy = converted(*entry);
  return ConstTensorView(entry->copy.get(), dtype, tensor.shape);
}

// new std::byte[] is 16-byte aligned.
std::unique_ptr<std::byte[]> SafetensorsWeightSource::converted(const Entry& entry) {
  const SafetensorsTensor& tensor = *entry.tensor;
  if (entry.offset == 0) {
    auto copy = std::make_unique_for_overwrite<std::byte[]>(tensor.bytes.size());
    std::copy(tensor.bytes.begin(), tensor.bytes.end(), copy.get());
    return copy;
  }
  const auto count = static_cast<size_t>(tensor.elements);
  std::vector<float> values(count);
  dequantise_row(*tensor.type->dtype, tensor.bytes, values);
  for (float& value : values) value += entry.offset;
  auto copy = std::make_unique_for_overwrite<std::byte[]>(count * sizeof(float));
  std::memcpy(copy.get(), values.data(), count * sizeof(float));
  return copy;
}

void SafetensorsWeightSource::release(const ConstTensorView& view) const {
  for (const auto& file : files_) {
    if (!inside(file->bytes(), view.data)) continue;
    file->release({view.data, static_cast<size_t>(*tensor_bytes(view.dtype, view.shape))});
    return;
  }
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) {
    if (entry.copy != nullptr && entry.copy.get() == view.data) entry.copy.reset();
  }
}

void SafetensorsWeightSource::release_rows(const ConstTensorView& view, int64_t first,
                                           int64_t last) const {
  for (const auto& file : files_) {
    if (!inside(file->bytes(), view.data)) continue;
    file->release({view.row(first), static_cast<size_t>(view.row(last) - view.row(first))});
    return;
  }
}

int64_t SafetensorsWeightSource::file_bytes() const {
  size_t bytes = 0;
  for (const auto& file : files_) bytes += file->bytes().size();
  return static_cast<int64_t>(bytes);
}

}  // namespace headrace
