#include "models/longcat.h"

#include <array>
#include <cmath>
#include <utility>

#include "models/deepseek.h"

namespace headrace {
namespace {

// Of a layer's second half the names have a word more.
constexpr const char* kSecond = "second.";

constexpr auto kLongCatNames = std::to_array<HfTensorName>({
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"score.weight", "cls.output.weight"},
    {"model.layers.{}.input_layernorm.0.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.self_attn.0.q_a_proj.weight", "blk.{}.attn_q_a.weight"},
    {"model.layers.{}.self_attn.0.q_a_layernorm.weight", "blk.{}.attn_q_a_norm.weight"},
    {"model.layers.{}.self_attn.0.q_b_proj.weight", "blk.{}.attn_q_b.weight"},
    {"model.layers.{}.self_attn.0.kv_a_proj_with_mqa.weight", "blk.{}.attn_kv_a_mqa.weight"},
    {"model.layers.{}.self_attn.0.kv_a_layernorm.weight", "blk.{}.attn_kv_a_norm.weight"},
    {"model.layers.{}.self_attn.0.kv_b_proj.weight", "blk.{}.attn_kv_b.weight"},
    {"model.layers.{}.self_attn.0.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.post_attention_layernorm.0.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.mlps.0.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlps.0.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlps.0.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.input_layernorm.1.weight", "blk.{}.second.attn_norm.weight"},
    {"model.layers.{}.self_attn.1.q_a_proj.weight", "blk.{}.second.attn_q_a.weight"},
    {"model.layers.{}.self_attn.1.q_a_layernorm.weight", "blk.{}.second.attn_q_a_norm.weight"},
    {"model.layers.{}.self_attn.1.q_b_proj.weight", "blk.{}.second.attn_q_b.weight"},
    {"model.layers.{}.self_attn.1.kv_a_proj_with_mqa.weight", "blk.{}.second.attn_kv_a_mqa.weight"},
    {"model.layers.{}.self_attn.1.kv_a_layernorm.weight", "blk.{}.second.attn_kv_a_norm.weight"},
    {"model.layers.{}.self_attn.1.kv_b_proj.weight", "blk.{}.second.attn_kv_b.weight"},
    {"model.layers.{}.self_attn.1.o_proj.weight", "blk.{}.second.attn_output.weight"},
    {"model.layers.{}.post_attention_layernorm.1.weight", "blk.{}.second.ffn_norm.weight"},
    {"model.layers.{}.mlps.1.gate_proj.weight", "blk.{}.second.ffn_gate.weight"},
    {"model.layers.{}.mlps.1.up_proj.weight", "blk.{}.second.ffn_up.weight"},
    {"model.layers.{}.mlps.1.down_proj.weight", "blk.{}.second.ffn_down.weight"},
    {"model.layers.{}.mlp.router.classifier.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.mlp.router.e_score_correction_bias", "blk.{}.exp_probs_b.bias"},
    {"model.layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
    {"model.layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
    {"model.layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
    {"model.mtp.*", ""},
});

// A latent is as large as rows are, whatever its own width.
float latent_scale(const ModelConfig& config, int32_t rank) {
  return std::sqrt(static_cast<float>(config.hidden) / static_cast<float>(rank));
}

}  // namespace

// Of a layer of the file the first half, the second, and the mixture: last, as it reads the rows of
// a prompt that are read on alone.
DecoderSpec longcat_spec(const ModelConfig& config) {
  DecoderSpec spec = deepseek_spec(config);
  std::vector<DecoderLayerSpec> thirds;
  for_each_layer(spec, [&](const DecoderLayerSpec& layer, int32_t i) {
    DecoderLayerSpec half = layer;
    auto& attention = std::get<LatentAttentionSpec>(half.mixer);
    attention.scale *= latent_scale(config, attention.query_rank);
    attention.latent_scale = latent_scale(config, attention.rank);
    half.feed_forward = DenseSpec{.width = config.ffn};
    half.block = i;
    half.form = LayerForm::kHolding;
    thirds.push_back(half);
    half.tensor_prefix = kSecond;
    half.form = LayerForm::kSequential;
    thirds.push_back(half);
    DecoderLayerSpec mixture = layer;
    std::get<MixtureSpec>(mixture.feed_forward).choice_bias = true;
    mixture.mixer = NoMixerSpec();
    mixture.network_reads_x = true;
    mixture.block = i;
    mixture.form = LayerForm::kShortcut;
    thirds.push_back(std::move(mixture));
  });
  spec.layers = std::move(thirds);
  spec.model.layer_count = static_cast<int32_t>(std::ssize(spec.layers));
  return spec;
}

HfTensorNames longcat_hf_names() { return kLongCatNames; }

}  // namespace headrace
