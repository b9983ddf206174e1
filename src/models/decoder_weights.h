// The weights of a Decoder in device memory, and their load from any WeightSource.
#pragma once

#include <optional>
#include <vector>

#include "models/decoder_layer.h"

namespace headrace {

struct RopeWeights {
  Buffer inv_freq;  // [count] double
  int64_t count = 0;
  float scale = 1.0f;
};

// Of a draft head (FeatureSpec).
struct FeatureWeights {
  LinearLayer fc;    // [D, fc_columns]
  NormWeights norm;  // [D] hidden_norm, of kBeside
};

struct DecoderWeights {
  // [V, D]: on the CPU the file's own rows, or no data where the head has them as exactly; on a GPU
  // the matrix below or a tied head's, or no data where that is packed.
  ConstTensorView embedding;
  LinearWeight embedding_matrix;  // [V, D]; CUDA, unless the head is tied
  DeviceVector positions;         // [P, D], where they are learned
  std::vector<RopeWeights> ropes;
  std::vector<DecoderLayer> layers;
  NormWeights embedding_norm;  // [D], or kNone
  NormWeights output_norm;     // [D], logit_scale included
  LinearWeight output;         // [V, D]; of a rank, its rows; empty where it was left out
  DeviceVector output_bias;    // [V] or empty
  Shares vocabulary;           // of the ranks; one where the head is whole
  FeatureWeights features;
  std::optional<CarriedRows> carried;      // of models whose frames read such
  std::vector<MatrixStack> adapter_sites;  // by LinearLayer::site
};

// visit(LinearWeight&) for all that a step multiplies by, in its order.
template <class Weights, class Visit>
void for_each_matrix(Weights& weights, const Visit& visit) {
  for (const DecoderLayer& layer : weights.layers) for_each_matrix(layer, visit);
  if (weights.carried) {
    for (LinearWeight* weight : const_cast<CarriedRows&>(*weights.carried).matrices()) {
      visit(*weight);
    }
  }
  if (weights.features.fc.weight.n() > 0) visit(weights.features.fc.weight);
  if (weights.output.n() > 0) visit(weights.output);
}

// Errors name the source and the tensor.
Result<DecoderWeights> load_decoder_weights(const DecoderSpec& spec, const WeightSource& source,
                                            Device& device, const ModelLoadOptions& options);

}  // namespace headrace
