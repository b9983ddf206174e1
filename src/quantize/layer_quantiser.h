// LayerQuantiser: one layer's matrices, what they multiply, and what a method makes of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "quantize/input_statistics.h"
#include "quantize/quantizer.h"

namespace headrace {

class LayerQuantiser {
 public:
  // `inputs` may be empty: nothing was measured. All outlive it.
  LayerQuantiser(MatrixMath& math, const QuantizeJob& job, OutputModel& output, int32_t layer,
                 std::vector<InputStatistics> inputs);

  // Reads, rounds and writes all matrices of the layer. Errors name the tensor.
  Status run(LayerReport& report);

 private:
  // What inputs of a matrix may be divided by, to its profit: a vector, or rows of a matrix.
  struct Source {
    std::string norm = {};    // blk.N.attn_norm.weight
    std::string matrix = {};  // blk.N.ffn_up.weight
    int32_t shared_by = 1;    // heads of inputs that are made of the same rows
  };
  Source source_of(const InputStatistics& inputs) const;
  Status scale_columns();
  Status scale_columns(InputStatistics& inputs, const Source& source);
  Result<std::vector<float>> divide_norm(const std::string& norm, std::vector<float> scales);
  Status quantise(const std::string& name);
  Result<QuantisedMatrix> rounded(const std::string& name, const Matrix& weights);
  Result<IntegerMatrix> integers(const std::string& name, const Matrix& weights);
  const InputStatistics* inputs_of(std::string_view name) const;
  std::string in_layer(std::string_view name) const;
  bool has(std::string_view name) const { return job_.source.has(in_layer(name)); }

  MatrixMath& math_;
  const QuantizeJob& job_;
  OutputModel& output_;
  const int32_t layer_;
  std::vector<InputStatistics> inputs_;
  std::map<std::string, Matrix, std::less<>> weights_;
  double changed_ = 0, all_ = 0;
};

}  // namespace headrace
