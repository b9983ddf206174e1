// A source of proposals for the simulation: it knows what the oracle device will sample and
// proposes that, or something else by a seeded law, so that of each proposal none, some or all are
// accepted.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/draft_source.h"
#include "sim/oracle_device.h"

namespace headrace {

class OracleDrafts final : public DraftSource {
 public:
  // `right`: the probability of each proposed token to be the right one
  OracleDrafts(OracleModel model, uint64_t seed, double right)
      : model_(model), seed_(seed), right_(right) {}

  // From none to `most` tokens, as the seed and the sequence's length say.
  void propose(Sequence& sequence, int32_t most, std::vector<TokenId>& proposed) override;

 private:
  const OracleModel model_;
  const uint64_t seed_;
  const double right_;
};

}  // namespace headrace
