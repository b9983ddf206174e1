// Writes GGUF files for tests and fuzzing: valid ones, and every lie that a field can tell.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/gguf.h"

namespace headrace {

// A value's bytes as a file has them.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
std::string raw_string(std::string_view text);  // length, bytes
// Element type, count, elements; `count` lies where it differs from what `elements` hold.
std::string raw_array(uint32_t element_type, uint64_t count, std::string_view elements);

struct BuilderEntry {
  std::string key;
  uint32_t type;  // GgufValueType, or any other number
  std::string value;
};

struct BuilderTensor {
  std::string name;
  std::vector<uint64_t> ne;  // innermost first, as in the file
  uint32_t type = 0;
  std::string data;
  std::optional<uint64_t> offset;  // unset: where the data is placed
  std::optional<uint32_t> rank;    // unset: ne.size()
};

struct GgufBuilder {
  uint32_t magic = 0x46554747;
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count;  // unset: the truth
  std::optional<uint64_t> entry_count;
  uint64_t alignment = 32;  // of the data; add the key where it is not 32
  std::vector<BuilderEntry> entries;
  std::vector<BuilderTensor> tensors;

  GgufBuilder& add(std::string key, GgufValueType type, std::string value);
  GgufBuilder& add_u32(std::string key, uint32_t value);
  GgufBuilder& add_f32(std::string key, float value);
  GgufBuilder& add_bool(std::string key, bool value);
  GgufBuilder& add_text(std::string key, std::string_view value);
  GgufBuilder& add_strings(std::string key, const std::vector<std::string>& values);
  GgufBuilder& add_ints(std::string key, const std::vector<int32_t>& values);
  GgufBuilder& remove(std::string_view key);
  // Replaces a key's type and value. REQUIRES: the key is there
  GgufBuilder& replace(std::string_view key, GgufValueType type, std::string value);
  BuilderTensor& tensor(std::string_view name);  // REQUIRES: it is there
  // A tensor of zero bytes of the right size.
  GgufBuilder& add_tensor(std::string name, std::vector<uint64_t> ne, uint32_t type);

  std::string build() const;
};

// A whole llama file of 15 KB: one layer, hidden 32, two heads on one key/value head, 264 tokens of
// a byte-level vocabulary, matrices in Q4_1, Q4_0, Q8_0, F16, BF16 and F32.
GgufBuilder tiny_llama();

}  // namespace headrace
