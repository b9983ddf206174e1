#include "text/grammar/tagged_arguments.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "text/grammar/free_text.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/json_schema_keywords.h"
#include "text/grammar/named_arguments.h"
#include "text/grammar/regex_grammar.h"
#include "text/output/argument_schema.h"
#include "text/output/tool_list.h"

namespace headrace {
namespace {

class TaggedArguments {
 public:
  TaggedArguments(GrammarBuilder& builder, JsonGrammar& json, const TaggedCallForm& form,
                  std::span<const std::string_view> marks)
      : builder_(builder),
        json_(json),
        form_(form),
        marks_(marks),
        line_(builder.optional(builder.literal("\n"))) {}

  Result<GrammarPiece> of(const Json& schema) {
    HR_RETURN_IF_ERROR(check_named_arguments(schema));
    GrammarPiece all = behind_name();
    static const Json kNone = Json::object();
    const Json* const properties = schema.find("properties");
    for (const auto& [key, property] : (properties ? *properties : kNone).as_object()) {
      HR_ASSIGN_OR_RETURN(const GrammarPiece one, argument(schema, key, property));
      all = join({all, is_required(schema, key) ? one : builder_.optional(one)});
    }
    if (const Json* required = schema.find("required")) {
      for (const Json& name : required->as_array()) {
        if (properties && properties->find(name.as_string())) continue;
        HR_RETURN_IF_ERROR(check_key(name.as_string()));
        all = join({all, text_argument(builder_.literal(name.as_string()))});
      }
    }
    return all;
  }

  // Names and texts as the model likes them; of values that end by their names, the known ones.
  GrammarPiece any(const Json& parameters) {
    if (form_.closes_by_key()) return any_of_named(parameters);
    ByteSet bytes = ByteSet::of_range('a', 'z');
    bytes.add_range('A', 'Z');
    bytes.add_range('0', '9');
    bytes.add('_');
    bytes.add('-');
    const GrammarPiece argument = text_argument(builder_.repeat(builder_.bytes(bytes), 1, 64));
    return join({behind_name(), builder_.repeat(argument, 0, GrammarBuilder::kNoLimit)});
  }

 private:
  GrammarPiece any_of_named(const Json& parameters) {
    GrammarPiece all = behind_name();
    const Json* properties = parameters.find("properties");
    if (!properties || !properties->is_object()) return all;
    for (const auto& [key, property] : properties->as_object()) {
      if (!check_key(key).ok()) continue;
      all = join({all, builder_.optional(text_argument(builder_.literal(key)))});
    }
    return all;
  }

  static GrammarPiece join(std::initializer_list<GrammarPiece> pieces) {
    return GrammarBuilder::join(pieces);
  }
  GrammarPiece spelled(std::string_view text) { return spelled_grammar(builder_, text, marks_); }
  GrammarPiece behind_name() {
    if (form_.number_end.empty()) return join({spelled(form_.name_end), line_});
    const GrammarPiece digits = builder_.bytes(ByteSet::of_range('0', '9'));
    return join(
        {spelled(form_.name_end), builder_.repeat(digits, 1, 3), spelled(form_.number_end), line_});
  }

  Status check_key(const std::string& key) const {
    const bool plain =
        !key.empty() && key.size() <= 256 && key.find_first_of("<>\"\n\r") == std::string::npos;
    if (plain) return ok_status();
    return unsupported_at(property_place(key), "a name that does not go between tags");
  }

  enum class Kind : uint8_t { kText, kJson };

  // What stands in front of a value.
  GrammarPiece in_front(const GrammarPiece& key, Kind kind) {
    GrammarPiece front = join({spelled(form_.argument_open), key, spelled(form_.key_end)});
    if (!form_.kind_end.empty()) {
      std::vector<std::string> kinds{std::string(form_.text_kind)};
      if (kind == Kind::kJson) kinds.assign(form_.json_kinds.begin(), form_.json_kinds.end());
      front = join({front, builder_.one_of(std::move(kinds)), spelled(form_.kind_end)});
    }
    if (form_.value_open.empty()) return front;
    return join({front, line_, spelled(form_.value_open)});
  }

  GrammarPiece line_of_value() { return form_.lines ? builder_.literal("\n") : GrammarPiece(); }

  // What follows value_close, up to the next argument.
  GrammarPiece behind_close(const GrammarPiece& key) {
    if (!form_.closes_by_key()) return line_;
    return join({builder_.literal(form_.close_key_open), key, builder_.literal(form_.close_key_end),
                 line_});
  }

  GrammarPiece whole(const GrammarPiece& key, Kind kind, const GrammarPiece& value) {
    return builder_.choice({join({in_front(key, kind), line_of_value(), value, line_of_value(),
                                  spelled(form_.value_close), behind_close(key)})});
  }

