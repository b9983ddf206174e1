// The weights of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json lists.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "weights/hf_names.h"
#include "weights/hub_matrix.h"
#include "weights/safetensors.h"
#include "weights/weight_source.h"

namespace headrace {

struct SafetensorsOptions {
  HfTensorNames names;           // must outlive the source
  bool tied_embeddings = false;  // an output.weight is a copy of the embedding, and not read
  // create(): how quantised matrices are stored; empty: all are plain. open() reads the folder's
  // own configuration.
  std::optional<HubQuantisation> quantisation = {};
};

// Tensors under their GGUF names. A tensor that no row of the table knows keeps the name it has, so
// that whoever holds names() against what the architecture declares finds it.
//
// get() gives a view of the mapping, except where a GGUF file would hold other values (rows with an
// offset), where it lies in pieces (a tensor for each expert, or gate and up in one), or where the
// file did not align the data to 8 bytes: then an own copy, which release() frees. A matrix of a
// stack is in one piece. A quantised matrix (hub_matrix.h) is M.weight, whatever its tensors are
// called, best read by rows(); get() makes a copy of it.
class SafetensorsWeightSource final : public WeightSource {
 public:
  // `path`: a folder, or one .safetensors file. Every shard that the index lists must be there and
  // hold exactly the tensors that the index says.
  static Result<std::unique_ptr<SafetensorsWeightSource>> open(const std::string& path,
                                                               const SafetensorsOptions& options);
  // The same from files that are open already; `description` is for messages.
  static Result<std::unique_ptr<SafetensorsWeightSource>> create(
      std::vector<std::shared_ptr<const SafetensorsFile>> files, std::string description,
      const SafetensorsOptions& options);

  using WeightSource::get;
  using WeightSource::get_matrix;
  bool has(std::string_view name) const override { return find(name) != nullptr; }
  std::vector<std::string_view> names() const override;
  Result<ConstTensorView> get(std::string_view name) const override;
  Result<ConstTensorView> get_matrix(std::string_view name, int64_t index) const override;
  Result<std::shared_ptr<const RowReader>> rows(std::string_view name,
                                                int64_t index) const override;
  bool adds_nothing(std::string_view name) const override;
  std::optional<WeightInfo> info(std::string_view name) const override;
  std::string name_in_file(std::string_view name) const override {
    return hf_name_of(names_, name);
  }
  void release(const ConstTensorView& view) const override;
  void release_rows(const ConstTensorView& view, int64_t first, int64_t last) const override;
  std::string_view description() const override { return description_; }

  const std::vector<std::shared_ptr<const SafetensorsFile>>& files() const { return files_; }
  int64_t file_bytes() const override;
  uint64_t content_sample() const override;

 private:
  // Of rows; by turns, of the numbers of a vector, and of rows.
  enum class Half { kNone, kFirst, kSecond, kEven, kOdd, kEvenRows, kOddRows };
  struct Entry {
    std::string name;
    // One, or those of all experts.
    std::vector<const SafetensorsTensor*> tensors;
    // Of tensors that are the quants of matrices, these; else empty.
    std::vector<std::shared_ptr<const HubMatrix>> quantised = {};
    float offset = 0;
    bool by_expert = false;   // a tensor each
    Half half = Half::kNone;  // of the rows of each matrix
    Shape shape = {};         // as a GGUF file has it
    // Made where get() needs one, of a matrix by its number, of the whole tensor by kWhole.
    std::map<int64_t, std::unique_ptr<std::byte[]>> copies = {};
    bool is_quantised() const { return !quantised.empty(); }
    bool in_pieces() const { return by_expert || half != Half::kNone; }
    bool by_turns() const { return half == Half::kEven || half == Half::kOdd; }
    bool rows_by_turns() const { return half == Half::kEvenRows || half == Half::kOddRows; }
  };
  static constexpr int64_t kWhole = -1;
  struct NamedTensor;  // a tensor of a file, and what it is here
  static Result<std::vector<Entry>> join(std::vector<NamedTensor> tensors,
                                         std::string_view description);
  // Tensors of files under other shapes.
  using Reshaped = std::vector<std::unique_ptr<const SafetensorsTensor>>;
  static Result<std::vector<NamedTensor>> name_tensors(
      const std::vector<std::shared_ptr<const SafetensorsFile>>& files,
      std::string_view description, const SafetensorsOptions& options, Reshaped& reshaped);
  static Result<const SafetensorsTensor*> stack_of(
      const std::vector<std::shared_ptr<const SafetensorsFile>>& files,
      const SafetensorsTensor& flat, Reshaped& reshaped);
  static Status add_experts(const std::vector<std::shared_ptr<const SafetensorsFile>>& files,
                            const SafetensorsTensor& tensor, const HfMatch& match,
                            std::vector<NamedTensor>& tensors);
  static Status check_pieces(const Entry& entry, std::string_view description);
  static Status check_quantised(const Entry& entry, std::string_view description);
  SafetensorsWeightSource(std::vector<std::shared_ptr<const SafetensorsFile>> files,
                          std::string description, const SafetensorsOptions& options,
                          std::vector<Entry> entries, Reshaped reshaped);
  Entry* find(std::string_view name) const;
  static DType dtype_of(const Entry& entry);
  // Of a quantised entry: its matrices, as get() gives them.
  Result<ConstTensorView> made(Entry& entry, int64_t index) const;
  void release_bytes(std::span<const std::byte> bytes) const;
  // What there is of a tensor that can be read.
  Result<Entry*> readable(std::string_view name) const;
  static std::span<const std::byte> matrix_bytes(const Entry& entry, int64_t index);
  // Of a matrix of the file, the rows that are the entry's.
  static std::span<const std::byte> half_of(const Entry& entry, std::span<const std::byte> matrix);
  // A view of these bytes of the entry, or of a copy of them.
  ConstTensorView aligned(Entry& entry, int64_t index, std::span<const std::byte> bytes,
                          const Shape& shape) const;
  // The tensor's values as a GGUF file has them, in aligned memory.
  static std::unique_ptr<std::byte[]> converted(const Entry& entry);
  // Of numbers or rows by turns in so many bytes of its tensor, this entry's.
  static std::unique_ptr<std::byte[]> each_second(const Entry& entry,
                                                  std::span<const std::byte> all);
  // A matrix of a stack whose rows lie by turns.
  ConstTensorView rows_of_turns(Entry& entry, int64_t index) const;

  std::vector<std::shared_ptr<const SafetensorsFile>> files_;
  const Reshaped reshaped_;
  std::string description_;
  HfTensorNames names_;
  bool is_quantised_;
  mutable std::mutex mutex_;            // guards the copies in entries_
  mutable std::vector<Entry> entries_;  // sorted by name
};

}  // namespace headrace
