#include "text/grammar/loose_arguments.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar/free_text.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/json_schema_keywords.h"
#include "text/grammar/named_arguments.h"

namespace headrace {
namespace {

bool is_plain_key(std::string_view key) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !key.empty() && key.size() <= 256 && is_letter(key.front()) &&
         std::all_of(key.begin(), key.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

class LooseArguments {
 public:
  LooseArguments(GrammarBuilder& builder, JsonGrammar& json, const LooseCallForm& form,
                 std::span<const std::string_view> marks)
      : builder_(builder), json_(json), form_(form), marks_(marks) {}

  Result<GrammarPiece> of(const Json& schema) {
    HR_RETURN_IF_ERROR(check_named_arguments(schema));
    std::vector<Argument> all;
    static const Json kNone = Json::object();
    const Json* const properties = schema.find("properties");
    for (const auto& [key, property] : (properties ? *properties : kNone).as_object()) {
      HR_RETURN_IF_ERROR(check_key(key));
      HR_ASSIGN_OR_RETURN(const GrammarPiece one, value(schema, key, property));
      all.push_back({argument(builder_.literal(key), one), is_required(schema, key)});
    }
    if (const Json* required = schema.find("required")) {
      for (const Json& name : required->as_array()) {
        if (properties && properties->find(name.as_string())) continue;
        HR_RETURN_IF_ERROR(check_key(name.as_string()));
        all.push_back({argument(builder_.literal(name.as_string()), json_.value()), true});
      }
    }
    return listed(all);
  }

  GrammarPiece any() {
    ByteSet first = ByteSet::of_range('a', 'z');
    first.add_range('A', 'Z');
    first.add('_');
    ByteSet later = first;
    later.add_range('0', '9');
    const GrammarPiece key =
        join({builder_.bytes(first), builder_.repeat(builder_.bytes(later), 0, 63)});
    const GrammarPiece one = argument(key, json_.value());
    const GrammarPiece more = builder_.repeat(join({comma(), one}), 0, GrammarBuilder::kNoLimit);
    return builder_.optional(join({one, more}));
  }

 private:
  struct Argument {
    GrammarPiece text;
    bool required;
  };

  static GrammarPiece join(std::initializer_list<GrammarPiece> pieces) {
    return GrammarBuilder::join(pieces);
  }
  GrammarPiece comma() { return join({builder_.literal(","), json_.space()}); }

  GrammarPiece argument(const GrammarPiece& key, const GrammarPiece& value) {
    return builder_.choice({join({key, builder_.literal(form_.key_end), value})});
  }

  // From the last on: what may follow where an argument stands in front, and where none does.
  GrammarPiece listed(const std::vector<Argument>& arguments) {
    GrammarPiece behind_one, behind_none;
    for (auto each = arguments.rbegin(); each != arguments.rend(); ++each) {
      std::vector<GrammarPiece> more = {join({comma(), each->text, behind_one})};
      std::vector<GrammarPiece> first = {join({each->text, behind_one})};
      if (!each->required) {
        more.push_back(behind_one);
        first.push_back(behind_none);
      }
      behind_one = builder_.choice(more);
      behind_none = builder_.choice(first);
    }
    return behind_none;
  }

  Status check_key(const std::string& key) const {
    if (is_plain_key(key)) return ok_status();
    return unsupported_at(property_place(key), "a name that is none of an argument in a program");
  }

  Result<GrammarPiece> value(const Json& schema, const std::string& key, const Json& property) {
    const Json* type = property.find("type");
    const bool is_text = type && *type == Json("string");
    if (is_text && !form_.quote.empty() && !is_bounded(property)) {
      const Json* list = property.find("enum");
      if (!list) return free_text();
      return listed_texts(property_place(key), *list);
    }
    return json_property_grammar(builder_, json_, schema, property, key);
  }

  // Whether a text must be more than one of a list.
  static bool is_bounded(const Json& property) {
    constexpr std::string_view kOthers[] = {"const", "$ref", "anyOf", "oneOf", "allOf"};
    return speaks_of(property, SchemaFamily::kString) ||
           std::any_of(std::begin(kOthers), std::end(kOthers),
                       [&](std::string_view keyword) { return property.find(keyword) != nullptr; });
  }

  GrammarPiece quote() { return spelled_grammar(builder_, form_.quote, marks_); }

  GrammarPiece free_text() {
    if (free_text_.empty()) {
      const GrammarPiece text = builder_.declare();
      add_free_text(builder_, text, {.ends = {{.text = form_.quote, .then = {}}}, .marks = marks_});
      free_text_ = builder_.choice({join({quote(), text})});
    }
    return free_text_;
  }

  Result<GrammarPiece> listed_texts(const std::string& place, const Json& list) {
    std::vector<std::string> texts;
    for (const Json& value : list.as_array()) {
      if (!value.is_string()) continue;
      if (value.as_string().find(form_.quote) != std::string::npos) {
        return unsupported_at(place, "a text that holds the quote behind it");
      }
      texts.push_back(value.as_string());
    }
    if (texts.empty()) return unsupported_at(place, "\"enum\" without a text");
    return builder_.choice({join({quote(), builder_.one_of(std::move(texts)), quote()})});
  }

  GrammarBuilder& builder_;
  JsonGrammar& json_;
  const LooseCallForm& form_;
  const std::span<const std::string_view> marks_;
  GrammarPiece free_text_;
};

}  // namespace

Result<GrammarPiece> loose_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                     const LooseCallForm& form,
                                     std::span<const std::string_view> marks,
                                     const Json& parameters) {
  return LooseArguments(builder, json, form, marks).of(parameters);
}

GrammarPiece any_loose_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                 const LooseCallForm& form) {
  return LooseArguments(builder, json, form, {}).any();
}

}  // namespace headrace
