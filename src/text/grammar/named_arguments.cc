#include "text/grammar/named_arguments.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/json_schema_keywords.h"

namespace headrace {

Status check_named_arguments(const Json& schema) {
  if (!schema.is_object()) return invalid_argument("#: arguments must be an object");
  HR_RETURN_IF_ERROR(check_schema_keywords(schema, "#"));
  const Json* type = schema.find("type");
  if (type && *type != Json("object")) return invalid_argument("#: arguments must be an object");
  for (std::string_view keyword : {"$ref", "enum", "const", "anyOf", "oneOf", "allOf"}) {
    if (schema.find(keyword)) {
      return unsupported_at(
          "#", fmt::format("\"{}\" of arguments that this model names one by one", keyword));
    }
  }
  // What JSON cannot be held to is refused by its rules and words, in a grammar of its own.
  GrammarBuilder builder;
  JsonGrammar json(builder);
  HR_ASSIGN_OR_RETURN(const GrammarPiece whole, json_schema_grammar(builder, json, schema));
  return builder.finish(whole).status();
}

bool is_required(const Json& schema, std::string_view name) {
  const Json* names = schema.find("required");
  if (!names || !names->is_array()) return false;
  const Json::Array& all = names->as_array();
  return std::find(all.begin(), all.end(), Json(std::string(name))) != all.end();
}

std::string property_place(std::string_view name) {
  return "#/properties/" + std::string(name.substr(0, 64));
}

Status unsupported_at(std::string_view place, std::string_view what) {
  return unsupported(fmt::format("{}: {}", place, what));
}

}  // namespace headrace
