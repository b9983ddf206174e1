#include "weights/recurrent_gemma_family.h"

#include <fmt/format.h>

namespace headrace {
namespace {

// Names that come again and again, in the class's words or transformers 5's.
Status read_block_types(const Json& json, const ConfigSource& source, ModelConfig& config) {
  constexpr std::string_view kTypes = "block_types";
  const Json* types = json.find(kTypes);
  const Json assumed(Json::Array{Json("recurrent"), Json("recurrent"), Json("attention")});
  if (types == nullptr || types->is_null()) types = &assumed;
  if (!types->is_array() || types->as_array().empty()) {
    return source.corrupt_field(kTypes, "is no list of names");
  }
  const Json::Array& list = types->as_array();
  for (int32_t i = 0; i < config.layers; ++i) {
    const Json& type = list[static_cast<size_t>(i) % list.size()];
    const bool recurrent = type == Json("recurrent");
    if (!recurrent && type != Json("attention")) {
      return source.unsupported_field(
          kTypes, "has a layer that is not supported (known: recurrent, attention)");
    }
    config.mixers.by_layer.push_back(recurrent ? LayerMixer::kRgLru : LayerMixer::kAttention);
  }
  return ok_status();
}

}  // namespace

void recurrent_gemma_defaults(ModelConfig& config) {
  config.rope_theta = 1e4;
  config.context_length = 8192;
  config.rms_eps = 1e-6f;
  config.window = 2048;
  config.logit_soft_cap = 30;
  config.tied_embeddings = true;
  config.mixers.rotated = 0.5;
  config.mixers.conv_taps = 4;
}

// Its networks have half of the width that a file says, and all matrices but those of queries, keys
// and values a bias.
Status read_recurrent_gemma(const Json& json, const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(read_block_types(json, source, config));
  config.ffn /= 2;
  config.ffn_bias = config.attention_out_bias = true;
  int32_t& inner = config.mixers.state_space.inner;
  if (inner == 0) inner = config.hidden;
  if (inner % config.heads != 0) {
    return source.corrupt_field(
        "lru_width", fmt::format("{} heads do not divide {} channels", config.heads, inner));
  }
  return ok_status();
}

}  // namespace headrace
