// Attention over the paged cache: the mixer of transformers. Queries, keys and values are one
// product, rotated and kept, then attended by groups of heads (GQA; Ainslie et al., 2023).
#pragma once

#include <memory>

#include "models/parts/block_index.h"
#include "models/parts/layer_part.h"
#include "models/parts/near_keys.h"
#include "ops/rows/scale_queries.h"
#include "ops/rows/sigmoid_gate.h"

namespace headrace {

enum class QkNorm {
  kNone,
  kHead,        // RMSNorm of each head's components (Qwen3, Gemma 3)
  kHeadBehind,  // the same behind the rotation (Hunyuan)
  kHeadLayer,   // LayerNorm of each head's, with a weight and a bias for all (Persimmon)
  kEachLayer,   // the same with a weight of each head's own, and no bias (Command R+)
  kRow,         // RMSNorm over all heads of a row (OLMo 2 and 3)
};

enum class QkvTensors {
  kSeparate,  // attn_q, attn_k, attn_v
  kFused,     // attn_qkv
  // attn_qkv, in which the rows of a key head are neighbours: those of its query heads, its own,
  // its values (GPT-NeoX, Falcon)
  kFusedByHead,
  // attn_qkv in four parts of equally many heads, each its queries, its values, its keys (CodeGen)
  kFusedByQuarter,
};

// Of gates of what heads make of a row.
struct HeadGates {
  bool apart = false;     // they are attn_gate's (AFMoE)
  bool of_heads = false;  // which has one a head, for all of its components (Laguna)
  GateKind kind = GateKind::kSigmoid;
};

struct AttentionSpec {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t value_dim = 0;  // of a head's values, of others than head_dim (MiMo V2); 0: the same
  int32_t window = 0;     // > 0: sliding
  // > 0: rows see the keys of their own run of so many positions, which are no more than the window
  // has (Llama 4).
  int32_t chunk = 0;
  int32_t rope = 0;       // index into DecoderSpec::ropes
  float scale = 0.0f;     // of scores
  float soft_cap = 0.0f;  // 0 = none
  QkNorm qk_norm = QkNorm::kNone;
  float qk_norm_eps = 0.0f;      // of all norms of the part
  bool bare_qk_norm = false;     // of heads: the norms have no weights (Llama 4)
  QueryTemperature temperature;  // of queries at later positions (Llama 4, Ministral 3)
  QkvTensors qkv = QkvTensors::kSeparate;
  bool qkv_bias = false;
  float qkv_clamp = 0.0f;  // of queries, keys and values as they are made (DBRX); 0: none
  bool out_bias = false;
  // ALiBi (Press et al., 2022): in place of a rotation a score loses 2^-(bias / heads), and so on
  // for each head, a position that its key is away. 0: not.
  float alibi_bias_max = 0.0f;
  bool sinks = false;  // attn_sinks: a logit of each head without a value (gpt-oss)
  // What a head makes of a row is multiplied by the sigmoid of as many components more that the row
  // has of it: attn_q has a head's queries, then its gates (Qwen3-Next).
  bool gated = false;
  HeadGates gates;
  // The rows of q and k that rotate, the first rope_dim of a head, lie in the order of interleaved
  // rotation, as files of some architectures have them: undone at load.
  bool qk_rows_interleaved = false;
  int32_t rope_dim = 0;          // 0: head_dim
  bool sub_norm = false;         // RMSNorm of what all heads see, attn_sub_norm (BitNet)
  bool value_norm = false;       // RMSNorm of each head of values, without a weight (Gemma 4)
  bool values_are_keys = false;  // values are made of what keys are made of: there is no attn_v
  // >= 0: it has no keys and values but attends those of this layer, which is like it in window
  // and heads (Gemma 3n)
  int32_t keys_of = -1;
  NearKeysSpec near;     // convolved keys, and biases of scores by distance (Inkling)
  BlockIndexSpec index;  // rows attend the blocks of keys that it chooses (MiniMax M3)
  int64_t input = 0;     // columns of the rows that it reads; 0: as hidden rows have

  int32_t value_head_dim() const { return value_dim > 0 ? value_dim : head_dim; }
};

std::unique_ptr<Mixer> make_part(const AttentionSpec& spec, int64_t hidden);

// [heads]: of a number of heads that is no power of 2, those of the next lower one, then each
// second of the next higher one.
std::vector<float> alibi_slopes(int32_t heads, float bias_max);

}  // namespace headrace
