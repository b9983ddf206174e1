#include "weights/kin_families.h"

namespace headrace {
namespace {

void set_kin_defaults(ModelConfig& config, double theta, int32_t context_length, float eps) {
  config.rope_theta = theta;
  config.context_length = context_length;
  config.rms_eps = eps;
}

}  // namespace

void apertus_defaults(ModelConfig& config) {
  set_kin_defaults(config, 12e6, 65536, 1e-5f);
  config.rope_scaling = {.kind = RopeScaling::Kind::kLlama3,
                         .factor = 8,
                         .original_context = 8192,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4};
}
void hunyuan_defaults(ModelConfig& config) { set_kin_defaults(config, 1e4, 2048, 1e-5f); }
void hunyuan_moe_defaults(ModelConfig& config) {
  hunyuan_defaults(config);
  config.experts = {.count = 1, .used = 1, .shared_count = 1, .normalised = true};
}
void hyperclova_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 2048, 1e-6f);
  config.embedding_scale = 1;
  config.mixers.post_norms = true;
}
void phi_moe_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e6, 131072, 1e-5f);
  config.kv_heads = 8;
  config.experts = {.count = 16,
                    .used = 2,
                    .tolerance = 0.01f,
                    .normalised = false,
                    .scores = ExpertScores::kSparseMixer};
}
void exaone_moe_defaults(ModelConfig& config) {
  set_kin_defaults(config, 1e4, 2048, 1e-5f);
  config.window = 4096;
  config.experts = {.count = 64,
                    .used = 8,
                    .width = 1024,
                    .shared_count = 1,
                    .scale = 2.5f,
                    .normalised = true,
                    .dense_first = 1};
}

}  // namespace headrace