  // Any text up to value_close, and `then`.
  GrammarPiece free_value(const GrammarPiece& then) {
    FreeText free{.ends = {{.text = form_.value_close, .then = then}}, .marks = marks_};
    if (!form_.text_open.empty()) free.ends.push_back({.text = form_.text_open, .never = true});
    const GrammarPiece value = builder_.declare();
    add_free_text(builder_, value, free);
    return value;
  }

  // A value is any text up to its end.
  GrammarPiece text_argument(const GrammarPiece& key) {
    if (form_.closes_by_key()) {
      const GrammarPiece value = free_value(behind_close(key));
      return builder_.choice({join({in_front(key, Kind::kText), value})});
    }
    if (free_value_.empty()) free_value_ = free_value(line_);
    return builder_.choice({join({in_front(key, Kind::kText), line_of_value(), free_value_})});
  }

  Result<GrammarPiece> argument(const Json& schema, const std::string& key, const Json& said) {
    HR_RETURN_IF_ERROR(check_key(key));
    const std::string place = property_place(key);
    const GrammarPiece name = builder_.literal(key);
    // As its reader finds what a value is meant as.
    const Json* const found = form_.closes_by_key() ? resolved_schema(&schema, &said) : &said;
    if (found == nullptr) return text_argument(name);
    const Json& property = *found;
    if (argument_kind(property) != ArgumentKind::kText) {
      HR_ASSIGN_OR_RETURN(const GrammarPiece value,
                          json_property_grammar(builder_, json_, schema, property, key));
      return whole(name, Kind::kJson, value);
    }
    for (std::string_view keyword : {"$ref", "anyOf", "oneOf", "allOf"}) {
      if (property.find(keyword)) {
        return unsupported_at(place, fmt::format("\"{}\" of a text between tags", keyword));
      }
    }
    if (property.find("enum") || property.find("const")) {
      HR_ASSIGN_OR_RETURN(const GrammarPiece texts, listed_texts(place, property));
      return whole(name, Kind::kText, texts);
    }
    if (!speaks_of(property, SchemaFamily::kString)) return text_argument(name);
    HR_ASSIGN_OR_RETURN(const GrammarPiece text, formed_text(place, property));
    return whole(name, Kind::kText, text);
  }

  Result<GrammarPiece> listed_texts(const std::string& place, const Json& schema) {
    const Json* list = schema.find("enum");
    std::vector<std::string> texts;
    for (const Json& value : list ? list->as_array() : Json::Array{*schema.find("const")}) {
      if (!value.is_string()) continue;
      if (value.as_string().find(form_.value_close) != std::string::npos) {
        return unsupported_at(place, "a text that holds the tag behind it");
      }
      if (!form_.text_open.empty() && value.as_string().starts_with(form_.text_open)) {
        return unsupported_at(place, "a text that begins as a section of text");
      }
      texts.push_back(value.as_string());
    }
    if (texts.empty())
      return unsupported_at(place, "\"enum\" without a text, where values are texts");
    return builder_.one_of(std::move(texts));
  }

  // Characters with which no tag begins.
  GrammarPiece plain_character(const CodePointSet& set) {
    return builder_.character(set.without(coded_in_tags(form_)));
  }

  // Bounds and patterns were checked with the whole schema.
  Result<GrammarPiece> formed_text(const std::string& place, const Json& schema) {
    const Json* pattern = schema.find("pattern");
    const Json* format = schema.find("format");
    const std::string_view expression = pattern  ? std::string_view(pattern->as_string())
                                        : format ? format_pattern(format->as_string())
                                                 : std::string_view();
    if (!pattern && expression.empty()) {
      const auto bound = [&](std::string_view keyword, int64_t otherwise) {
        const Json* value = schema.find(keyword);
        return value ? value->as_int() : otherwise;
      };
      return builder_.repeat(plain_character(CodePointSet::all()), bound("minLength", 0),
                             bound("maxLength", GrammarBuilder::kNoLimit));
    }
    const auto text = regex_grammar(builder_, expression,
                                    [&](const CodePointSet& set) { return plain_character(set); });
    if (!text.ok()) return text.status().with_context(place);
    return *text;
  }

  GrammarBuilder& builder_;
  JsonGrammar& json_;
  const TaggedCallForm& form_;
  const std::span<const std::string_view> marks_;
  const GrammarPiece line_;  // a line break, or none
  GrammarPiece free_value_;
};

}  // namespace

CodePointSet coded_in_tags(const TaggedCallForm& form) {
  const auto first = static_cast<uint8_t>(form.value_close.front());
  return {{first, first}};
}

Result<GrammarPiece> tagged_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                      const TaggedCallForm& form,
                                      std::span<const std::string_view> marks,
                                      const Json& parameters) {
  return TaggedArguments(builder, json, form, marks).of(parameters);
}

GrammarPiece any_tagged_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                  const TaggedCallForm& form,
                                  std::span<const std::string_view> marks, const Json& parameters) {
  return TaggedArguments(builder, json, form, marks).any(parameters);
}

}  // namespace headrace
