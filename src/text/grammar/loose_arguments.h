// Arguments as programs write them (LooseCallForm), each of its property's schema.
#pragma once

#include <span>
#include <string_view>

#include "text/grammar/json_grammar.h"
#include "text/output/call_forms.h"

namespace headrace {

// What stands between the brackets. Properties come in their order. `json` takes Python's words
// where the form has no quote of its own; `marks` are the dialect's.
// kInvalidArgument, kUnsupported: what such a text cannot be held to, by its place in the schema.
Result<GrammarPiece> loose_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                     const LooseCallForm& form,
                                     std::span<const std::string_view> marks,
                                     const Json& parameters);
// The same of any arguments.
GrammarPiece any_loose_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                 const LooseCallForm& form);

}  // namespace headrace
