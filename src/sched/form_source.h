// Proposes what the form of an answer leaves no choice about: keys of a schema, for one, which then
// cost one step and not one a token. The tokens are those that a text of these bytes is written
// with; the model may want others of the same bytes, which verification finds.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/draft_source.h"

namespace headrace {

class FormSource final : public DraftSource {
 public:
  // REQUIRES: the sequence's request has a constraint, and no other source has proposed for it
  void propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) override;

 private:
  struct Place final : DraftMemory {
    std::unique_ptr<TokenMatcher> matcher;
    size_t read = 0;  // tokens of the output
  };
};

}  // namespace headrace
