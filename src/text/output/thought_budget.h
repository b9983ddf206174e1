// A bound on the tokens of an answer's thoughts: where it is used up, what ends the thoughts comes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/token_constraint.h"
#include "text/output/dialect.h"
#include "text/tokenizer.h"

namespace headrace {

struct ThoughtBudget {
  int32_t tokens = 0;                // of thoughts, without the mark that ends them
  bool starts_in_reasoning = false;  // the prompt ends inside of a thought
};

// Thoughts are what the parser of answers takes for them. `marks`, ascending: control tokens that
// are marks of the dialect. The tokenizer outlives it. REQUIRES: bounds_thoughts(dialect.reasoning)
std::shared_ptr<const TokenConstraint> make_thought_budget(const Tokenizer& tokenizer,
                                                           const OutputDialect& dialect,
                                                           std::span<const TokenId> marks,
                                                           ThoughtBudget budget);

}  // namespace headrace
