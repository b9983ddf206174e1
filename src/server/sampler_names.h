// The names of llama.cpp's samplers among generation_fields(), in every protocol that has fields of
// sampling.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace headrace {

inline constexpr auto kSamplerNames = std::to_array<std::string_view>(
    {"top_n_sigma", "typical_p", "typ_p", "xtc_probability", "xtc_threshold", "dry_multiplier",
     "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"});

// A protocol's own names, and those.
template <size_t kOwn>
constexpr auto and_samplers(const std::string_view (&own)[kOwn]) {
  std::array<std::string_view, kOwn + kSamplerNames.size()> names{};
  std::copy(kSamplerNames.begin(), kSamplerNames.end(), std::copy(own, own + kOwn, names.begin()));
  return names;
}

}  // namespace headrace
