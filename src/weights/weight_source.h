// WeightSource: where a model's tensors come from, by name. The names are GGUF's
// (token_embd.weight, blk.N.attn_q.weight, ..., output_norm.weight, output.weight), whatever the
// file format; a matrix is [out, in], a stack of experts' matrices [experts, out, in].
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/row_reader.h"
#include "tensor/tensor_view.h"
#include "weights/gguf.h"

namespace headrace {

// What a source knows of a tensor without reading it.
struct WeightInfo {
  std::string name_in_file;  // as the file spells it, for messages
  std::string_view type;     // "Q4_K", "BF16"
  // That get() gives, of a quantised matrix of a Hugging Face file F32, whatever its rows are made
  // as; empty: get() says that it cannot be read.
  std::optional<DType> dtype;
  Shape shape;
  int64_t bytes = 0;  // in the file
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  virtual bool has(std::string_view name) const = 0;
  // Names of all tensors. The views live as long as the source.
  virtual std::vector<std::string_view> names() const = 0;
  // A packed tensor, at least 8-byte aligned. The view is valid until the source goes or the view
  // is given to release(). Errors name the source and the tensor: missing, or of a type that cannot
  // be read. Any thread.
  virtual Result<ConstTensorView> get(std::string_view name) const = 0;
  // The same of one matrix of a stack, without reading the others. REQUIRES: such a tensor, if it
  // is there, has this matrix
  virtual Result<ConstTensorView> get_matrix(std::string_view name, int64_t index) const;
  // What makes the rows of a tensor that get() would have to copy whole: a matrix, or matrix
  // `index` of a stack. Its memory is given back with the last pointer. nullptr: get() gives the
  // tensor as it lies, or there is none. Errors as of get().
  virtual Result<std::shared_ptr<const RowReader>> rows(std::string_view name, int64_t index) const;
  // Of a tensor that nobody asks for: whether it can be left out all the same, since adding it
  // changes nothing.
  virtual bool adds_nothing(std::string_view /*name*/) const { return false; }
  // Touches no page of the tensor's data. Empty where there is no such tensor.
  virtual std::optional<WeightInfo> info(std::string_view name) const;
  // What a tensor is called in the source's files, whether it is there or not.
  virtual std::string name_in_file(std::string_view name) const { return std::string(name); }
  // Done reading a view from get(): its memory is given back (a file's pages are dropped from the
  // cache of this process, a dummy's memory is freed). To read it again, get() it again. Any
  // thread.
  virtual void release(const ConstTensorView& view) const = 0;
  // Done reading rows [first, last) of a view from get(), a matrix: where they are a file's pages,
  // these are dropped. The view stays valid. Any thread.
  virtual void release_rows(const ConstTensorView& view, int64_t first, int64_t last) const;
  // For messages: the file's path, or what else this is.
  virtual std::string_view description() const = 0;
  // Of the files that alone say what the tensors are, in a fixed order; empty: there are none.
  virtual std::vector<std::string> paths() const { return {}; }
  // Of all files behind it; 0 where there are none.
  virtual int64_t file_bytes() const { return 0; }
  // What tells the files' content from others' (files_sample()); 0 where there are none.
  virtual uint64_t content_sample() const { return 0; }

  // get(), and an error that names both shapes unless the tensor has `shape`.
  Result<ConstTensorView> get(std::string_view name, const Shape& shape) const;
  // get_matrix() likewise of a stack of `shape`, [experts, out, in].
  Result<ConstTensorView> get_matrix(std::string_view name, const Shape& shape,
                                     int64_t index) const;
};

// Whether a tensor is what is `wanted`: files may leave out that there is one row.
bool is_of_shape(const Shape& tensor, const Shape& wanted);

class GgufWeightSource final : public WeightSource {
 public:
  explicit GgufWeightSource(std::shared_ptr<const GgufFile> file);
  using WeightSource::get;
  using WeightSource::get_matrix;
  bool has(std::string_view name) const override { return find(name) != nullptr; }
  std::vector<std::string_view> names() const override;
  Result<ConstTensorView> get(std::string_view name) const override;
  // Of MXFP4, which is read as E2M1 (mxfp4.h).
  Result<std::shared_ptr<const RowReader>> rows(std::string_view name,
                                                int64_t index) const override;
  std::optional<WeightInfo> info(std::string_view name) const override;
  void release(const ConstTensorView& view) const override;
  void release_rows(const ConstTensorView& view, int64_t first, int64_t last) const override;
  std::string_view description() const override { return file_->name(); }
  std::vector<std::string> paths() const override { return file_->paths(); }
  int64_t file_bytes() const override { return static_cast<int64_t>(file_->file_bytes()); }
  uint64_t content_sample() const override;
  const GgufFile& file() const { return *file_; }

 private:
  const GgufTensor* find(std::string_view name) const;
  std::string_view name_of(const GgufTensor& tensor) const;

  std::shared_ptr<const GgufFile> file_;
  // By name with ".weight", which llama.cpp's converter leaves out of Falcon-H1's ffn_norm.
  std::map<std::string, const GgufTensor*, std::less<>> renamed_;
};

}  // namespace headrace
