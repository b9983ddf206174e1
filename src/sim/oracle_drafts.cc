#include "sim/oracle_drafts.h"

namespace headrace {

void OracleDrafts::propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) {
  const Request& request = *sequence.request;
  OracleChain chain(request, sequence.known_tokens());
  Rng rng(mix64(seed_ ^ mix64(static_cast<uint64_t>(sequence.id.value))) ^
          static_cast<uint64_t>(sequence.known_length()));
  if (bounds.tokens > bounds.depth) return propose_tree(chain, rng, sequence, bounds, proposed);
  const int64_t count = rng.between(0, bounds.depth);
  for (int64_t i = 0; i < count; ++i) {
    TokenId token = chain.next_token(model_, request.sampling.seed.value_or(0), sequence.choice);
    if (rng.uniform() >= right_) token = (token + 1) % model_.vocab_size;
    proposed.tokens.push_back(token);
    chain.append(token);
  }
}

// Behind any token of it, the right one by the same law, else any that its siblings are not.
void OracleDrafts::propose_tree(const OracleChain& known, Rng& rng, const Sequence& sequence,
                                const ProposalBounds& bounds, TokenTree& proposed) {
  const int64_t count = rng.between(0, bounds.tokens);
  std::vector<OracleChain> chains;
  for (int64_t i = 0; i < count; ++i) {
    const auto parent = static_cast<int32_t>(rng.between(-1, proposed.size() - 1));
    const bool first = parent == TokenTree::kBeforeAll;
    if (!first && proposed.depth(parent) + 1 == bounds.depth) continue;
    if (proposed.child_count(parent) == width_) continue;
    OracleChain chain = first ? known : chains[static_cast<size_t>(parent)];
    TokenId token =
        chain.next_token(model_, sequence.request->sampling.seed.value_or(0), sequence.choice);
    if (rng.uniform() >= right_) {
      token = static_cast<TokenId>(rng.below(static_cast<uint64_t>(model_.vocab_size)));
    }
    if (proposed.child(parent, token) != TokenTree::kBeforeAll) continue;
    chain.append(token);
    chains.push_back(chain);
    proposed.tokens.push_back(token);
    proposed.parents.push_back(parent);
  }
}

}  // namespace headrace
