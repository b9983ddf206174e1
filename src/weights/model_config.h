// ModelConfig: the sizes and constants of a model, from GGUF metadata or a Hugging Face
// config.json. Whatever reaches a ModelConfig is checked: every size is within kModelLimits and the
// relations between sizes hold, so that code behind it multiplies them without overflow (the
// largest product, vocab x hidden, is below 2^44). What a file asks for and this program has not is
// refused here, by name.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "weights/gguf.h"

namespace headrace {

// How rotary frequencies are stretched beyond the context that a model was trained on.
struct RopeScaling {
  enum class Kind {
    kNone,
    kLinear,    // positions divided by factor
    kDynamic,   // a larger base for longer texts (NTK-aware)
    kLlama3,    // low frequencies divided by factor, a ramp between (Llama 3.1)
    kYarn,      // Peng et al., 2023
    kLongRope,  // a divisor per frequency, one list for short and one for long texts (Phi-3)
  };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  int32_t original_context = 0;  // of llama3, yarn, longrope
  double attention_factor = 0;   // of cos and sin; 0: by the rule of yarn and longrope
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // yarn
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 0.0;  // both 0: not given
  double mscale_all_dim = 0.0;
  bool truncate = true;  // the ramp starts and ends at whole dimensions
  // longrope; empty where the file has them as tensors (rope_factors_short.weight, ..._long)
  std::vector<double> short_factors;  // [rope_dim / 2]
  std::vector<double> long_factors;   // [rope_dim / 2]
  bool divisors = false;              // the file has rope_freqs.weight: divisors of the frequencies
};

// How a router's logits become scores of experts.
enum class ExpertScores : uint8_t { kSoftmax, kSigmoid, kSparseMixer, kSqrtSoftplus };

// Of models whose feed-forward networks are mixtures of experts.
struct ExpertConfig {
  int32_t count = 0;         // 0: every layer has one network, which all tokens take
  int32_t used = 0;          // experts that a token takes, at most `count`
  int32_t width = 0;         // of each expert
  int32_t identities = 0;    // more of them, which give back their rows (LongCat-Flash)
  int32_t shared_count = 0;  // experts that every token takes; as one network they have
  int32_t shared_width = 0;  // this width; 0 = none
  float tolerance = 0;       // of kSparseMixer
  float gate_limit = 0;      // of gates, and of ups on both sides; 0: none
  float gate_slope = 0;      // of the clamped swish of networks (MiniMax M3); 0: none
  // [layers] of activated gates, and of ups on both sides; 0: none; empty: none in any layer. Of
  // experts, then of shared ones and dense networks (Step 3.5).
  std::vector<float> limits;
  std::vector<float> whole_limits;
  float scale = 1;                     // of the weights of experts that are chosen
  bool biases_logits = false;          // a bias of the choice is of logits, not of scores
  bool averaged = false;               // with what shared experts make, in place of their sum
  std::optional<bool> normalised;      // these add up to 1; empty = the architecture's rule
  std::optional<ExpertScores> scores;  // empty = the architecture's rule
  int32_t groups = 1;                  // of neighbouring experts; divides count
  int32_t groups_used = 1;             // a token takes experts of the best so many
  int32_t dense_first = 0;             // so many layers at the front are no mixtures
  std::vector<bool> dense_layers;      // [layers] nor are these; empty = none
  bool on_shortcut = false;            // they read what the network before the layer's second half
                                       // does (LongCat-Flash)

