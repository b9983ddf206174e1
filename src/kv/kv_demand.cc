#include "kv/kv_demand.h"

#include <algorithm>

namespace headrace {
namespace {

// Pages that `span` consecutive tokens can touch wherever they begin.
int64_t pages_touched(int64_t span, int64_t block_tokens) {
  return (span + block_tokens - 2) / block_tokens + 1;
}

// A chunk needs its own tokens and the window before its first one.
int64_t group_peak(const KvGroupSpec& group, int64_t tokens, int64_t chunk_tokens) {
  const int64_t all = pages_for(tokens, group.block_tokens);
  if (group.kind != KvKind::kSliding) return all;
  const int64_t chunk = std::min(tokens, chunk_tokens);
  return std::min(all, pages_touched(group.window - 1 + chunk, group.block_tokens));
}

int64_t group_peak_forked(const KvGroupSpec& group, int64_t prompt_tokens, int64_t tokens,
                          int64_t chunk_tokens, int64_t n) {
  const int64_t alone = group_peak(group, tokens, chunk_tokens);
  const int64_t shared = prompt_tokens / group.block_tokens;  // full pages of the prompt
  int64_t own = pages_for(tokens, group.block_tokens) - shared;
  int64_t forked = shared + n * own;
  if (group.kind == KvKind::kSliding) {
    const int64_t window = pages_touched(group.window, group.block_tokens);
    forked = std::min(shared, window) + n * std::min(own, window);
  }
  return n == 1 ? alone : std::max(alone, forked);
}

}  // namespace

int64_t peak_pages(std::span<const KvGroupSpec> groups, int64_t tokens, int64_t chunk_tokens) {
  int64_t pages = 0;
  for (const KvGroupSpec& group : groups) pages += group_peak(group, tokens, chunk_tokens);
  return pages;
}

int64_t pages_in_decode(std::span<const KvGroupSpec> groups, int64_t tokens) {
  int64_t pages = 0;
  for (const KvGroupSpec& group : groups) {
    const auto last = static_cast<int32_t>(tokens - 1);
    pages += pages_for(tokens, group.block_tokens) - first_visible_page(group, last);
  }
  return pages;
}

int64_t peak_pages_forked(std::span<const KvGroupSpec> groups, int64_t prompt_tokens,
                          int64_t tokens, int64_t chunk_tokens, int32_t n) {
  int64_t pages = 0;
  for (const KvGroupSpec& group : groups) {
    pages += group_peak_forked(group, prompt_tokens, tokens, chunk_tokens, n);
  }
  return pages;
}

}  // namespace headrace
