// A source of proposals for the simulation: it knows what the oracle device will sample and
// proposes that, or something else by a seeded law, so that of each proposal none, some or all are
// accepted.
#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "sched/draft_source.h"
#include "sim/oracle_device.h"

namespace headrace {

class OracleDrafts final : public DraftSource {
 public:
  // `right`: the probability of each proposed token to be the right one. `width`: of a tree, the
  // most branches that go on from one token.
  OracleDrafts(OracleModel model, uint64_t seed, double right, int32_t width = 1)
      : model_(model), seed_(seed), right_(right), width_(width) {}

  // From none to as many tokens as may be, as the seed and the sequence's length say: a tree where
  // there may be more than stand behind each other.
  void propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) override;

 private:
  void propose_tree(const OracleChain& known, Rng& rng, const Sequence& sequence,
                    const ProposalBounds& bounds, TokenTree& proposed);

  const OracleModel model_;
  const uint64_t seed_;
  const double right_;
  const int32_t width_;
};

}  // namespace headrace
