// Hugging Face safetensors files (github.com/huggingface/safetensors, "Format"): the length of a
// JSON header, the header, and the tensors' bytes one after the other.
//
// A file is checked before anything is loaded, and more strictly than the reference reader: what is
// accepted here is accepted there. The header's length is held against the file and a bound, its
// members against the format, and the tensors' places must tile the data without gap or overlap.
// After open() no accessor can leave the mapping.
//
// Errors are one line, "file: field: what is wrong"; kCorrupt for a file that contradicts the
// format, kUnsupported for what is well-formed but not readable here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "tensor/tensor_view.h"

namespace headrace {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;  // the reference reader's
inline constexpr size_t kSafetensorsTensorsMax = 1 << 16;            // as for GGUF

// An element type that a file can name. Known ones have a size here, so that a file can be checked
// and listed even where a type cannot be read.
struct SafetensorsType {
  std::string_view name;       // "BF16"
  int32_t bits;                // of an element
  std::optional<DType> dtype;  // empty: known, not readable
};
// nullptr for a name that the format does not have. Any thread.
const SafetensorsType* find_safetensors_type(std::string_view name);
std::span<const SafetensorsType> safetensors_types();
// Bytes of a tensor; empty where they are no whole number or 60 bits do not count them.
std::optional<int64_t> safetensors_tensor_bytes(const SafetensorsType& type, const Shape& shape);

struct SafetensorsTensor {
  std::string name;
  const SafetensorsType* type;  // never nullptr
  Shape shape;                  // outermost first; a dimension may be 0
  int64_t elements;
  std::span<const std::byte> bytes;  // inside the mapping; no alignment is promised
};

// What a file declares, checked. The views point into the bytes it was parsed from.
struct SafetensorsPlan {
  std::vector<SafetensorsTensor> tensors;  // by name, which is unique
  std::string format;                      // __metadata__.format: "pt"; empty = not given
};

// Parses and checks a whole file; `name` is for errors. Reads the header only. Allocates less than
// 20 times the header's length.
Result<SafetensorsPlan> parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

// An opened file. Immutable: any thread may read.
class SafetensorsFile {
 public:
  static Result<std::shared_ptr<const SafetensorsFile>> open(const std::string& path);
  // The same over memory that outlives the result (tests, fuzzing): `name` is for errors.
  static Result<std::shared_ptr<const SafetensorsFile>> from_memory(
      std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const SafetensorsPlan& plan() const { return plan_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  const SafetensorsTensor* find(std::string_view tensor_name) const;
  // These bytes will not be read soon: gives their pages back.
  void release(std::span<const std::byte> bytes) const;

 private:
  SafetensorsFile(std::string name, std::span<const std::byte> bytes, SafetensorsPlan plan,
                  std::shared_ptr<MappedFile> mapping)
      : name_(std::move(name)),
        bytes_(bytes),
        plan_(std::move(plan)),
        mapping_(std::move(mapping)) {}

  std::string name_;
  std::span<const std::byte> bytes_;
  SafetensorsPlan plan_;
  std::shared_ptr<MappedFile> mapping_;  // nullptr after from_memory()
};

}  // namespace headrace
