#include "weights/glm_families.h"

namespace headrace {
namespace {

void set_glm_defaults(ModelConfig& config, double theta, int32_t context_length, float eps) {
  config.rope_theta = theta;
  config.context_length = context_length;
  config.rms_eps = eps;
}

}  // namespace

void glm_defaults(ModelConfig& config) {
  set_glm_defaults(config, 1e4, 131072, 1.5625e-7f);
  config.kv_heads = 2;
  config.head_dim = 128;
  config.qkv_bias = true;
  config.fused.gate_up = true;
  config.qk_rows_interleaved = true;
  config.mixers.rotated = 0.5;
}
void glm4_moe_defaults(ModelConfig& config) {
  set_glm_defaults(config, 1e4, 131072, 1e-5f);
  config.kv_heads = 8;
  config.mixers.head_norms = false;
  config.mixers.rotated = 0.5;
  config.experts = {.count = 128,
                    .used = 8,
                    .width = 1408,
                    .shared_count = 1,
                    .normalised = true,
                    .dense_first = 1};
}
void solar_open_defaults(ModelConfig& config) {
  glm4_moe_defaults(config);
  config.rope_theta = 1e6;
  config.head_dim = 128;
  config.ffn = 1;  // no layer has a dense network
  config.mixers.rotated = 1;
  config.experts.width = 1280;
  config.experts.dense_first = 0;
}
// A share of a head rotates where a file says it, and sizes of heads follow from others.
void glm4v_defaults(ModelConfig& config) {
  glm_defaults(config);
  set_glm_defaults(config, 1e4, 32768, 1e-5f);
  config.head_dim = 0;
  config.mixers.rotated = 1;
}
// Without norms of heads, whatever a file says.
void glm4v_moe_defaults(ModelConfig& config) {
  glm4_moe_defaults(config);
  config.context_length = 65536;
  config.qkv_bias = true;
  config.mixers.head_norms.reset();
}

}  // namespace headrace
