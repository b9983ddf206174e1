// LayerRunner: calibration texts on their way through a model, a layer at a time: all texts stand
// behind layer i before any goes through layer i + 1, so that one layer's weights are in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "models/model.h"
#include "ops/op.h"
#include "quantize/matrix_math.h"
#include "tensor/communicator.h"

namespace headrace {

// Who hears of the inputs of a layer's matrices. On the thread of run().
class LayerInputs {
 public:
  virtual ~LayerInputs() = default;
  // Before the first rows: the stacks of matrices that are multiplied together, by their number.
  virtual Status begin(std::span<const MatrixStack> sites) = 0;
  virtual void add(int32_t site, const ConstTensorView& x /* [rows, K] f32 */) = 0;
};

class LayerRunner {
 public:
  // `tokens` are sequences of `length` each. The device is a CPU; all outlive the runner.
  LayerRunner(Device& device, const ModelConfig& config, const Architecture& architecture,
              std::span<const TokenId> tokens, int32_t length);

  // Rows of the embedding: where every sequence begins. Errors as of a load.
  Status embed(const WeightSource& weights);
  // What the layer's matrices multiply when all sequences go through it; they stay before it.
  Status observe(int32_t layer, const WeightSource& weights, LayerInputs& inputs);
  // All sequences go through it.
  Status advance(int32_t layer, const WeightSource& weights);
  int64_t row_count() const { return std::ssize(tokens_); }
  // Where all sequences stand, [rows, D], one after the other.
  const Matrix& hidden() const { return hidden_; }

 private:
  class Tap;
  Result<std::unique_ptr<Model>> load(LayerRange layers, const WeightSource& weights);
  Status prepare(const Model& model, int32_t layer);
  void run_some(const Model& model, int32_t layer, int64_t first, const TensorView& hidden,
                ProductTap* tap);
  int64_t rows_at_once() const;

  Device& device_;
  const ModelConfig& config_;
  const Architecture& architecture_;
  const std::vector<TokenId> tokens_;
  const int32_t length_;
  std::unique_ptr<Stream> stream_;
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
  Workspace workspace_;
  Buffer pages_;   // keys and values of one layer
  Matrix hidden_;  // [rows, D]
  std::vector<int32_t> table_;
};

}  // namespace headrace
