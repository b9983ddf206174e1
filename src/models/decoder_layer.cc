#include "models/decoder_layer.h"

namespace headrace {

Status DecoderLayer::load(LayerTensors& tensors, int64_t hidden) {
  HR_RETURN_IF_ERROR(tensors.read_norm(mixer_norm_name, hidden, mixer_norm));
  HR_RETURN_IF_ERROR(mixer->load(tensors));
  if (mixer_convolution) HR_RETURN_IF_ERROR(mixer_convolution->load(tensors, "attn_conv"));
  HR_RETURN_IF_ERROR(tensors.read_norm("post_attention_norm", hidden, mixer_post_norm));
  HR_RETURN_IF_ERROR(tensors.read_norm(ffn_norm_name, hidden, ffn_norm));
  HR_RETURN_IF_ERROR(feed_forward->load(tensors));
  if (network_convolution) {
    HR_RETURN_IF_ERROR(network_convolution->load(tensors, "ffn_conv", "ffn_scale"));
  }
  HR_RETURN_IF_ERROR(tensors.read_norm("post_ffw_norm", hidden, ffn_post_norm));
  return frame == nullptr ? ok_status() : frame->load(tensors);
}

Status DecoderLayer::split(const ShardSpec& shard) {
  HR_RETURN_IF_ERROR(mixer->split(shard));
  return feed_forward->split(shard);
}

DecoderLayer make_layer(const DecoderSpec& spec, int32_t index) {
  const DecoderLayerSpec& layer = spec.layers[static_cast<size_t>(index)];
  const int64_t hidden = spec.model.hidden_size;
  const bool has_mixer = !std::holds_alternative<NoMixerSpec>(layer.mixer);
  const bool has_network = !std::holds_alternative<NoFeedForwardSpec>(layer.feed_forward);
  const bool own_norm = has_network && layer.form != LayerForm::kParallelShared;
  const auto norm = [&](bool there, NormKind kind, float scale = 1.0f, int32_t gate_rank = 0) {
    return NormWeights{.kind = there ? kind : NormKind::kNone,
                       .eps = spec.norm_eps,
                       .weight = {},
                       .bias = {},
                       .scale = scale,
                       .gate = {.rank = gate_rank, .down = {}, .up = {}}};
  };
  const auto convolution = [&]() -> std::optional<BranchConvolution> {
    if (layer.branch_taps == 0) return std::nullopt;
    return BranchConvolution(hidden, layer.branch_taps);
  };
  return {.mixer_norm =
              norm(has_mixer && !layer.mixer_reads_x, layer.pre_norm, 1.0f, layer.mixer_gate_rank),
          .mixer = make_any_part(layer.mixer, hidden),
          .mixer_post_norm = norm(has_mixer && !layer.mixer_ends_bare, layer.post_norm),
          .ffn_norm = norm(own_norm && !layer.network_reads_x, layer.pre_norm,
                           layer.network_input_scale, layer.network_gate_rank),
          .feed_forward = make_any_part(layer.feed_forward, hidden),
          .ffn_post_norm = norm(has_network, layer.post_norm),
          .frame = std::visit([&](const auto& of) { return make_frame(of, hidden); }, layer.frame),
          .mixer_convolution = convolution(),
          .network_convolution = convolution(),
          .mixer_norm_name = layer.mixer_norm_name,
          .ffn_norm_name = layer.ffn_norm_name,
          .form = layer.form,
          .has_mixer = has_mixer,
          .has_network = has_network,
          .mixer_scale = layer.mixer_scale,
          .network_scale = layer.network_scale};
}

}  // namespace headrace
