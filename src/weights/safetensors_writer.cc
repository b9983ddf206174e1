#include "weights/safetensors_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/json.h"
#include "weights/safetensors.h"

namespace headrace {
namespace {

constexpr size_t kDataAlignment = 64;  // of the first tensor in the file

const SafetensorsType* type_of(DType dtype) {
  for (const SafetensorsType& type : safetensors_types()) {
    if (type.dtype == dtype) return &type;
  }
  return nullptr;
}

struct FileLayout {
  std::string head;             // length and header
  std::vector<size_t> offsets;  // [entries + 1] in the data
};

Result<FileLayout> lay_out(std::span<const SafetensorsEntry> entries) {
  FileLayout layout{.offsets = {0}};
  Json header = Json::object();
  for (const SafetensorsEntry& entry : entries) {
    const SafetensorsType* type = type_of(entry.dtype);
    const auto bytes =
        type != nullptr ? safetensors_tensor_bytes(*type, entry.shape) : std::nullopt;
    if (!bytes) {
      return unsupported(fmt::format("tensor {}: safetensors files hold no {} of shape {}",
                                     entry.name, dtype_name(entry.dtype), entry.shape.to_string()));
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

// A new file of `bytes` bytes, with all its room on the disk, so that writing to the mapping cannot
// fail later.
Result<std::span<std::byte>> map_new_file(const std::string& path, size_t bytes) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) {
    return invalid_argument(fmt::format("{}: cannot be made: {}", path, std::strerror(errno)));
  }
  int error = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  void* mapping = MAP_FAILED;
  if (error == 0) {
    mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) error = errno;
  }
  ::close(file);
  if (mapping == MAP_FAILED) {
    ::unlink(path.c_str());
    return exhausted(
        fmt::format("{}: no room for {} MiB: {}", path, bytes >> 20, std::strerror(error)));
  }
  return std::span(static_cast<std::byte*>(mapping), bytes);
}

}  // namespace

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(
    const std::string& path, std::span<const SafetensorsEntry> entries) {
  HR_ASSIGN_OR_RETURN(const FileLayout layout, lay_out(entries));
  HR_ASSIGN_OR_RETURN(const std::span<std::byte> mapping,
                      map_new_file(path, layout.head.size() + layout.offsets.back()));
  std::ranges::copy(std::as_bytes(std::span(layout.head)), mapping.begin());
  std::vector<std::span<std::byte>> data;
  for (size_t i = 0; i < entries.size(); ++i) {
    data.push_back(mapping.subspan(layout.head.size() + layout.offsets[i],
                                   layout.offsets[i + 1] - layout.offsets[i]));
  }
  return std::unique_ptr<SafetensorsWriter>(new SafetensorsWriter(mapping, std::move(data)));
}

SafetensorsWriter::~SafetensorsWriter() { ::munmap(mapping_.data(), mapping_.size()); }

}  // namespace headrace
