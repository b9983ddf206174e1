// GGUF model files, versions 2 and 3 (github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// A file is parsed into a validated plan before anything is loaded: every count is held against
// the bytes that are left, every offset and size against the file, with overflow-checked
// arithmetic. Strings and arrays are views into the mapping; the plan is the only allocation
// (under 12 MB, whatever the file says). After open() no accessor can leave the mapping.
//
// Errors are one line, "file: field: what is wrong"; kCorrupt for a file that contradicts the
// format, kUnsupported for what is well-formed but not readable here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "tensor/tensor_view.h"
#include "weights/gguf_type.h"

namespace headrace {

// Bounds on what a plan may hold: 16 times what the largest known files have.
inline constexpr uint64_t kGgufKeysMax = 1 << 16;
inline constexpr uint64_t kGgufTensorsMax = 1 << 16;

enum class GgufValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
std::string_view gguf_value_type_name(GgufValueType type);

// Strings of an array, in order: a walk over the mapping, checked when the file was opened.
class GgufStrings {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    Iterator() = default;
    explicit Iterator(const std::byte* at) : at_(at) {}
    std::string_view operator*() const;
    Iterator& operator++();
    Iterator operator++(int) { return std::exchange(*this, Iterator(*this).operator++()); }
    friend bool operator==(Iterator, Iterator) = default;

   private:
    const std::byte* at_ = nullptr;
  };

  GgufStrings() = default;
  GgufStrings(std::span<const std::byte> bytes, size_t size) : bytes_(bytes), size_(size) {}
  size_t size() const { return size_; }
  Iterator begin() const { return Iterator(bytes_.data()); }
  Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }

 private:
  std::span<const std::byte> bytes_;
  size_t size_ = 0;
};

// An array of scalars or strings (arrays of arrays are refused when the file is opened).
class GgufArray {
 public:
  GgufArray(GgufValueType element_type, std::span<const std::byte> bytes, size_t size)
      : element_type_(element_type), bytes_(bytes), size_(size) {}
  GgufValueType element_type() const { return element_type_; }
  size_t size() const { return size_; }
  // Element i of integers or bools; empty for other types and for values beyond int64.
  // REQUIRES: i < size()
  std::optional<int64_t> int_at(size_t i) const;
  // Element i of any number; empty for strings. REQUIRES: i < size()
  std::optional<double> float_at(size_t i) const;
  // REQUIRES: element_type() == kString
  GgufStrings strings() const;

 private:
  GgufValueType element_type_;
  std::span<const std::byte> bytes_;
  size_t size_;
};

// Integers of any width become int64_t; only those beyond it stay uint64_t. float becomes double.
using GgufValue = std::variant<int64_t, uint64_t, double, bool, std::string_view, GgufArray>;

struct GgufEntry {
  std::string_view key;
  GgufValueType type;
  GgufValue value;
  std::span<const std::byte> bytes = {};  // of key, type and value in the file
};

struct GgufTensor {
  std::string_view name;
  const GgufType* type;  // never nullptr
  Shape shape;           // outermost first: [out, in]; the file has it the other way round
  int64_t elements;      // product of the shape
  std::span<const std::byte> bytes;  // inside the mapping, aligned to the file's alignment
};

// Bytes of a tensor; empty where its rows are no whole blocks or 63 bits do not count them.
std::optional<int64_t> gguf_tensor_bytes(const GgufType& type, const Shape& shape);
// Bytes of one array element or scalar; 0 for strings and arrays, whose size is in the file.
size_t gguf_value_bytes(GgufValueType type);
// Text from a file as it may be shown: at most 80 bytes of printable ASCII, the rest escaped or
// cut.
std::string printable(std::string_view text);

// What a file declares, checked: see parse_gguf().
struct GgufPlan {
  uint32_t version = 0;
  uint64_t alignment = 0;
  uint64_t data_offset = 0;         // first byte of the tensor data in the file
  std::vector<GgufEntry> entries;   // in file order; keys are unique
  std::vector<GgufTensor> tensors;  // in file order; names are unique, data does not overlap
  // Indices of the above in the order of their names: look-ups are log n whatever names a file
  // picks, which hashing could not promise.
  std::vector<uint32_t> entries_by_key;
  std::vector<uint32_t> tensors_by_name;
};

// Parses and checks a whole file. The plan's views point into `bytes`; `name` is for errors. Reads
// headers only, never tensor data.
Result<GgufPlan> parse_gguf(std::span<const std::byte> bytes, std::string_view name);

// An opened file. Immutable: any thread may read.
//
// A model may be split over files named name-00001-of-00003.gguf. Such a file is opened with all
// its parts, from the path of any: keys are the first part's, tensors those of all parts.
class GgufFile {
 public:
  static Result<std::shared_ptr<const GgufFile>> open(const std::string& path);
  // The same over memory that outlives the result (tests, fuzzing): `name` is for errors.
  static Result<std::shared_ptr<const GgufFile>> from_memory(std::span<const std::byte> bytes,
                                                             std::string name);

  const std::string& name() const { return name_; }
  const GgufPlan& plan() const { return plan_; }
  size_t file_bytes() const { return file_bytes_; }  // of all parts
  std::vector<std::string> paths() const;            // of all parts; empty after from_memory()
  size_t part_count() const { return std::max<size_t>(mappings_.size(), 1); }

  const GgufEntry* find(std::string_view key) const;
  const GgufTensor* find_tensor(std::string_view tensor_name) const;

  // A key of the given kind. A missing key is an error for require_*, empty for optional_*; a key
  // of another kind is an error for both.
  Result<int64_t> require_int(std::string_view key) const;
  Result<double> require_float(std::string_view key) const;  // integers too
  Result<std::string_view> require_string(std::string_view key) const;
  Result<GgufStrings> require_strings(std::string_view key) const;
  Result<std::optional<int64_t>> optional_int(std::string_view key) const;
  Result<std::optional<double>> optional_float(std::string_view key) const;
  Result<std::optional<bool>> optional_bool(std::string_view key) const;
  Result<std::optional<std::string_view>> optional_string(std::string_view key) const;
  Result<std::optional<GgufArray>> optional_array(std::string_view key) const;

  // kUnsupported, with the type's name, where the type cannot be read.
  Result<ConstTensorView> view(const GgufTensor& tensor) const;
  // These bytes will not be read soon: gives their pages back.
  void release(std::span<const std::byte> bytes) const;
  // The same of all files.
  void release_all() const;

  // "file: field: what", as every error of this class.
  Status corrupt_field(std::string_view field, std::string_view what) const;
  Status unsupported_field(std::string_view field, std::string_view what) const;

 private:
  // What split.* says of a part.
  struct Split {
    int64_t index = 0;  // from 0
    int64_t count = 1;
    int64_t tensor_count = 0;  // of all parts
  };

  GgufFile(std::string name, size_t file_bytes, GgufPlan plan, std::shared_ptr<MappedFile> mapping);
  static Result<std::shared_ptr<GgufFile>> open_part(const std::string& path);
  static Result<std::shared_ptr<GgufFile>> open_parts(const std::string& path, const Split& split);
  Result<std::optional<Split>> split() const;
  Status check_part(const Split& expected) const;
  Status append(GgufFile&& part);
  Status index_tensors();
  template <class T>
  Result<std::optional<T>> optional_value(std::string_view key, std::string_view expected) const;

  std::string name_;
  size_t file_bytes_;
  GgufPlan plan_;
  std::vector<std::shared_ptr<MappedFile>> mappings_;  // of each part; empty after from_memory()
};

}  // namespace headrace
