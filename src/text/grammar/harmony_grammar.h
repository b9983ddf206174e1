// Answers of gpt-oss: messages in channels, of which calls are some.
#pragma once

#include "text/grammar/answer_grammar.h"
#include "text/grammar/json_grammar.h"

namespace headrace {

// An answer with one call, or one that may have it: thoughts and remarks, then the call or, where
// there need be none, the last words. Its marks may be control tokens or text.
// kInvalidArgument: what a tool has and a call cannot. REQUIRES: the plan needs or may have calls
Result<GrammarPiece> harmony_calls(GrammarBuilder& builder, JsonGrammar& json,
                                   const AnswerPlan& plan);

}  // namespace headrace
