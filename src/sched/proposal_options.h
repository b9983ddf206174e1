// What speculative decoding is told.
#pragma once

#include <cstdint>
#include <memory>

#include "base/named.h"
#include "sched/token_tree.h"

namespace headrace {

class DraftSource;

enum class ProposalMethod : uint8_t {
  kNone,
  kNgram,       // what followed the last tokens where they stood before (prompt look-up)
  kDraftModel,  // what a smaller model says, which the runner asks (Work::drafted)
  // The same of heads that read the model's hidden rows.
  kEagle,   // EAGLE-1 and 2
  kEagle3,  // EAGLE-3
  kMedusa,
};
inline constexpr Named<ProposalMethod> kProposalMethods[] = {
    {"none", ProposalMethod::kNone},
    {"ngram", ProposalMethod::kNgram},
    {"draft_model", ProposalMethod::kDraftModel},
    {"eagle", ProposalMethod::kEagle},
    {"eagle3", ProposalMethod::kEagle3},
    {"medusa", ProposalMethod::kMedusa},
};
inline bool is_head(ProposalMethod method) {
  return method == ProposalMethod::kEagle || method == ProposalMethod::kEagle3 ||
         method == ProposalMethod::kMedusa;
}
// Whether the runner proposes, when it has the step.
inline bool drafts_in_runner(ProposalMethod method) {
  return method == ProposalMethod::kDraftModel || is_head(method);
}

struct ProposalOptions {
  ProposalMethod method = ProposalMethod::kNone;
  int32_t tokens_max = 5;  // proposed behind each other, 1 to kProposedTokensMax
  // On a CPU: above 1 a tree is proposed, of which at most so many branches go on from one token,
  // to kTreeWidthMax, and which has so many tokens at most, to TokenTree::kTokensMax.
  int32_t tree_width = 1;
  int32_t tree_tokens = 24;
  // Of a draft: trees are parts of this one (DraftForm::ranks), whose depth, width and size are the
  // fields above; empty: any.
  TokenTree tree = {};
  // ngram: so many of the last tokens must have stood before at least, and so many are compared.
  int32_t lookup_min = 2, lookup_max = 8;
  // Of a draft: that of a greedy answer ends where the chance that all tokens of its likeliest
  // branch are right, by its own probabilities, falls below this, 0 to 1.
  double chance_min = 0.4;
  // draft_model: only the first so many ids are proposed, so that less of its output matrix is
  // read; 0: all.
  int32_t draft_vocab = 0;
  // As many as a sequence may have, whatever they cost (tests, measurements).
  bool whatever_they_cost = false;
  // Whether tokens that the form of an answer leaves no choice about are proposed, whatever the
  // method. Only where steps do not overlap, beside a method that knows tokens when it plans, and
  // of models that keep no states.
  bool jump_ahead = true;
  // For measuring speed, 0 to 1: any tokens are proposed, and each is accepted with this chance
  // whatever the model says. Answers mean nothing. Below 0: off.
  double synthetic_acceptance = -1;
  // In place of the method's (tests).
  std::shared_ptr<DraftSource> source;
};
inline constexpr int32_t kProposedTokensMax = 16;
inline constexpr int32_t kLookupTokensMax = 64;
inline constexpr int32_t kTreeWidthMax = 8;

}  // namespace headrace
