#include "weights/hf_names.h"

#include <array>

namespace headrace {
namespace {

constexpr std::string_view kLayer = "{}";

constexpr auto kLlama = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"},
    {"model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight"},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias"},
    {"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias"},
    {"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias"},
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"},
    {"score.weight", "cls.output.weight"},
    // Buffers that older versions of the library saved.
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", ""},
    {"model.rotary_emb.inv_freq", ""},
});

// The layer's number at the start of `text`; empty where there is none.
std::string_view layer_number(std::string_view text) {
  const size_t length = text.find_first_not_of("0123456789");
  const std::string_view digits = text.substr(0, length);
  constexpr size_t kDigitsMax = 9;
  if (digits.size() > kDigitsMax || (digits.size() > 1 && digits[0] == '0')) return {};
  return digits;
}

struct PatternMatch {
  bool matches = false;
  std::string_view layer;  // empty: the pattern has none
};

// `name` against "before{}after", either end of which may be missing; "*" ends it early.
PatternMatch match_pattern(std::string_view pattern, std::string_view name) {
  PatternMatch match;
  if (const size_t at = pattern.find(kLayer); at != std::string_view::npos) {
    if (!name.starts_with(pattern.substr(0, at))) return match;
    name.remove_prefix(at);
    pattern.remove_prefix(at + kLayer.size());
    match.layer = layer_number(name);
    if (match.layer.empty()) return match;
    name.remove_prefix(match.layer.size());
  }
  match.matches = pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                         : name == pattern;
  return match;
}

std::string with_layer(std::string_view pattern, std::string_view layer) {
  std::string name(pattern);
  if (const size_t at = name.find(kLayer); at != std::string::npos) {
    name.replace(at, kLayer.size(), layer);
  }
  return name;
}

}  // namespace

std::optional<HfMatch> match_hf_name(HfTensorNames table, std::string_view hf) {
  for (const HfTensorName& row : table) {
    const PatternMatch match = match_pattern(row.hf, hf);
    if (match.matches) return HfMatch{with_layer(row.gguf, match.layer), row.offset};
  }
  return std::nullopt;
}

std::string hf_name_of(HfTensorNames table, std::string_view gguf) {
  for (const HfTensorName& row : table) {
    if (row.gguf.empty()) continue;
    const PatternMatch match = match_pattern(row.gguf, gguf);
    if (match.matches) return with_layer(row.hf, match.layer);
  }
  return std::string(gguf);
}

HfTensorNames llama_hf_names() { return kLlama; }

}  // namespace headrace
