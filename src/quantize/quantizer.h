// Quantizer: a model's matrices to few bits, a layer at a time. Texts stand before a layer; what
// its matrices multiply is measured, the matrices are rounded by a method that knows it, written,
// and the texts go through the layer as it was written, so that the next one's inputs are those
// that it will have.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/named.h"
#include "base/status.h"
#include "models/model.h"
#include "quantize/layer_runner.h"
#include "quantize/output_model.h"
#include "quantize/quantised_matrix.h"

namespace headrace {

enum class QuantizeMethod {
  kNearest,  // to nearest; of GGUF types by importance where there is a text
  kGptq,
  kAwq,
};
inline constexpr Named<QuantizeMethod> kQuantizeMethods[] = {
    {"nearest", QuantizeMethod::kNearest},
    {"rtn", QuantizeMethod::kNearest},
    {"gptq", QuantizeMethod::kGptq},
    {"awq", QuantizeMethod::kAwq},
};

struct QuantizeOptions {
  QuantizeMethod method = QuantizeMethod::kGptq;
  IntegerGrid grid;
  bool act_order = true;  // of GPTQ
  double damping = 0.01;
  std::optional<DType> block_type;  // of a GGUF file; empty: the grid
};

// The matrices of a decoder's layers that are quantised, by GGUF name, in the order of layers, and
// their columns. kUnsupported, with a reason: a model whose layers are not attention and a dense
// feed-forward network.
struct QuantisedName {
  std::string name;
  int32_t layer;
  Shape shape;
};
Result<std::vector<QuantisedName>> matrices_to_quantise(const ModelConfig& config,
                                                        const Architecture& architecture);

// What became of a layer.
struct LayerReport {
  int32_t layer = 0;
  // |(Q(W) - W) X|^2 / |W X|^2 of the layer's products together; < 0: nothing was measured.
  double error = -1;
  double seconds = 0;
};

// Work that is done and that there is, in layers; some of a layer.
using QuantizeProgress = std::function<void(double layers, std::string_view what)>;

struct QuantizeJob {
  const ModelConfig& config;
  const Architecture& architecture;
  const WeightSource& source;
  std::vector<QuantisedName> matrices;
  std::vector<TokenId> tokens;  // sequences of `length`; none: no text is measured
  int32_t length = 512;
  QuantizeOptions options;
  int32_t layers_done = 0;  // by an interrupted run, in `output`
};

class Quantizer {
 public:
  // All outlive it. The device is a CPU.
  Quantizer(Device& device, const QuantizeJob& job, OutputModel& output);
  ~Quantizer();

  // Layers that were done before, then the others; `layer_done` after each of these, which is on
  // the disk then.
  Status run(const QuantizeProgress& progress,
             const std::function<Status(const LayerReport&)>& layer_done);

 private:
  Status quantise_layer(int32_t layer, LayerReport& report, const QuantizeProgress& progress);
  Status advance(int32_t layer);

  Device& device_;
  const QuantizeJob& job_;
  OutputModel& output_;
  MatrixMath math_;
  std::unique_ptr<LayerRunner> runner_;  // null: no text
};

}  // namespace headrace
