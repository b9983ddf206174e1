// Who proposes tokens that a step is to verify (speculative decoding).
//
// A step computes a sequence's known last token and the proposed ones behind it, and samples at
// each of them as though what stands before were certain. A proposal is accepted where the token
// sampled before it is the same; the first that differs is the sequence's next token, and what was
// computed behind it is void. Of a tree (token_tree.h) the sampled token chooses the branch that
// goes on with it, until none does. So every token is drawn from the model's own distribution, with
// the random number of its own position: greedy and seeded answers have the tokens that they have
// without proposals (the source proposes one token with certainty; Leviathan et al. 2023, Chen et
// al. 2023 with a draft distribution of one point).
#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/status.h"
#include "sched/proposal_options.h"
#include "sched/sequence.h"
#include "sched/token_tree.h"

namespace headrace {

struct ProposalBounds {
  int32_t depth = 0;   // tokens behind each other, at most
  int32_t tokens = 0;  // of all branches, at most
};

// One thread, the scheduler's.
class DraftSource {
 public:
  virtual ~DraftSource() = default;
  // Fills in tokens that may follow all that is known of the sequence. None: no idea. What it
  // remembers of the sequence is in its draft_memory and ends with it.
  virtual void propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) = 0;
};

// Whether trees can be proposed as the options say. kInvalidArgument, kUnsupported name what
// cannot.
Status check_tree(const ProposalOptions& options);
// Null: proposals are off. kInvalidArgument names the field that cannot be.
Result<std::shared_ptr<DraftSource>> create_draft_source(const ProposalOptions& options);

}  // namespace headrace
