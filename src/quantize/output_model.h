// OutputModel: the file or folder that a quantised model becomes. It is made beside its name, which
// it gets when it is whole; until then its tensors are filled in in any order, and what an
// interrupted run had filled in is there for the next.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "quantize/quantised_matrix.h"
#include "weights/gguf.h"
#include "weights/safetensors_source.h"

namespace headrace {

class OutputModel {
 public:
  virtual ~OutputModel() = default;
  // Whether it holds what a run before has written.
  virtual bool continued() const = 0;
  // A matrix that is quantised, under its GGUF name. REQUIRES: one that it was made for
  virtual void write(std::string_view name, const QuantisedMatrix& matrix) = 0;
  // As it was written: what the format stands for.
  virtual Result<QuantisedMatrix> read(std::string_view name) const = 0;
  // A float vector or matrix that takes the place of the source's, in its type.
  virtual void write_float(std::string_view name, std::span<const float> values) = 0;
  virtual Result<std::vector<float>> read_float(std::string_view name) const = 0;
  // All but the matrices that are quantised, as the source has it.
  virtual Status copy_rest() = 0;
  // What was written is on the disk.
  virtual Status flush() = 0;
  // From here on it is there under its name.
  virtual Status finish() = 0;
};

// A Hugging Face folder in compressed-tensors' "pack-quantized" (vllm-project/compressed-tensors):
// M.weight_packed [N, K / 8] I32, M.weight_scale [N, groups], M.weight_zero_point [N / 8, groups]
// I32 of grids with zero points, M.weight_shape. config.json says so; the other files are copied.
struct HfOutputOptions {
  std::string source;   // the folder
  std::string path;     // of the folder that is made
  std::string partial;  // beside it, until it is whole
  HfTensorNames names;
  std::vector<std::string> matrices;  // GGUF names of those that are quantised
  IntegerGrid grid;
  bool act_order = false;
};
Result<std::unique_ptr<OutputModel>> create_hf_output(const HfOutputOptions& options,
                                                      const SafetensorsWeightSource& source);

// A GGUF file with the keys of another.
struct GgufOutputOptions {
  std::string path;
  std::string partial;
  std::vector<std::pair<std::string, DType>> matrices;  // those that are quantised, and to what
  DType dtype = DType::kQ4_0;                           // of most
};
Result<std::unique_ptr<OutputModel>> create_gguf_output(const GgufOutputOptions& options,
                                                        std::shared_ptr<const GgufFile> source);

}  // namespace headrace
