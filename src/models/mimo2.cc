#include "models/mimo2.h"

#include <array>
#include <vector>

#include "models/rope_table.h"

namespace headrace {
namespace {

constexpr auto kMiMo2Names = std::to_array<HfTensorName>({
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.self_attn.attention_sink_bias", "blk.{}.attn_sinks.weight"},
    {"model.mtp.*", ""},
});

}  // namespace

DecoderSpec mimo2_spec(const ModelConfig& config) {
  const HeadSizes& sizes = config.mixers.head_sizes;
  DecoderSpec spec = uniform_decoder(config);
  spec.ropes.push_back(sliding_rope_table(config));
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t) {
    layer.mixer_scale = sizes.value_scale;  // of values, which the branch is a sum of
    AttentionSpec& attention = layer.attention();
    attention.value_dim = sizes.value_dim;
    if (attention.window > 0) {
      attention.rope = 1;
      attention.sinks = true;
      if (sizes.sliding_kv_heads > 0) attention.kv_heads = sizes.sliding_kv_heads;
    }
    auto* const mixture = std::get_if<MixtureSpec>(&layer.feed_forward);
    if (mixture != nullptr) mixture->choice_bias = true;
  });
  return spec;
}

HfTensorNames mimo2_hf_names() {
  static const std::vector<HfTensorName> kAll = names_before(kMiMo2Names, expert_hf_names());
  return kAll;
}

}  // namespace headrace
