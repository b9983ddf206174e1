// What speculative decoding is told.
#pragma once

#include <cstdint>
#include <memory>

#include "base/named.h"

namespace headrace {

class DraftSource;

enum class ProposalMethod : uint8_t {
  kNone,
  kNgram,  // what followed the last tokens where they stood before (prompt look-up)
};
inline constexpr Named<ProposalMethod> kProposalMethods[] = {
    {"none", ProposalMethod::kNone},
    {"ngram", ProposalMethod::kNgram},
};

struct ProposalOptions {
  ProposalMethod method = ProposalMethod::kNone;
  int32_t tokens_max = 5;  // proposed at a time, 1 to kProposedTokensMax
  // ngram: so many of the last tokens must have stood before at least, and so many are compared.
  int32_t lookup_min = 2, lookup_max = 8;
  // For measuring speed, 0 to 1: any tokens are proposed, and each is accepted with this chance
  // whatever the model says. Answers mean nothing. Below 0: off.
  double synthetic_acceptance = -1;
  // In place of the method's (tests).
  std::shared_ptr<DraftSource> source;
};
inline constexpr int32_t kProposedTokensMax = 16;
inline constexpr int32_t kLookupTokensMax = 64;

}  // namespace headrace
