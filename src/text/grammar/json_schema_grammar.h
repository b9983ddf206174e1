// JSON schemas (draft 2020-12) as grammars: every text that matches satisfies the schema. Where a
// schema leaves a choice of form, one is taken: properties come in their order, names are spelled
// plainly, and an object that lists its properties has no others unless additionalProperties says
// so. What is not supported is refused by its place and its name; nothing is passed over.
#pragma once

#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/json_grammar.h"

namespace headrace {

// kInvalidArgument, kUnsupported: the message begins with the place in the schema
// ("#/properties/a").
Result<GrammarPiece> json_schema_grammar(GrammarBuilder& builder, JsonGrammar& json,
                                         const Json& schema);
// The same of one of its properties alone, whose references look into all of the schema.
Result<GrammarPiece> json_property_grammar(GrammarBuilder& builder, JsonGrammar& json,
                                           const Json& schema, const Json& property,
                                           std::string_view name);

}  // namespace headrace
