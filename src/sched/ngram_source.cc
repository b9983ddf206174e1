#include "sched/ngram_source.h"

#include <algorithm>
#include <functional>
#include <numeric>

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

// The longest matches first, of those as long the latest; of a chain the first alone.
std::vector<NgramSource::Place> NgramSource::find_places(const Index& index) const {
  std::vector<Place> places;
  const auto length = static_cast<int32_t>(index.tokens.size());
  if (length <= lookup_min_) return places;
  const auto found = index.last.find(run_before(index, length));
  if (found == index.last.end()) return places;
  int looked_at = 0;
  for (int32_t end = found->second; end > 0 && looked_at < kPlacesMax;
       end = index.before[static_cast<size_t>(end)], ++looked_at) {
    const Place place{end, match_length(index, end)};
    if (place.same < lookup_min_) continue;  // runs of one hash that differ
    if (tree_width_ > 1 || places.empty()) {
      places.push_back(place);
    } else if (place.same > places.front().same) {
      places.front() = place;
    }
    if (tree_width_ == 1 && places.front().same == lookup_max_) break;
  }
  std::ranges::stable_sort(places, std::greater(), &Place::same);
  return places;
}

// Of a token that is proposed, what stands behind it wherever it was found.
void NgramSource::merge(const Index& index, std::span<const Place> places,
                        const ProposalBounds& bounds, TokenTree& proposed) const {
  TokenTree found;
  std::vector<int32_t> times;  // [found]
  const auto length = static_cast<int32_t>(index.tokens.size());
  for (const Place& place : places) {
    int32_t before = TokenTree::kBeforeAll;
    for (int32_t i = 0; i < std::min(bounds.depth, length - place.end); ++i) {
      const TokenId token = index.tokens[static_cast<size_t>(place.end + i)];
      int32_t at = found.child(before, token);
      if (at == TokenTree::kBeforeAll) {
        if (found.child_count(before) == tree_width_) break;
        at = found.size();
        found.tokens.push_back(token);
        found.parents.push_back(before);
        times.push_back(0);
      }
      ++times[static_cast<size_t>(at)];
      before = at;
    }
  }
  // The first place's stay first. What stands behind another was found as often at most, and later.
  const auto first = std::min(bounds.depth, length - places.front().end);
  std::vector<int32_t> order(times.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin() + first, order.end(), [&](int32_t a, int32_t b) {
    return times[static_cast<size_t>(a)] > times[static_cast<size_t>(b)];
  });
  if (std::ssize(order) > bounds.tokens) order.resize(static_cast<size_t>(bounds.tokens));
  std::vector<int32_t> now(times.size());
  for (const int32_t at : order) {
    const int32_t before = found.parent(at);
    now[static_cast<size_t>(at)] = proposed.size();
    proposed.tokens.push_back(found.token(at));
    proposed.parents.push_back(before == TokenTree::kBeforeAll ? before
                                                               : now[static_cast<size_t>(before)]);
  }
  proposed.forget_parents_of_chain();
}

void NgramSource::propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) {
  if (sequence.draft_memory == nullptr) sequence.draft_memory = std::make_unique<Index>();
  auto& index = static_cast<Index&>(*sequence.draft_memory);
  extend(index, sequence);
  const std::vector<Place> places = find_places(index);
  if (places.empty()) return;
  if (tree_width_ > 1) return merge(index, places, bounds, proposed);
  const int32_t end = places.front().end;
  const auto length = static_cast<int32_t>(index.tokens.size());
  const auto first = index.tokens.begin() + end;
  proposed.tokens.assign(first, first + std::min(bounds.depth, length - end));
}

namespace {

// Has a proposal for everybody, for synthetic acceptance.
class AnySource final : public DraftSource {
 public:
  void propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) override {
    proposed.tokens.assign(static_cast<size_t>(bounds.depth), sequence.request->prompt.front());
  }
};

}  // namespace

Status check_tree(const ProposalOptions& options) {
  if (options.tree_width == 1) return ok_status();
  if (options.tree_width < 1 || options.tree_width > kTreeWidthMax) {
    return invalid_argument(
        fmt::format("tree_width {} is not between 1 and {}", options.tree_width, kTreeWidthMax));
  }
  if (options.tree_tokens < 1 || options.tree_tokens > TokenTree::kTokensMax) {
    return invalid_argument(fmt::format("tree_tokens {} is not between 1 and {}",
                                        options.tree_tokens, TokenTree::kTokensMax));
  }
  if (options.source != nullptr) return ok_status();
  if (options.method == ProposalMethod::kNone) {
    return invalid_argument(
        fmt::format("tree_width {}: nothing proposes: --spec-method ngram, or --model-draft FILE",
                    options.tree_width),
        "spec-tree-width");
  }
  if (options.method == ProposalMethod::kNgram && !options.tree.empty()) {
    return unsupported(
        "speculative_token_tree is of drafts, not of method ngram: use tree_width and tree_tokens");
  }
  if (options.synthetic_acceptance < 0) return ok_status();
  return unsupported(
      "tree_width does not go with synthetic_acceptance_rate, which is of chains: leave one out");
}

Result<std::shared_ptr<DraftSource>> create_draft_source(const ProposalOptions& options) {
  HR_RETURN_IF_ERROR(check_tree(options));
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
      std::make_shared<NgramSource>(options.lookup_min, options.lookup_max, options.tree_width));
}

}  // namespace headrace
