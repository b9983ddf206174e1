// Multi-head latent attention (DeepSeek-AI, 2024): of a token a latent c and one rotated key r are
// kept, for all heads. Head h has the key [K_h c, r] and the value V_h c, so that
//   score = q_h' K_h c + rotate(q_h)' r = (K_h' q_h)' c + rotate(q_h)' r
// and heads attend the latents themselves: their queries take K_h in, what they see goes through
// V_h. Keys and values of heads are never made (the absorbed form). Of ranks each has some of the
// heads, and keeps the latents of all. Where it has an index, rows attend the keys that are chosen.
#pragma once

#include <memory>

#include "models/parts/key_index.h"
#include "models/parts/layer_part.h"
#include "ops/rows/scale_queries.h"

namespace headrace {

struct LatentAttentionSpec {
  int32_t heads = 0;
  int32_t rank = 0;        // of the latent
  int32_t query_rank = 0;  // of that of queries; 0: they are made of the row
  int32_t plain_dim = 0;   // of a query, what meets the latent
  int32_t rope_dim = 0;    // and what meets the rotated key
  int32_t value_dim = 0;
  int32_t rope = 0;    // index into DecoderSpec::ropes
  float scale = 0.0f;  // of scores
  float norm_eps = 0.0f;
  float latent_scale = 1.0f;      // of what is kept of a row but the rotated key (LongCat-Flash)
  QueryTemperature temperature;   // of queries at later positions (Mistral 4)
  bool rows_interleaved = false;  // rotated rows lie in the order of interleaved rotation
  bool joined = true;             // K and V are attn_kv_b, a head's K above its V; else K' is
                                  // attn_k_b and V attn_v_b, a matrix a head
  // > 0: what a head sees is multiplied by the sigmoids of so many numbers of the row, attn_gate's:
  // of one, or of value_dim (Ling 3, Hunyuan V4).
  int32_t gate_dim = 0;
  // Queries are made of their latent and, behind it, of the same before its norm, and so are gates:
  // attn_q_b has a head's query, then its gates (A.X-K2).
  bool query_and_gates = false;
  bool sinks = false;  // attn_sinks: a logit of each head without a value (Hunyuan V4)
  KeyIndexSpec index;

  int32_t query_dim() const { return plain_dim + rope_dim; }
  int32_t kept_dim() const { return rank + rope_dim; }
};

std::unique_ptr<Mixer> make_part(const LatentAttentionSpec& spec, int64_t hidden);

}  // namespace headrace
