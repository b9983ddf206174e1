#include "weights/gguf_writer.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr uint32_t kGgufMagic = 0x46554747;
constexpr uint32_t kGgufVersion = 3;

template <class T>
void append(std::string& out, T value) {
  const size_t at = out.size();
  out.resize(at + sizeof(T));
  std::memcpy(out.data() + at, &value, sizeof(T));
}

void append_text(std::string& out, std::string_view text) {
  append(out, static_cast<uint64_t>(text.size()));
  out += text;
}

uint64_t aligned(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// How many, and their bytes one after the other.
std::pair<uint64_t, std::string> keys_of_file(
    const GgufFile& file, std::span<const std::pair<std::string_view, uint32_t>> numbers) {
  uint64_t count = 0;
  std::string bytes;
  for (const GgufEntry& entry : file.plan().entries) {
    const bool set =
        std::ranges::any_of(numbers, [&](const auto& number) { return number.first == entry.key; });
    if (set || entry.key.starts_with("split.")) continue;
    bytes.append(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
    ++count;
  }
  for (const auto& [key, value] : numbers) {
    append_text(bytes, key);
    append(bytes, static_cast<uint32_t>(GgufValueType::kUint32));
    append(bytes, value);
    ++count;
  }
  return {count, std::move(bytes)};
}

}  // namespace

Result<std::unique_ptr<GgufWriter>> GgufWriter::create(
    const std::string& path, const GgufFile& keys_of,
    std::span<const std::pair<std::string_view, uint32_t>> numbers,
    std::span<const GgufOutTensor> tensors, OldFile old) {
  const auto [key_count, keys] = keys_of_file(keys_of, numbers);
  const uint64_t alignment = keys_of.plan().alignment;
  std::string head;
  append(head, kGgufMagic);
  append(head, kGgufVersion);
  append(head, static_cast<uint64_t>(tensors.size()));
  append(head, key_count);
  head += keys;
  std::vector<std::pair<uint64_t, uint64_t>> places;  // offset and bytes
  uint64_t end = 0;
  for (const GgufOutTensor& tensor : tensors) {
    const auto bytes = gguf_tensor_bytes(*tensor.type, tensor.shape);
    if (!bytes) {
      return unsupported(fmt::format("tensor {}: rows of shape {} are no whole blocks of {}",
                                     tensor.name, tensor.shape.to_string(), tensor.type->name));
    }
    append_text(head, tensor.name);
    append(head, static_cast<uint32_t>(tensor.shape.rank()));
    for (int i = tensor.shape.rank(); i-- > 0;) {
      append(head, static_cast<uint64_t>(tensor.shape[i]));
    }
    append(head, tensor.type->id);
    append(head, end);
    places.emplace_back(end, static_cast<uint64_t>(*bytes));
    end = aligned(end + static_cast<uint64_t>(*bytes), alignment);
  }
  head.resize(aligned(head.size(), alignment), '\0');
  HR_ASSIGN_OR_RETURN(auto file, NewFile::create(path, head, head.size() + end, old));
  std::vector<std::span<std::byte>> data;
  for (const auto& [offset, bytes] : places) {
    data.push_back(file->bytes().subspan(head.size() + offset, bytes));
  }
  return std::unique_ptr<GgufWriter>(new GgufWriter(std::move(file), std::move(data)));
}

}  // namespace headrace
