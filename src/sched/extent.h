// How much of a sequence is computed: what is certain, and between which bounds the steps in flight
// will leave it. A step without proposals ends where it says; one with proposals ends somewhere
// between its first token and its last, which its result tells.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace headrace {

struct Extent {
  int32_t settled = 0;  // tokens [0, settled) are computed by steps that were applied
  int32_t least = 0;    // when the steps in flight are applied, at least [0, least) is,
  int32_t most = 0;     // and at most [0, most). The sequence has pages for so many.
  int32_t reached = 0;  // the greatest `most` so far: pages of rejected proposals are kept

  // Whether the steps in flight leave one length, so that a step behind them can be planned.
  bool known() const { return least == most; }
  // It begins with tokens that were computed before.
  void begin(int32_t tokens) { *this = {tokens, tokens, tokens, tokens}; }
  // A step computes `count` tokens more, of which the last `proposed` may be rejected.
  void plan(int32_t count, int32_t proposed) {
    CHECK_MSG(known(), "a step is planned behind one whose outcome is open");
    least = most + count - proposed;
    most += count;
    if (most > reached) reached = most;
  }
  // A step was applied that leaves [0, tokens) of those that it computed.
  void settle(int32_t tokens, bool had_proposals) {
    settled = tokens;
    if (had_proposals) least = most = tokens;
  }
};

}  // namespace headrace
