// Writes safetensors files of any size: the header is made first, then the tensors' bytes go
// straight into a mapping of the file, from as many threads as the caller has.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "tensor/tensor_view.h"
#include "weights/new_file.h"

namespace headrace {

struct SafetensorsEntry {
  std::string name;
  DType dtype;  // one that the format has: F32, F16, BF16
  Shape shape;
  std::string_view type = {};  // before `dtype`: as the format names it, "I32"
};

class SafetensorsWriter {
 public:
  // Makes the file, or one of that name anew, with room for all tensors in the order given. Errors
  // name the path: no such folder, no room on the disk, a type that the format does not have.
  static Result<std::unique_ptr<SafetensorsWriter>> create(
      const std::string& path, std::span<const SafetensorsEntry> entries,
      OldFile old = OldFile::kReplace);

  // Where entry `index`'s bytes go. Zeros until written. Any thread.
  std::span<std::byte> data(size_t index) const { return data_[index]; }
  int64_t file_bytes() const { return static_cast<int64_t>(file_->bytes().size()); }
  const NewFile& file() const { return *file_; }

 private:
  SafetensorsWriter(std::unique_ptr<NewFile> file, std::vector<std::span<std::byte>> data)
      : file_(std::move(file)), data_(std::move(data)) {}

  std::unique_ptr<NewFile> file_;
  std::vector<std::span<std::byte>> data_;
};

}  // namespace headrace
