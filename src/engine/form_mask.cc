#include "engine/form_mask.h"

#include <algorithm>

namespace headrace {

bool fill_form_mask(TokenMatcher& matcher, const SamplingParams& sampling, int32_t output_count,
                    std::span<const TokenId> end_ids, std::span<uint32_t> allowed) {
  const auto fill = [&](int32_t tokens_left) {
    matcher.fill_mask(allowed, tokens_left);
    if (output_count < sampling.min_tokens && !matcher.only_ends()) {
      for_each_early_end(sampling, end_ids, output_count, [&](TokenId token) {
        allowed[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (token % 32));
      });
    }
    return std::any_of(allowed.begin(), allowed.end(), [](uint32_t word) { return word != 0; });
  };
  // An end in time that comes too early is none: then the text is cut.
  return fill(std::max(1, sampling.max_tokens - output_count)) || fill(kManyTokens);
}

}  // namespace headrace
