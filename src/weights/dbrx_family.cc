#include "weights/dbrx_family.h"

#include <fmt/format.h>

namespace headrace {
namespace {

const Json kNothing = Json::object();

// A member of the file that is an object; an empty one where there is none.
Result<const Json*> object_of(const Json& json, const ConfigSource& source, std::string_view name) {
  const Json* const found = json.find(name);
  if (found == nullptr || found->is_null()) return &kNothing;
  if (found->is_object()) return found;
  return source.corrupt_field(name, "is no object");
}

// A number of an object, where it has one; null is 0.
template <class Number>
Status take(const Json& object, const ConfigSource& source, std::string_view name, double max,
            Number& number) {
  const Json* const found = object.find(name);
  if (found == nullptr) return ok_status();
  if (found->is_null()) {
    number = 0;
    return ok_status();
  }
  const bool whole = std::is_integral_v<Number>;
  if ((whole ? !found->is_int() : !found->is_number()) || found->as_double() < 0 ||
      found->as_double() > max) {
    return source.corrupt_field(name, fmt::format("is no number from 0 to {}", max));
  }
  number = static_cast<Number>(found->as_double());
  return ok_status();
}

Status read_attention(const Json& attention, const ConfigSource& source, ModelConfig& config) {
  HR_RETURN_IF_ERROR(
      take(attention, source, "kv_n_heads", kModelLimits.heads_max, config.kv_heads));
  constexpr std::string_view kClamp = "clip_qkv";
  float& clamp = config.mixers.head_sizes.qkv_clamp;
  HR_RETURN_IF_ERROR(take(attention, source, kClamp, 1e6, clamp));
  const Json* const said = attention.find(kClamp);
  if (said != nullptr && !said->is_null() && clamp == 0) {
    return source.unsupported_field(kClamp, "0 leaves nothing: only null or more than 0");
  }
  return take(attention, source, "rope_theta", 1e12, config.rope_theta);
}

Status read_mixtures(const Json& networks, const ConfigSource& source, ModelConfig& config) {
  ExpertConfig& experts = config.experts;
  HR_RETURN_IF_ERROR(
      take(networks, source, "moe_num_experts", kModelLimits.experts_max, experts.count));
  HR_RETURN_IF_ERROR(take(networks, source, "moe_top_k", kModelLimits.experts_max, experts.used));
  HR_RETURN_IF_ERROR(
      take(networks, source, "ffn_hidden_size", kModelLimits.ffn_max, experts.width));
  constexpr std::string_view kNorm = "moe_normalize_expert_weights", kActivation = "ffn_act_fn";
  double power = 1;
  HR_RETURN_IF_ERROR(take(networks, source, kNorm, 1e6, power));
  if (power != 0 && power != 1) {
    return source.unsupported_field(kNorm,
                                    fmt::format("{} is not supported, only 1 or null", power));
  }
  experts.normalised = power == 1;
  HR_ASSIGN_OR_RETURN(const Json* const activation, object_of(networks, source, kActivation));
  const Json* const name = activation->find("name");
  if (name == nullptr || *name == Json("silu")) return ok_status();
  return source.unsupported_field(kActivation, "only \"silu\" is supported");
}

}  // namespace

void dbrx_defaults(ModelConfig& config) {
  config.rope_theta = 1e4;
  config.context_length = 2048;
  config.rms_eps = 1e-5f;
  config.kv_heads = 1;
  config.ffn = 1;  // no layer has a dense network
  config.fused.qkv = true;
  config.experts = {.count = 4, .used = 1, .width = 3584};
}

Status read_dbrx(const Json& json, const ConfigSource& source, ModelConfig& config) {
  if (config.architecture != "dbrx") return ok_status();
  HR_ASSIGN_OR_RETURN(const Json* const attention, object_of(json, source, "attn_config"));
  HR_RETURN_IF_ERROR(read_attention(*attention, source, config));
  HR_ASSIGN_OR_RETURN(const Json* const networks, object_of(json, source, "ffn_config"));
  return read_mixtures(*networks, source, config);
}

}  // namespace headrace
