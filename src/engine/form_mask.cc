#include "engine/form_mask.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

bool fill_form_mask(const Slot& slot, std::span<const TokenId> end_ids,
                    std::span<uint32_t> allowed) {
  CHECK(slot.matcher != nullptr && slot.in_flight == 0);
  slot.matcher->fill_mask(allowed);
  const auto output_count = static_cast<int32_t>(slot.output().size());
  const bool early = output_count < slot.request->sampling.min_tokens;
  if (early && !slot.matcher->only_ends()) {
    for_each_early_end(slot.request->sampling, end_ids, output_count, [&](TokenId token) {
      allowed[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (token % 32));
    });
  }
  return std::any_of(allowed.begin(), allowed.end(), [](uint32_t word) { return word != 0; });
}

}  // namespace headrace
