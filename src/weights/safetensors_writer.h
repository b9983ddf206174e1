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

namespace headrace {

struct SafetensorsEntry {
  std::string name;
  DType dtype;  // one that the format has: F32, F16, BF16
  Shape shape;
};

class SafetensorsWriter {
 public:
  // Makes the file, or one of that name anew, with room for all tensors in the order given. Errors
  // name the path: no such folder, no room on the disk, a type that the format does not have.
  static Result<std::unique_ptr<SafetensorsWriter>> create(
      const std::string& path, std::span<const SafetensorsEntry> entries);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Where entry `index`'s bytes go. Zeros until written. Any thread.
  std::span<std::byte> data(size_t index) const { return data_[index]; }
  int64_t file_bytes() const { return static_cast<int64_t>(mapping_.size()); }

 private:
  SafetensorsWriter(std::span<std::byte> mapping, std::vector<std::span<std::byte>> data)
      : mapping_(mapping), data_(std::move(data)) {}

  std::span<std::byte> mapping_;
  std::vector<std::span<std::byte>> data_;
};

}  // namespace headrace
