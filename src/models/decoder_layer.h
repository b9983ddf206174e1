// A layer of a Decoder: a mixer and a feed-forward network, each between its norms. Made of its
// spec it knows its sizes; load() gives it its weights.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "models/decoder_spec.h"
#include "models/parts/branch_convolution.h"

namespace headrace {

struct DecoderLayer {
  NormWeights mixer_norm;  // [D], as all norms here
  std::unique_ptr<Mixer> mixer;
  NormWeights mixer_post_norm;
  NormWeights ffn_norm;
  std::unique_ptr<FeedForward> feed_forward;
  NormWeights ffn_post_norm;
  std::unique_ptr<LayerFrame> frame;  // null: none
  // Of what the parts make, before the norms behind them.
  std::optional<BranchConvolution> mixer_convolution, network_convolution;
  const char* mixer_norm_name;
  const char* ffn_norm_name;
  LayerForm form;
  bool has_mixer = true, has_network = true;       // the others are AbsentParts
  float mixer_scale = 1.0f, network_scale = 1.0f;  // of their branches

  // Of what the network reads.
  const NormWeights& network_norm() const {
    return form == LayerForm::kParallelShared ? mixer_norm : ffn_norm;
  }
  // What it keeps of a sequence: the mixer's, then those of the convolutions from these bytes on.
  int64_t mixer_convolution_state() const { return aligned_state_bytes(mixer->state_bytes()); }
  int64_t network_convolution_state() const {
    return mixer_convolution_state() + aligned_state_bytes(mixer_convolution->state_bytes());
  }
  int64_t state_bytes() const {
    if (!mixer_convolution) return mixer->state_bytes();
    return network_convolution_state() + network_convolution->state_bytes();
  }

  // Before load(): from here on the parts are those of one rank. Errors name what cannot be split.
  Status split(const ShardSpec& shard);
  // Asks for every tensor of the layer, in the order of the file formats' own writers.
  Status load(LayerTensors& tensors, int64_t hidden);
};

// Layer `index` of the decoder, without weights.
DecoderLayer make_layer(const DecoderSpec& spec, int32_t index);

// Fills in what follows from the mixers: kv, state_bytes, query_heads.
ModelSpec model_spec(ModelSpec model, std::span<const DecoderLayer> layers);

// visit(LinearWeight&) for all that a step multiplies by in the layer, in its order.
template <class Visit>
void for_each_matrix(const DecoderLayer& layer, const Visit& visit) {
  for (const NormWeights* const norm : {&layer.mixer_norm, &layer.ffn_norm}) {
    if (norm->gate.rank == 0) continue;
    auto& gate = const_cast<NormGate&>(norm->gate);
    visit(gate.down.weight);
    visit(gate.up.weight);
  }
  for (LinearWeight* weight : layer.mixer->matrices()) visit(*weight);
  for (LinearWeight* weight : layer.feed_forward->matrices()) visit(*weight);
  if (layer.frame == nullptr) return;
  for (LinearWeight* weight : layer.frame->matrices()) visit(*weight);
}

}  // namespace headrace