  bool in_layer(int32_t layer) const {
    return count > 0 && layer >= dense_first &&
           (dense_layers.empty() || !dense_layers[static_cast<size_t>(layer)]);
  }
};

// What a layer mixes the rows of a sequence by.
enum class LayerMixer : uint8_t {
  kAttention,
  kShortConv,  // LFM2's gated short convolution
  kDeltaNet,   // gated DeltaNet (Qwen3-Next)
  kKimiDelta,  // Kimi Delta Attention
  kLightning,  // lightning attention (MiniMax-Text-01)
  kMamba,
  kMamba2,
  kMamba2Beside,  // attention and Mamba-2 side by side (Falcon-H1)
  kRgLru,         // a gated recurrence (RecurrentGemma)
  kRwkv7,         // with a network that shifts tokens, too
  kConvolved,     // attention whose keys, values and branches are convolved (Inkling)
  kNone,          // the layer is a network alone (Nemotron-H)
};

// RMSNorms of a scan's time steps, B and C.
enum class ScanNorms : uint8_t {
  kNone,
  kBare,     // without weights (FalconMamba)
  kWeights,  // (Jamba)
};

// Of blocks whose weights several layers share (Zamba 2). Their uses take turns.
struct SharedBlockConfig {
  int32_t blocks = 0;
  int32_t rank = 0;                // of what each use adds to the network's first product; 0: none
  bool adds_to_attention = false;  // and to queries, keys and values
};
inline constexpr int32_t kSharedUsesMax = 64;  // of all blocks

// Of selective state spaces: Mamba, whose channels have a state each, and Mamba-2, whose heads do.
struct StateSpaceConfig {
  int32_t inner = 0;  // width of x
  int32_t state_dim = 0;
  bool conv_bias = true;
  bool in_bias = false;
  bool out_bias = false;
  // Of Mamba.
  int32_t dt_rank = 0;
  ScanNorms scan_norms = ScanNorms::kNone;
  float scan_norm_eps = 1e-6f;
  // Of Mamba-2.
  int32_t heads = 0;  // a multiple of groups; 0: it is Mamba
  int32_t head_dim = 0;
  int32_t groups = 1;  // of heads that share B and C, and are normalised together
  float dt_min = 0;
  float dt_max = std::numeric_limits<float>::infinity();
  bool norm = true;
  bool norm_before_gate = false;
  SharedBlockConfig shared;
};

// What Falcon-H1 multiplies by, beside what other families do.
struct BranchMultipliers {
  float ssm_in = 1;
  float ssm_out = 1;
  std::array<float, 5> ssm = {1, 1, 1, 1, 1};  // of z, x, B, C, dt
  float attention_in = 1;
  float attention_out = 1;
  float key = 1;
  std::array<float, 2> ffn = {1, 1};  // of the gate, of the branch
};

// Of DeepSeek V4: keys that several tokens share, what heads' groups make, and the rest that is its
// own.
struct SharedKeysConfig {
  enum class Kind : uint8_t {
    kNone,     // rows attend a window alone
    kIndexed,  // and keys of overlapping runs of tokens that an index chooses
    kAll,      // or all keys of runs
  };
  std::vector<Kind> layers;  // [layers]; empty: it is another architecture
  int32_t indexed_rate = 4;  // tokens of a run
  int32_t all_rate = 128;
  int32_t groups = 0;                   // of heads
  int32_t group_rank = 0;               // of what a group's product makes
  int32_t stream_rounds = 0;            // in which the matrix of streams is made doubly stochastic
  std::vector<bool> networks_by_token;  // [layers] whose experts are those of the token
};

// Of multi-head latent attention (DeepSeek-AI, 2024), which keeps a latent of each token and one
// rotated key that all heads share.
struct LatentConfig {
  int32_t rank = 0;        // of what is kept; 0: heads have keys and values of their own
  int32_t query_rank = 0;  // of the latent that queries are made of; 0: they are made of the row
  int32_t plain_dim = 0;   // of a head's query and key, what is not rotated
  int32_t rope_dim = 0;    // and what is
  int32_t value_dim = 0;   // of a head
  int32_t key_dim = 0;     // both together, where a file has it so
  bool joined = true;      // keys' and values' matrices lie in one tensor, attn_kv_b
  // Of an index that says which keys a row attends (DeepSeek V3.2).
  int32_t index_heads = 0;         // 0: rows attend all that they see
  int32_t index_dim = 0;           // of its keys
  int32_t index_top = 0;           // keys that a row attends, at most
  bool index_interleaved = false;  // rows of its rotated components lie in that order
  std::vector<bool>
      index_shared;              // [layers] these attend what the one before them does; empty: none
  int32_t norm_gate_rank = 0;    // of gates of normalised rows (A.X-K2); 0: they have none
  SharedKeysConfig shared_keys;  // of DeepSeek V4, which keeps no latents, and has queries of one
};

// Of an index that says which blocks of keys the heads of a row attend (MiniMax M3, Qwen 4).
struct BlockIndexConfig {
  int32_t heads = 0;         // as many as key heads, but of pooled blocks
  int32_t dim = 0;           // of its keys
  int32_t tokens = 0;        // of a block
  int32_t top = 0;           // blocks that a head attends, at most
  int32_t local = 0;         // the last ones, whatever they score
  bool pooled = false;       // a block has one key, `top` are of those that are complete
  std::vector<bool> layers;  // [layers] those that have one; empty: none
};

// Of RWKV-7. Ranks are of what decays, rates (ICLR), gates of the first layer's values and gates of
// rows are made of.
struct RwkvConfig {
  int32_t head_dim = 0;  // 0: it is none
  int32_t decay_rank = 0;
  int32_t rate_rank = 0;
  int32_t value_rank = 0;
  int32_t gate_rank = 0;
  float norm_eps = 0;          // of heads
  bool shifts_joined = false;  // the mixes of a layer lie in one tensor
};

inline constexpr int32_t kNgramPartsMax = 1024;
// Of Qwen 4, some of whose layers read the last few tokens themselves: hashes of them say rows of a
// table.
struct NgramConfig {
  std::vector<int32_t> layers;  // ascending; empty: none
  int32_t width = 0;            // of the rows of all hashes side by side
  int32_t size = 0;             // tokens of the longest
  int32_t hashes = 0;           // of each length
  int32_t rows_min = 0;         // of a hash: their numbers are the primes from here on
  int32_t rows_divisor = 1;     // of the rows of a table
  int32_t parts = 1;            // tensors that a table lies in
  int32_t taps = 0;             // of the convolution of what is added
  int64_t seed = 0;             // of what tokens are multiplied by
  int32_t end_id = 0;           // of a text
};

// Of Gemma 3n and 4, whose layers are not all alike and read more than the rows before them.
struct GemmaConfig {
  // Layers at the end that attend what the last layer of their kind before these keeps.
  int32_t sharing_layers = 0;
  std::vector<int32_t> widths;  // [layers] of networks; empty: all as ModelConfig::ffn
  // What a layer reads of the token itself: a row of a table for all layers.
  int32_t input_width = 0;  // of each layer; 0: it reads nothing
  int32_t input_vocab = 0;  // rows of the table
  // Of Gemma 4.
  bool layer_scales = false;          // a layer's rows are multiplied by a number at its end
  int32_t full_head_dim = 0;          // of layers that do not slide; 0: as of the others
  int32_t full_kv_heads = 0;          // likewise
  double full_rotated = 1;            // share of the pairs of a head that rotate there
  bool full_values_are_keys = false;  // values there are made of what keys are made of
  bool experts_fused = false;         // gates and ups of experts lie in one tensor
  // Of Gemma 3n.
  int32_t streams = 0;  // of rows beside each other (AltUp); 0: there is one
  int32_t active_stream = 0;
  bool scales_corrected = true;
  bool streams_stacked = false;  // their matrices lie in one tensor
  int32_t laurel_rank = 0;
  // Of Hunyuan V4, whose streams are read and written by gates.
  float hyper_magnitude = 0;  // 0: they are not
  float hyper_eps = 0;
  int32_t gate_rank = 0;  // of gates of streams (Qwen 4)
  NgramConfig ngrams;
  // [layers] or empty: of gates, those above mean + so many deviations are kept; NaN: all.
  std::vector<float> gate_cutoffs;
};

// What rows, normalised, and what is added to them are multiplied by, of layers that
// attend, of the others, and of networks.
struct AddedScales {
  float full_rows = 1;
  float full_branch = 1;
  float linear_rows = 1;
  float linear_branch = 1;
  float network_rows = 1;
  float network_branch = 1;
};

// Of MiniMax.
struct MiniMaxConfig {
  AddedScales added;             // MiniMax-Text-01
  BlockIndexConfig block_index;  // M3
};

// Of delta rules, how a state learns and forgets.
struct DeltaRuleConfig {
  float beta_scale = 1;        // what rates of learning are multiplied by (OLMo-Hybrid)
  float decay_floor = 0;       // of the logarithms of decays; 0: none (Ling 3)
  bool sigmoid_gates = false;  // of what is read, in place of SiLU's (Qwen 4)
  bool tiled = false;          // value heads of a key head lie key_heads apart (GGUF files)
  bool gates_by_head = false;  // of tensors that do not lie by head, what b and a are made of does
};

// Of Inkling: what scores gain by how far their keys are away, of profiles of distances.
struct ProfileConfig {
  int32_t count = 0;
  int32_t extent = 0;  // of layers that see all; of the others it is the window
};

// Of heads that are not all alike: values of another size than keys, and layers that slide beside
// others (MiMo V2, Laguna).
struct HeadSizes {
  int32_t sliding_heads = 0;     // query heads of layers that slide; 0: as of the others
  int32_t sliding_head_dim = 0;  // likewise
  int32_t value_dim = 0;         // 0: as keys
  float value_scale = 1;         // what values are multiplied by
  int32_t sliding_kv_heads = 0;  // of layers that slide; 0: as of the others
  int32_t sliding_rope_dim = 0;  // likewise
  std::vector<int32_t> queries;  // [layers] query heads; empty: all as ModelConfig::heads
  bool gates_of_heads = false;   // one a head, not one a component
  float qkv_clamp = 0;           // of queries, keys and values (DBRX); 0: none
  ProfileConfig profiles;
};

// By how much the queries of later positions are multiplied: 1 + scale * ln(1 + floor((position +
// offset) / step)), or, `smooth`, 1 + scale * ln(max(1, (position + offset) / step)).
struct TemperatureConfig {
  float scale = 0;  // 0: not
  int32_t step = 0;
  int32_t offset = 0;
  bool smooth = false;
};

struct MixerConfig {
  std::vector<LayerMixer> by_layer;  // [layers]; empty = all attend
  bool gated_attention = false;      // heads of layers that attend have gates (Qwen3-Next)
  std::optional<bool> head_norms;    // of queries and keys; empty = the architecture's rule
  bool parallel = false;             // networks read what mixers read (GPT-NeoX, StableLM)
  bool norms_apart = false;          // of parallel layers each part has its own (Falcon's newer)
  double rotated = 1;                // share of a head that rotates where no number says it
  int32_t conv_taps = 0;             // of the convolutions of the others
  // Of gated DeltaNet and Kimi Delta Attention.
  int32_t key_heads = 0;
  int32_t value_heads = 0;  // a multiple of key_heads
  int32_t key_dim = 0;      // of a head
  int32_t value_dim = 0;
  // How the file has it: heads' rows of q, k, v and z in one tensor (Qwen3-Next); log(-rate).
  bool tensors_by_head = false;
  bool rate_is_log = false;
  DeltaRuleConfig delta;
  StateSpaceConfig state_space;
  BranchMultipliers multipliers;
  bool one_part = false;     // a layer is its mixer or a network, not both (Mamba, Nemotron-H)
  bool rotates = true;       // queries and keys of layers that attend
  bool post_norms = false;   // of branches (HyperCLOVA X)
  bool rms_norms = false;    // in place of LayerNorms (Cohere 2 MoE)
  float alibi_bias_max = 0;  // of layers that attend, which do not rotate then; 0: none
  LatentConfig latent;
  RwkvConfig rwkv;
  int32_t drafting_layers = 0;  // behind the others; not read
  GemmaConfig gemma;
  MiniMaxConfig minimax;
  HeadSizes head_sizes;
  std::vector<double> rope_thetas;  // [layers], 0: the layer does not rotate; empty: all alike
  TemperatureConfig temperature;
  bool chunks = false;  // layers that slide see the run of `window` positions that a row is in

