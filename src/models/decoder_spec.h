// What a decoder-only transformer is made of, as plain data: an architecture turns a ModelConfig
// into a DecoderSpec, and one Decoder (models/decoder.h) runs them all.
//
// A layer is
//   branch = mixer(pre_norm(x));          x := x + residual_scale * post_norm(branch)
//   branch = feed_forward(pre_norm(x));   x := x + residual_scale * post_norm(branch)
// where each norm, and either part, may be absent, or, of parallel layers, the second reads x as
// the first did. What a layer does to x around them is its frame's. The parts are those of
// parts/part_list.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/parts/part_list.h"

namespace headrace {

// One rotation, shared by the layers that name it.
struct RopeTable {
  std::vector<double> inv_freq;  // [rope_dim / 2], radians a position; empty: no rotation
  float scale = 1.0f;            // of cos and sin
  std::string divisors;          // a tensor [rope_dim / 2] that divides inv_freq; empty = none
  std::string other_divisors;    // one that does in texts of other lengths: there, and not read
  int64_t divisors_in_file = 0;  // of which the first are taken (Step 3.5); 0: as many as inv_freq
};

enum class LayerForm : uint8_t {
  kSequential,
  kParallel,        // the network reads x as the mixer does: x := x + mixer(x) + feed_forward(x)
  kParallelShared,  // the same through one norm, the mixer's (GPT-J, Cohere)
  kHolding,         // as kSequential; what the network reads is held for a later layer's
  kShortcut,        // the network reads what was held; the layer has no mixer (LongCat-Flash)
};

// Either part may be absent (parts/absent_part.h), with its norms.
struct DecoderLayerSpec {
  MixerSpec mixer;
  FeedForwardSpec feed_forward;
  NormKind pre_norm = NormKind::kRms;  // of both parts
  NormKind post_norm = NormKind::kNone;
  LayerForm form = LayerForm::kSequential;
  const char* mixer_norm_name = "attn_norm";  // of the tensors of the mixer's pre_norm
  const char* ffn_norm_name = "ffn_norm";     // of those of the network's
  bool mixer_reads_x = false;                 // no norm stands before it, whatever pre_norm says
  bool network_reads_x = false;               // likewise
  bool mixer_ends_bare = false;               // no norm stands behind it, whatever post_norm says
  // > 0: ranks of gates of the normalised rows that either reads (NormGate).
  int32_t mixer_gate_rank = 0;
  int32_t network_gate_rank = 0;
  // Of what the network reads (Falcon-H1), and of both branches.
  float network_input_scale = 1.0f;
  float network_scale = 1.0f;
  float mixer_scale = 1.0f;
  // > 0: what each part makes of a row is convolved over the rows of its sequence before it is
  // added to x (parts/branch_convolution.h), with so many taps (Inkling).
  int32_t branch_taps = 0;
  FrameSpec frame;  // what it does to x around both
  // Whose tensors it has, of the layers of a file; -1: those of its own place. (A layer of RWKV is
  // two here, of which each mixes the rows of a sequence.)
  int32_t block = -1;
  const char* tensor_prefix = "";  // of the names of its tensors in that layer

  // REQUIRES: the layer has it
  AttentionSpec& attention() { return std::get<AttentionSpec>(mixer); }
  DenseSpec& dense() { return std::get<DenseSpec>(feed_forward); }
};

// Rows that are added to the embeddings of tokens: position p has row first + p of
// position_embd.weight, which has no others behind the last.
struct LearnedPositions {
  int32_t count = 0;  // of positions; 0: none are learned
  int32_t first = 0;
  // > 0: they are not learned, and no tensor has them: row r has the sines of r 10000^(-k / steps)
  // for each k below half of the width, then the cosines (Vaswani et al., 2017).
  int32_t wave_steps = 0;
};

// What the layers of a draft head begin with (EAGLE; Li et al., 2024, 2025): beside the embedding
// of a token the feature of the one before it, which is made of what the model had there
// (ForwardBatch::features).
enum class FeatureUse : uint8_t {
  kNone,    // it is no head
  kJoined,  // x = fc [embedding, feature]; features are hidden rows as they are (EAGLE-1, 2)
  kBeside,  // x = feature, and the first mixer reads [norm(embedding), hidden_norm(x)]; features
            // are fc of hidden rows of several layers, side by side (EAGLE-3)
};
struct FeatureSpec {
  FeatureUse use = FeatureUse::kNone;
  int64_t fc_columns = 0;
  bool fc_bias = false;
  bool norm_first = false;  // kBeside: x begins as hidden_norm(feature)
};

struct DecoderSpec {
  ModelSpec model;
  std::vector<RopeTable> ropes;
  std::vector<DecoderLayerSpec> layers;       // [model.layer_count]
  NormKind embedding_norm = NormKind::kNone;  // of embeddings: kLayer, kRms or kRmsBare, or none
  NormKind output_norm = NormKind::kRms;
  std::string output_norm_name = "output_norm";  // of its tensors
  float norm_eps = 0.0f;
  float embedding_scale = 1.0f;
  LearnedPositions positions;
  float residual_scale = 1.0f;
  float logit_scale = 1.0f;
  float logit_soft_cap = 0.0f;  // 0 = none
  bool tied_embeddings = false;
  bool output_bias = false;         // of the output matrix
  OutputHead head;                  // its classes are no part of the decoder
  CarriedSpec carried;              // what frames read beside x
  bool carries_embeddings = false;  // mixers find them in what is carried (Zamba 2)
  FeatureSpec features;
  // Rows of the output matrix: of a vocabulary of its own (a draft head), or of the first tokens,
  // where others cannot come; 0: vocab_size.
  int32_t output_vocab = 0;

  // Rows of a file's output matrix, of which the first are taken.
  int32_t outputs_in_file() const { return head.padded ? model.vocab_size : outputs(); }
  int32_t outputs() const { return output_vocab > 0 ? output_vocab : model.vocab_size; }
};

// What every decoder takes from the configuration as it is, the layers alike, of attention and a
// dense feed-forward network or a mixture of experts (of a softmax that is normalised where the
// file does not say): sizes, biases, one rotation, scales (scores by 1 / sqrt(head_dim) where the
// file does not say), a window in all layers, or those that the file names. An architecture starts
// from it.
DecoderSpec uniform_decoder(const ModelConfig& config);

// The layer of a file whose tensors layer `index` has.
inline int32_t block_of(const DecoderSpec& spec, int32_t index) {
  const int32_t block = spec.layers[static_cast<size_t>(index)].block;
  return block < 0 ? index : block;
}

inline const char* prefix_of(const DecoderSpec& spec, int32_t index) {
  return spec.layers[static_cast<size_t>(index)].tensor_prefix;
}

// Applies `change` to each layer.
template <class Change>
void for_each_layer(DecoderSpec& spec, Change change) {
  for (size_t i = 0; i < spec.layers.size(); ++i) change(spec.layers[i], static_cast<int32_t>(i));
}

// Applies `change` to the attention of each layer. REQUIRES: each has it
template <class Change>
void for_each_attention(DecoderSpec& spec, Change change) {
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) { change(layer.attention(), i); });
}

// Which layers slide where a file does not say it: all but each `period`-th.
void slide_all_but_each(DecoderSpec& spec, const ModelConfig& config, int32_t period);

// Fills in what follows from the mixers: model.kv, model.state_bytes, model.query_heads.
ModelSpec model_spec(const DecoderSpec& spec);

// Every tensor of the model, by GGUF name.
std::vector<TensorSpec> decoder_tensors(const DecoderSpec& spec);

}  // namespace headrace
