#include "sched/ngram_source.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/rng.h"

namespace headrace {

// The index holds every run but the last: that one is what is looked up.
void NgramSource::extend(Index& index, const Sequence& sequence) const {
  std::vector<TokenId>& tokens = index.tokens;
  const std::vector<TokenId>&prompt = sequence.request->prompt, &output = sequence.output;
  const auto indexed = static_cast<int32_t>(tokens.size());
  if (tokens.empty()) tokens = prompt;
  tokens.insert(tokens.end(),
                output.begin() + static_cast<std::ptrdiff_t>(tokens.size() - prompt.size()),
                output.end());
  const auto length = static_cast<int32_t>(tokens.size());
  index.before.resize(tokens.size(), 0);
  for (int32_t end = std::max(indexed, lookup_min_); end < length; ++end) {
    int32_t& last = index.last[run_before(index, end)];
    index.before[static_cast<size_t>(end)] = last;
    last = end;
  }
}

uint64_t NgramSource::run_before(const Index& index, int32_t end) const {
  uint64_t hash = 0;
  for (int32_t i = end - lookup_min_; i < end; ++i) {
    hash = mix64(hash ^ static_cast<uint32_t>(index.tokens[static_cast<size_t>(i)]));
  }
  return hash;
}

// How many of the last tokens stand before `end` too.
int32_t NgramSource::match_length(const Index& index, int32_t end) const {
  const auto length = static_cast<int32_t>(index.tokens.size());
  int32_t same = 0;
  while (same < std::min(lookup_max_, end) &&
         index.tokens[static_cast<size_t>(end - 1 - same)] ==
             index.tokens[static_cast<size_t>(length - 1 - same)]) {
    ++same;
  }
  return same;
}

void NgramSource::propose(Sequence& sequence, int32_t most, std::vector<TokenId>& proposed) {
  if (sequence.draft_memory == nullptr) sequence.draft_memory = std::make_unique<Index>();
  auto& index = static_cast<Index&>(*sequence.draft_memory);
  extend(index, sequence);
  const auto length = static_cast<int32_t>(index.tokens.size());
  if (length <= lookup_min_) return;
  const auto found = index.last.find(run_before(index, length));
  if (found == index.last.end()) return;
  int32_t best = 0, best_length = lookup_min_ - 1;
  int places = 0;
  for (int32_t end = found->second; end > 0 && places < kPlacesMax && best_length < lookup_max_;
       end = index.before[static_cast<size_t>(end)], ++places) {
    const int32_t same = match_length(index, end);
    if (same > best_length) best = end, best_length = same;
  }
  if (best == 0) return;  // runs of one hash that differ
  const auto first = index.tokens.begin() + best;
  proposed.insert(proposed.end(), first, first + std::min(most, length - best));
}

namespace {

// Has a proposal for everybody, for synthetic acceptance.
class AnySource final : public DraftSource {
 public:
  void propose(Sequence& sequence, int32_t most, std::vector<TokenId>& proposed) override {
    proposed.insert(proposed.end(), static_cast<size_t>(most), sequence.request->prompt.front());
  }
};

}  // namespace

Result<std::shared_ptr<DraftSource>> create_draft_source(const ProposalOptions& options) {
  if (options.source != nullptr) return options.source;
  if (options.method == ProposalMethod::kNone) return std::shared_ptr<DraftSource>();
  if (options.tokens_max < 1 || options.tokens_max > kProposedTokensMax) {
    return invalid_argument(fmt::format("num_speculative_tokens {} is not between 1 and {}",
                                        options.tokens_max, kProposedTokensMax));
  }
  if (drafts_in_runner(options.method)) return std::shared_ptr<DraftSource>();
  if (options.lookup_min < 1 || options.lookup_max < options.lookup_min ||
      options.lookup_max > kLookupTokensMax) {
    return invalid_argument(
        fmt::format("prompt_lookup_min {} and prompt_lookup_max {} are not 1 <= min <= max <= {}",
                    options.lookup_min, options.lookup_max, kLookupTokensMax));
  }
  if (options.synthetic_acceptance >= 0) {
    return std::shared_ptr<DraftSource>(std::make_shared<AnySource>());
  }
  return std::shared_ptr<DraftSource>(
      std::make_shared<NgramSource>(options.lookup_min, options.lookup_max));
}

}  // namespace headrace