  LayerMixer of(int32_t layer) const {
    return by_layer.empty() ? LayerMixer::kAttention : by_layer[static_cast<size_t>(layer)];
  }
};

// What stands behind the layers.
struct OutputHead {
  bool matrix = true;   // of the vocabulary; false: of a class that has none and generates no text
  bool bias = false;    // of that matrix
  int32_t tokens = 0;   // that it has rows of, the first ones; others cannot come; 0: all
  bool padded = false;  // a file's matrix has rows of all, whatever `tokens` says
  int32_t classes = 0;  // rows of a classifier's cls.output.weight; 0: there is none

  bool generates() const { return matrix && classes == 0; }
  friend bool operator==(const OutputHead&, const OutputHead&) = default;
};

// Tensors that hold what others have apart.
struct FusedTensors {
  bool qkv = false;           // attn_qkv instead of attn_q, attn_k, attn_v
  bool qkv_by_head = false;   // in it the rows of a key head, and of its queries, are neighbours
  bool gate_up = false;       // ffn_up has gate and up
  bool shared_names = false;  // a dense network has the names of a shared expert (Granite 4)
};

struct ModelConfig {
  std::string architecture;  // as GGUF spells it: "llama"
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t heads = 0;     // query heads
  int32_t kv_heads = 0;  // divides heads
  int32_t head_dim = 0;  // even
  int32_t ffn = 0;       // of layers that are no mixtures
  ExpertConfig experts;
  int32_t vocab = 0;  // rows of the embedding
  int32_t context_length = 0;
  // The longest text that may be asked for: more than context_length where dynamic scaling of the
  // rotation reaches beyond it.
  int32_t context_length_max = 0;
  // Tokens of the longest sequence that will be served; 0 = context_length. Dynamic and longrope
  // scaling choose their frequencies by it, once, so that a token's key does not depend on how long
  // its text becomes.
  int32_t served_length = 0;
  float rms_eps = 0;  // of whatever norm the architecture has

