#include "models/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace headrace {
namespace {

using Kind = RopeScaling::Kind;

// Tokens of the longest sequence that will be served.
int32_t served_length(const ModelConfig& config) {
  return config.served_length > 0 ? config.served_length : config.context_length;
}

// NTK-aware scaling (u/bloc97, 2023): the base grows, so that the lowest frequency is stretched by
// the text's length and the highest stays.
double dynamic_theta(const ModelConfig& config) {
  const double context = config.context_length;
  const double length = std::max<double>(served_length(config), context);
  const double factor = config.rope_scaling.factor;
  const double dim = config.rope_dim;
  if (config.rope_dim <= 2) return config.rope_theta;
  return config.rope_theta * std::pow(factor * length / context - (factor - 1), dim / (dim - 2));
}

// Llama 3.1: wavelengths over original / low_freq_factor are divided by factor, those below
// original / high_freq_factor stay, a linear ramp between.
void scale_llama3(const RopeScaling& scaling, std::vector<double>& inv_freq) {
  const double original = scaling.original_context;
  for (double& frequency : inv_freq) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    const double ramp = (original / wavelength - scaling.low_freq_factor) /
                        (scaling.high_freq_factor - scaling.low_freq_factor);
    const double kept = std::clamp(ramp, 0.0, 1.0);
    frequency = (1 - kept) * frequency / scaling.factor + kept * frequency;
  }
}

// YaRN (Peng et al., 2023): the dimension that turns `turns` times within the original context.
double yarn_dimension(const ModelConfig& config, double turns) {
  return config.rope_dim *
         std::log(config.rope_scaling.original_context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(config.rope_theta));
}

void scale_yarn(const ModelConfig& config, std::vector<double>& inv_freq) {
  const RopeScaling& scaling = config.rope_scaling;
  double low = yarn_dimension(config, scaling.beta_fast);
  double high = yarn_dimension(config, scaling.beta_slow);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, config.rope_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / scaling.factor * ramp + inv_freq[i] * (1 - ramp);
  }
}

double yarn_attention_factor(const RopeScaling& scaling) {
  if (scaling.attention_factor > 0) return scaling.attention_factor;
  if (scaling.mscale != 0 && scaling.mscale_all_dim != 0) {
    return yarn_mscale(scaling.factor, scaling.mscale) /
           yarn_mscale(scaling.factor, scaling.mscale_all_dim);
  }
  return yarn_mscale(scaling.factor, 1.0);
}

// LongRoPE (Ding et al., 2024). One choice for all texts: by the longest that will be served.
void scale_long_rope(const ModelConfig& config, RopeTable& table) {
  const RopeScaling& scaling = config.rope_scaling;
  const bool is_long = served_length(config) > scaling.original_context;
  const std::vector<double>& factors = is_long ? scaling.long_factors : scaling.short_factors;
  if (factors.empty()) {
    table.divisors = "rope_factors_short.weight";
    table.other_divisors = "rope_factors_long.weight";
    if (is_long) std::swap(table.divisors, table.other_divisors);
  }
  for (size_t i = 0; i < factors.size(); ++i) table.inv_freq[i] /= factors[i];
  const double original = scaling.original_context;
  const double stretch = scaling.factor > 1 ? scaling.factor : config.context_length / original;
  double attention = scaling.attention_factor;
  if (attention == 0) {
    attention = stretch <= 1 ? 1.0 : std::sqrt(1 + std::log(stretch) / std::log(original));
  }
  table.scale = static_cast<float>(attention);
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeTable plain_rope_table(double theta, int32_t rope_dim) {
  RopeTable table;
  for (int32_t i = 0; i < rope_dim / 2; ++i) {
    table.inv_freq.push_back(std::pow(theta, -2.0 * i / rope_dim));
  }
  return table;
}

RopeTable sliding_rope_table(const ModelConfig& config) {
  const int32_t own = config.mixers.head_sizes.sliding_rope_dim;
  return plain_rope_table(config.rope_theta_local > 0 ? config.rope_theta_local : config.rope_theta,
                          own > 0 ? own : config.rope_dim);
}

RopeTable rope_table(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const double theta = scaling.kind == Kind::kDynamic ? dynamic_theta(config) : config.rope_theta;
  RopeTable table = plain_rope_table(theta, config.rope_dim);
  switch (scaling.kind) {
    case Kind::kNone:
    case Kind::kDynamic:
      break;
    case Kind::kLinear:
      for (double& frequency : table.inv_freq) frequency /= scaling.factor;
      break;
    case Kind::kLlama3:
      scale_llama3(scaling, table.inv_freq);
      break;
    case Kind::kYarn:
      scale_yarn(config, table.inv_freq);
      table.scale = static_cast<float>(yarn_attention_factor(scaling));
      break;
    case Kind::kLongRope:
      scale_long_rope(config, table);
      break;
  }
  if (config.rope_scaling.divisors) table.divisors = "rope_freqs.weight";
  return table;
}

}  // namespace headrace
