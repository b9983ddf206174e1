// ModelConfig: the sizes and constants of a model, from GGUF metadata or a Hugging Face
// config.json. Whatever reaches a ModelConfig is checked: every size is within kModelLimits and the
// relations between sizes hold, so that code behind it multiplies them without overflow (the
// largest product, vocab x hidden, is below 2^44).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "weights/gguf.h"

namespace headrace {

struct ModelConfig {
  std::string architecture;  // as GGUF spells it: "llama"
  std::string name;          // general.name; empty = none
  int32_t hidden = 0;
  int32_t layers = 0;
  int32_t heads = 0;     // query heads
  int32_t kv_heads = 0;  // divides heads
  int32_t head_dim = 0;  // even
  int32_t ffn = 0;
  int32_t vocab = 0;  // rows of the embedding
  int32_t context_length = 0;
  float rms_eps = 0;
  double rope_theta = 0;
  int32_t rope_dim = 0;          // even, <= head_dim: how many dimensions of a head are rotated
  bool tied_embeddings = false;  // no output.weight: token_embd.weight is used
  bool qk_rows_interleaved =
      false;  // rows of attn_q and attn_k are in the order of interleaved RoPE
  // Ids that end generation (generation_config.json, config.json, tokenizer.ggml.eos_token_id and
  // its kin), ascending, each < vocab. A vocabulary may know more.
  std::vector<int32_t> end_ids;
};

// Bounds of sane models: an order of magnitude over the largest that exist.
struct ModelLimits {
  int32_t hidden_max = 1 << 20;
  int32_t layers_max = 1024;
  int32_t heads_max = 4096;
  int32_t head_dim_max = 4096;
  int32_t ffn_max = 1 << 22;
  int32_t vocab_max = 1 << 24;
  int32_t context_length_max = 1 << 27;
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
Result<ModelConfig> model_config_from_file(const std::string& path);

}  // namespace headrace
