// What the runner is to propose for a sequence beside how much (Work::drafted): a chain, or a tree.
#pragma once

#include <cstdint>

#include "sched/token_tree.h"

namespace headrace {

struct DraftForm {
  int32_t depth = 0;  // tokens behind each other, at most
  int32_t width = 1;  // behind one token, at most; 1: a chain
  // A tree of this form: in place of each token its rank among those that stand behind the same
  // one, 0 the likeliest. A draft that has no token for a place leaves it and all behind it out.
  // Empty: what the draft holds likeliest (EAGLE-2, Li et al. 2024).
  TokenTree ranks = {};

  bool is_chain() const { return width == 1; }
};

}  // namespace headrace
