#include "weights/safetensors_writer.h"

#include <utility>

#include <fmt/format.h>

#include "base/json.h"
#include "weights/safetensors.h"

namespace headrace {
namespace {

constexpr size_t kDataAlignment = 64;  // of the first tensor in the file

const SafetensorsType* type_of(const SafetensorsEntry& entry) {
  if (!entry.type.empty()) return find_safetensors_type(entry.type);
  for (const SafetensorsType& type : safetensors_types()) {
    if (type.dtype == entry.dtype) return &type;
  }
  return nullptr;
}

struct FileLayout {
  std::string head;             // length and header
  std::vector<size_t> offsets;  // [entries + 1] in the data
};

Result<FileLayout> lay_out(std::span<const SafetensorsEntry> entries) {
  FileLayout layout{.offsets = {0}};
  // Of PyTorch's tensors: transformers asks for it.
  Json header = Json::object().set("__metadata__", Json::object().set("format", "pt"));
  for (const SafetensorsEntry& entry : entries) {
    const SafetensorsType* type = type_of(entry);
    const auto bytes =
        type != nullptr ? safetensors_tensor_bytes(*type, entry.shape) : std::nullopt;
    if (!bytes) {
      return unsupported(fmt::format(
          "tensor {}: safetensors files hold no {} of shape {}", entry.name,
          entry.type.empty() ? dtype_name(entry.dtype) : entry.type, entry.shape.to_string()));
    }
    Json shape = Json::array();
    for (int i = 0; i < entry.shape.rank(); ++i) shape.push(entry.shape[i]);
    const size_t begin = layout.offsets.back();
    layout.offsets.push_back(begin + static_cast<size_t>(*bytes));
    Json offsets = Json::array();
    offsets.push(begin).push(layout.offsets.back());
    header.set(entry.name, Json::object()
                               .set("dtype", std::string(type->name))
                               .set("shape", std::move(shape))
                               .set("data_offsets", std::move(offsets)));
  }
  std::string text = write_json(header);
  uint64_t length = text.size() + sizeof(length);
  length = (length + kDataAlignment - 1) / kDataAlignment * kDataAlignment - sizeof(length);
  text.resize(length, ' ');
  layout.head.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  layout.head += text;
  return layout;
}

}  // namespace

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(
    const std::string& path, std::span<const SafetensorsEntry> entries, OldFile old) {
  HR_ASSIGN_OR_RETURN(const FileLayout layout, lay_out(entries));
  HR_ASSIGN_OR_RETURN(auto file, NewFile::create(path, layout.head,
                                                 layout.head.size() + layout.offsets.back(), old));
  std::vector<std::span<std::byte>> data;
  for (size_t i = 0; i < entries.size(); ++i) {
    data.push_back(file->bytes().subspan(layout.head.size() + layout.offsets[i],
                                         layout.offsets[i + 1] - layout.offsets[i]));
  }
  return std::unique_ptr<SafetensorsWriter>(
      new SafetensorsWriter(std::move(file), std::move(data)));
}

}  // namespace headrace
