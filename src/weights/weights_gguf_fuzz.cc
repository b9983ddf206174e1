// Fuzzes what reads model files: the GGUF parser, the configuration from its metadata or from a
// config.json (input that starts with '{'), the vocabulary, and dequantisation of every tensor.
//
// The mutator knows where a GGUF file keeps its counts, lengths, types, dimensions and offsets:
// half of its mutations overwrite one of them with a value that has broken readers before, the
// other half are libFuzzer's own.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "stack/gguf_vocab.h"
#include "tensor/quantised_row.h"
#include "weights/gguf.h"
#include "weights/model_config.h"
#include "weights/pooling_config.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace headrace {
namespace {

struct Field {
  size_t at;
  size_t width;  // 4 or 8
};

// Walks a GGUF file as far as it makes sense and notes its fields.
class FieldFinder {
 public:
  FieldFinder(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  std::vector<Field> find() {
    take(4), take(4);
    const uint64_t tensors = take(8), keys = take(8);
    for (uint64_t i = 0; i < keys && inside_; ++i) entry();
    for (uint64_t i = 0; i < tensors && inside_; ++i) tensor();
    return std::move(fields_);
  }

 private:
  uint64_t take(size_t width) {
    uint64_t value = 0;
    inside_ = inside_ && size_ - at_ >= width;
    if (!inside_) return 0;
    std::memcpy(&value, data_ + at_, width);
    fields_.push_back({at_, width});
    at_ += width;
    return value;
  }
  void skip(uint64_t bytes) {
    inside_ = inside_ && size_ - at_ >= bytes;
    if (inside_) at_ += bytes;
  }
  void string() { skip(take(8)); }
  void value(uint64_t type) {
    const size_t bytes = type < 13 ? gguf_value_bytes(static_cast<GgufValueType>(type)) : 0;
    if (bytes >= 4) {
      take(bytes);
    } else if (bytes > 0) {
      skip(bytes);
    } else {
      string();
    }
  }
  void entry() {
    string();
    const uint64_t type = take(4);
    if (type != static_cast<uint64_t>(GgufValueType::kArray)) return value(type);
    const uint64_t element = take(4), count = take(8);
    for (uint64_t i = 0; i < count && inside_; ++i) value(element);
  }
  void tensor() {
    string();
    const uint64_t rank = take(4);
    for (uint64_t i = 0; i < std::min<uint64_t>(rank, 4); ++i) take(8);
    take(4), take(8);
  }

  const uint8_t* data_;
  size_t size_, at_ = 0;
  bool inside_ = true;
  std::vector<Field> fields_;
};

uint64_t hurtful_value(Rng& rng, uint64_t old) {
  constexpr std::array<uint64_t, 12> kValues = {
      0,          1,          2,          3,         32,         0x7fffffff,
      0x80000000, UINT32_MAX, UINT64_MAX, INT64_MAX, 1ull << 63, UINT64_MAX - 31};
  switch (rng.below(6)) {
    case 0:
      return old + 1;
    case 1:
      return old - 1;
    case 2:
      return old ^ (1ull << rng.below(64));
    case 3:
      return UINT64_MAX / (1 + rng.below(40)) + rng.below(3);
    case 4:
      return rng.below(64);
    default:
      return kValues[rng.below(kValues.size())];
  }
}

void read_config(std::string_view text) {
  const auto json = parse_json(text);
  if (json.ok()) (void)model_config_from_json(*json, *json, "config.json");
}

void read_array(const GgufArray& array) {
  for (size_t i = 0; i < array.size(); ++i) (void)array.int_at(i), (void)array.float_at(i);
}

// Every key, as every kind of value that a caller may ask for.
void read_metadata(const GgufFile& file) {
  for (const GgufEntry& entry : file.plan().entries) {
    (void)file.require_int(entry.key);
    (void)file.require_float(entry.key);
    (void)file.require_string(entry.key);
    (void)file.optional_bool(entry.key);
    const auto array = file.optional_array(entry.key);
    if (array.ok() && *array) read_array(**array);
    const auto strings = file.require_strings(entry.key);
    size_t characters = 0;
    if (strings.ok()) {
      for (const std::string_view text : *strings) characters += text.size();
    }
    CHECK(characters <= file.file_bytes());
  }
}

void read_gguf(std::span<const std::byte> bytes) {
  const auto file = GgufFile::from_memory(bytes, "fuzz.gguf");
  if (!file.ok()) return;
  read_metadata(**file);
  (void)model_config_from_gguf(**file);
  (void)pooling_config_from_gguf(**file);
  (void)vocab_from_gguf(**file, *file);
  std::vector<float> row;
  for (const GgufTensor& tensor : (*file)->plan().tensors) {
    const auto view = (*file)->view(tensor);
    if (!view.ok()) continue;
    row.resize(static_cast<size_t>(view->columns()));
    for (int64_t i = 0; i < tensor.elements / view->columns(); ++i) {
      dequantise_row(view->dtype, {view->row(i), static_cast<size_t>(view->row_stride)}, row);
    }
  }
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == '{') {
    headrace::read_config({reinterpret_cast<const char*>(data), size});
  } else {
    headrace::read_gguf({reinterpret_cast<const std::byte*>(data), size});
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  headrace::Rng rng(seed);
  if (rng.below(2) == 0) return LLVMFuzzerMutate(data, size, max_size);
  const auto fields = headrace::FieldFinder(data, size).find();
  if (fields.empty()) return LLVMFuzzerMutate(data, size, max_size);
  const headrace::Field field = fields[rng.below(fields.size())];
  uint64_t value = 0;
  std::memcpy(&value, data + field.at, field.width);
  value = headrace::hurtful_value(rng, value);
  std::memcpy(data + field.at, &value, field.width);
  return size;
}