  double rope_theta = 0;
  double rope_theta_local = 0;    // of sliding layers; 0 = the architecture's rule
  int32_t rope_dim = 0;           // even, <= head_dim: how many dimensions of a head are rotated
  RopeScaling rope_scaling;       // of layers that do not slide, where the bases differ
  std::vector<bool> rope_layers;  // [layers] which rotate; empty = the architecture's rule

  int32_t window = 0;                // of sliding layers; 0 = none slides
  std::vector<bool> sliding_layers;  // [layers]; empty = the architecture's rule

  MixerConfig mixers;

  float attention_scale = 0;  // of scores; 0 = the architecture's rule
  float attention_soft_cap = 0;
  float logit_soft_cap = 0;
  float embedding_scale = 0;  // 0 = the architecture's rule
  float residual_scale = 1;
  float logit_divisor = 1;

  bool tied_embeddings = false;  // no output.weight: token_embd.weight is used
  OutputHead head;
  bool qkv_bias = false;
  bool attention_out_bias = false;
  bool ffn_bias = false;
  FusedTensors fused;
  bool qk_rows_interleaved = false;  // rows of q and k are in the order of interleaved RoPE
  // Ids that end generation (generation_config.json, config.json, tokenizer.ggml.eos_token_id and
  // its kin), ascending, each < vocab. A vocabulary may know more.
  std::vector<int32_t> end_ids;
};

// Whether a layer keeps keys and values of tokens.
constexpr bool attends(LayerMixer mixer) {
  return mixer == LayerMixer::kAttention || mixer == LayerMixer::kMamba2Beside ||
         mixer == LayerMixer::kConvolved;
}
// Whether layers keep states, beside keys and values or in their place.
inline bool has_states(const ModelConfig& config) {
  return std::ranges::any_of(config.mixers.by_layer, [](LayerMixer mixer) {
    return mixer != LayerMixer::kAttention && mixer != LayerMixer::kNone;
  });
}
// Whether a pass has to go through all layers at once: they leave to later ones more than rows.
inline bool has_joined_layers(const ModelConfig& config) {
  return config.mixers.gemma.sharing_layers > 0 || config.mixers.gemma.input_width > 0 ||
         config.mixers.gemma.streams > 0 || !config.mixers.latent.index_shared.empty() ||
         config.mixers.state_space.shared.blocks > 0 || config.experts.on_shortcut;
}
// Whether tokens share keys, which are those of the runs of one text: rows of trees know none.
inline bool shares_keys(const ModelConfig& config) {
  return std::ranges::any_of(
      config.mixers.latent.shared_keys.layers,
      [](SharedKeysConfig::Kind kind) { return kind != SharedKeysConfig::Kind::kNone; });
}
// Whether some layer attends; else a sequence keeps states alone.
inline bool any_attends(const ModelConfig& config) {
  return config.mixers.by_layer.empty() || std::ranges::any_of(config.mixers.by_layer, attends);
}

// Bounds of sane models: an order of magnitude over the largest that exist.
struct ModelLimits {
  int32_t hidden_max = 1 << 20;
  int32_t layers_max = 1024;
  int32_t heads_max = 4096;
  int32_t head_dim_max = 4096;
  int32_t ffn_max = 1 << 22;
  int32_t experts_max = 4096;
  int32_t vocab_max = 1 << 24;
  int32_t context_length_max = 1 << 27;
  int32_t conv_taps_max = 64;
  int32_t index_top_max = 1 << 16;  // keys that an index chooses of all
};
inline constexpr ModelLimits kModelLimits;

// Errors: "file: key: what"; kUnsupported names an architecture or feature that is not known.
Result<ModelConfig> model_config_from_gguf(const GgufFile& file);
// `config` is a parsed config.json, `generation` a parsed generation_config.json or null; `path` is
// for errors.
Result<ModelConfig> model_config_from_json(const Json& config, const Json& generation,
                                           std::string_view path);
// Reads a config.json, or the one in a folder, and generation_config.json beside it where there is
// one.
// A map (weights/architecture_map.h), or null, says what a class is that is not known.
class ArchitectureMap;
Result<ModelConfig> model_config_from_file(const std::string& path,
                                           const ArchitectureMap* map = nullptr);

}  // namespace headrace
