#include "weights/hf_names.h"

#include <algorithm>
#include <array>
#include <string>

namespace headrace {
namespace {

constexpr std::string_view kNumber = "{}";

constexpr auto kLlama = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"model.norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
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
    {"model.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias"},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias"},
    {"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias"},
    {"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias"},
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"},
    {"score.weight", "cls.output.weight"},
    {"model.layers.{}.block_sparse_moe.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.block_sparse_moe.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.block_sparse_moe.experts.{}.w1.weight", "blk.{}.ffn_gate_exps.weight"},
    {"model.layers.{}.block_sparse_moe.experts.{}.w3.weight", "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.block_sparse_moe.experts.{}.w2.weight", "blk.{}.ffn_down_exps.weight"},
    // Buffers that older versions of the library saved.
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", ""},
    {"model.rotary_emb.inv_freq", ""},
});

// What the families with experts call them, beside Llama's names.
constexpr auto kExperts = std::to_array<HfTensorName>({
    {"model.layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    {"model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.mlp.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.mlp.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"mtp.*", ""},
    {"model.layers.{}.mlp.shared_experts.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    {"model.layers.{}.mlp.shared_experts.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.mlp.shared_experts.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
    {"model.layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight"},
    {"model.layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
    {"model.layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"},
});
// Of Phi-3.5-MoE, in the spelling of transformers 5.
constexpr auto kPhiExperts = std::to_array<HfTensorName>({
    {"lm_head.bias", "output.bias"},
    {"model.layers.{}.mlp.router.weight", "blk.{}.ffn_gate_inp.weight"},
});
constexpr auto kGraniteExperts = std::to_array<HfTensorName>({
    {"model.layers.{}.block_sparse_moe.router.layer.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.block_sparse_moe.input_linear.weight", "blk.{}.ffn_gate_exps.weight", 0,
     "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.block_sparse_moe.output_linear.weight", "blk.{}.ffn_down_exps.weight"},
    {"model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_gate_shexp.weight", 0,
     "blk.{}.ffn_up_shexp.weight"},
    {"model.layers.{}.shared_mlp.output_linear.weight", "blk.{}.ffn_down_shexp.weight"},
});

// `more` first: the first row that matches decides.
template <size_t kMore>
constexpr auto with_llamas(const std::array<HfTensorName, kMore>& more) {
  std::array<HfTensorName, kMore + kLlama.size()> all;
  std::copy(kLlama.begin(), kLlama.end(), std::copy(more.begin(), more.end(), all.begin()));
  return all;
}
constexpr auto kLlamaWithExperts = with_llamas(kExperts);
constexpr auto kGraniteMoe = with_llamas(kGraniteExperts);
constexpr auto kPhiMoe = with_llamas(kPhiExperts);

constexpr int32_t kNoNumber = -1;

// Takes a number off the front of `text`; kNoNumber where there is none.
int32_t take_number(std::string_view& text) {
  const size_t length = std::min(text.find_first_not_of("0123456789"), text.size());
  constexpr size_t kDigitsMax = 9;
  if (length == 0 || length > kDigitsMax || (length > 1 && text[0] == '0')) return kNoNumber;
  int32_t number = 0;
  for (const char digit : text.substr(0, length)) number = 10 * number + (digit - '0');
  text.remove_prefix(length);
  return number;
}

// The numbers of a name, in the order of its pattern's "{}".
struct PatternMatch {
  bool matches = false;
  std::array<int32_t, 2> numbers = {kNoNumber, kNoNumber};
};

// `name` against "before{}between{}after", any of which may be missing; "*" ends it early.
PatternMatch match_pattern(std::string_view pattern, std::string_view name) {
  PatternMatch match;
  for (int32_t& number : match.numbers) {
    const size_t at = pattern.find(kNumber);
    if (at == std::string_view::npos) break;
    if (!name.starts_with(pattern.substr(0, at))) return match;
    name.remove_prefix(at);
    pattern.remove_prefix(at + kNumber.size());
    number = take_number(name);
    if (number == kNoNumber) return match;
  }
  match.matches = pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1))
                                         : name == pattern;
  return match;
}

std::string with_numbers(std::string_view pattern, std::array<int32_t, 2> numbers) {
  std::string name(pattern);
  for (const int32_t number : numbers) {
    const size_t at = name.find(kNumber);
    if (at != std::string::npos) name.replace(at, kNumber.size(), std::to_string(number));
  }
  return name;
}

}  // namespace

std::optional<HfMatch> match_hf_name(HfTensorNames table, std::string_view hf) {
  for (const HfTensorName& row : table) {
    const PatternMatch match = match_pattern(row.hf, hf);
    if (!match.matches) continue;
    return HfMatch{.gguf = with_numbers(row.gguf, match.numbers),
                   .offset = row.offset,
                   .expert = match.numbers[1],
                   .second_half = with_numbers(row.second_half, match.numbers),
                   .form = row.form};
  }
  return std::nullopt;
}

std::string hf_name_of(HfTensorNames table, std::string_view gguf, int32_t expert) {
  for (const HfTensorName& row : table) {
    for (const std::string_view pattern : {row.gguf, row.second_half}) {
      if (pattern.empty()) continue;
      const PatternMatch match = match_pattern(pattern, gguf);
      if (match.matches) return with_numbers(row.hf, {match.numbers[0], expert});
    }
  }
  return std::string(gguf);
}

std::vector<HfTensorName> names_before(HfTensorNames first, HfTensorNames others) {
  std::vector<HfTensorName> rows(first.begin(), first.end());
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

HfTensorNames llama_hf_names() { return kLlama; }
HfTensorNames expert_hf_names() { return kLlamaWithExperts; }
HfTensorNames phi_moe_hf_names() { return kPhiMoe; }
HfTensorNames granite_moe_hf_names() { return kGraniteMoe; }

namespace {

// How names of the text half of a model that also sees or hears begin, in transformers 4 and 5, and
// how they do alone.
constexpr struct {
  std::string_view half, alone;
} kTextHalves[] = {{"language_model.", ""}, {"model.language_model.", "model."}};
// What other halves' names begin with.
constexpr std::string_view kOtherHalves[] = {
    "visual.",           "vision_tower.",    "vision_model.",        "multi_modal_projector.",
    "mm_projector.",     "vision_embedder.", "vit_large_projector.", "patch_merge_mlp.",
    "vision_tokenizer.", "audio_tokenizer."};

}  // namespace

std::optional<HfMatch> match_in_model(HfTensorNames names, std::string_view name) {
  auto match = match_hf_name(names, name);
  for (const std::string_view model : {"model.", "transformer."}) {
    if (!match) match = match_hf_name(names, std::string(model) + std::string(name));
  }
  for (const auto& [half, alone] : kTextHalves) {
    if (match || !name.starts_with(half)) continue;
    match = match_hf_name(names, std::string(alone) + std::string(name.substr(half.size())));
  }
  constexpr std::string_view kModel = "model.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  for (const std::string_view other : kOtherHalves) {
    if (!match && name.starts_with(other)) match = HfMatch{};
  }
  return match;
}

}  // namespace headrace
