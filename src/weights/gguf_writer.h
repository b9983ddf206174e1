// Writes GGUF files (version 3) with the keys of another: what a model is stays, its tensors' types
// change. Tensors go straight into a mapping of the file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weights/gguf.h"
#include "weights/new_file.h"

namespace headrace {

struct GgufOutTensor {
  std::string name;
  const GgufType* type;
  Shape shape;  // outermost first
};

class GgufWriter {
 public:
  // `numbers`: keys of uint32 that are set, in place of those that `keys_of` has. Keys that say how
  // a file is split are left out. Errors as of NewFile::create().
  static Result<std::unique_ptr<GgufWriter>> create(
      const std::string& path, const GgufFile& keys_of,
      std::span<const std::pair<std::string_view, uint32_t>> numbers,
      std::span<const GgufOutTensor> tensors, OldFile old = OldFile::kReplace);

  // Where tensor `index`'s bytes go. Zeros until written. Any thread.
  std::span<std::byte> data(size_t index) const { return data_[index]; }
  const NewFile& file() const { return *file_; }

 private:
  GgufWriter(std::unique_ptr<NewFile> file, std::vector<std::span<std::byte>> data)
      : file_(std::move(file)), data_(std::move(data)) {}

  std::unique_ptr<NewFile> file_;
  std::vector<std::span<std::byte>> data_;
};

}  // namespace headrace
