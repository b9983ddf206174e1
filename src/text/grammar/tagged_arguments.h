// Arguments between tags (TaggedCallForm), each of its property's schema: texts as they are, other
// values as JSON.
#pragma once

#include <span>
#include <string_view>

#include "text/grammar/json_grammar.h"
#include "text/output/call_forms.h"

namespace headrace {

// The character that JSON between tags holds by its code alone: with it a tag begins.
CodePointSet coded_in_tags(const TaggedCallForm& form);

// What stands behind the name, up to form.end, which is not part of it. Properties come in their
// order. `json` has coded_in_tags(); `marks` are the dialect's.
// kInvalidArgument, kUnsupported: what such a text cannot be held to, by its place in the schema.
Result<GrammarPiece> tagged_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                      const TaggedCallForm& form,
                                      std::span<const std::string_view> marks,
                                      const Json& parameters);
// The same of any arguments; where values end by their names, of those that `parameters` names.
GrammarPiece any_tagged_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                  const TaggedCallForm& form,
                                  std::span<const std::string_view> marks, const Json& parameters);

}  // namespace headrace
