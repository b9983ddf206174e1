#include "text/grammar/call_grammar.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/loose_arguments.h"
#include "text/grammar/tagged_arguments.h"

namespace headrace {
namespace {

// Tried by itself: what is begun of a grammar cannot be taken back.
template <class Make>
bool has_call_form(const Make& make) {
  GrammarBuilder builder;
  JsonGrammar json(builder);
  const Result<GrammarPiece> piece = make(builder, json);
  return piece.ok() && builder.finish(*piece).ok();
}

// Whether only objects satisfy it, as far as it shows: what it refers to is not looked at.
bool is_of_objects(const Json& schema) {
  if (!schema.is_object()) return false;
  if (const Json* type = schema.find("type")) return *type == Json("object");
  for (std::string_view keyword : {"anyOf", "oneOf"}) {
    const Json* list = schema.find(keyword);
    if (!list || !list->is_array()) continue;
    return std::all_of(list->as_array().begin(), list->as_array().end(), is_of_objects);
  }
  return true;
}

bool is_any(const Json& schema) { return schema == Json(true) || schema == Json::object(); }

}  // namespace

Status at_field(const Status& status, const std::string& field) {
  return invalid_argument(fmt::format("{}: {}", field, status.message()), root_field(field));
}

Status check_plain_name(const CallForm::Tool& tool) {
  const bool plain =
      !tool.name.empty() && std::all_of(tool.name.begin(), tool.name.end(), [](char c) {
        return is_call_name_char(c) && c != ':' && c != '.' && c != '/';
      });
  if (plain) return ok_status();
  return invalid_argument(
      fmt::format("a function's name must be of letters, digits, _ and - for the form of this "
                  "model's calls to be enforced, got \"{}\"",
                  tool.name.substr(0, 64)));
}

Result<GrammarPiece> json_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                    const CallForm::Tool& tool) {
  if (tool.parameters.is_null() || is_any(tool.parameters)) return json.object();
  const auto make = [&](GrammarBuilder& into, JsonGrammar& parts) -> Result<GrammarPiece> {
    if (!is_of_objects(tool.parameters)) return invalid_argument("#: arguments must be an object");
    return json_schema_grammar(into, parts, tool.parameters);
  };
  if (!tool.strict && !has_call_form(make)) return json.object();
  return make(builder, json);
}

Result<GrammarPiece> CallGrammar::arguments_of(const CallSpelling& spelling,
                                               const CallForm::Tool& tool) {
  const auto [known, is_new] = arguments_.try_emplace({&tool, spelling.tags});
  if (!is_new) return known->second;
  if (!spelling.tags && !spelling.loose) {
    HR_ASSIGN_OR_RETURN(known->second, json_arguments(builder_, json_, tool));
    return known->second;
  }
  if (!json_of_values_) json_of_values_ = json_of_values(spelling);
  const auto make = [&](GrammarBuilder& builder, JsonGrammar& json) {
    return spelling.tags ? tagged_arguments(builder, json, *spelling.tags, marks_, tool.parameters)
                         : loose_arguments(builder, json, *spelling.loose, marks_, tool.parameters);
  };
  const bool any = tool.parameters.is_null() || is_any(tool.parameters) ||
                   (!tool.strict && !has_call_form(make));
  if (any) {
    return known->second = spelling.tags
                               ? any_tagged_arguments(builder_, *json_of_values_, *spelling.tags,
                                                      marks_, tool.parameters)
                               : any_loose_arguments(builder_, *json_of_values_, *spelling.loose);
  }
  HR_ASSIGN_OR_RETURN(known->second, make(builder_, *json_of_values_));
  return known->second;
}

std::unique_ptr<JsonGrammar> CallGrammar::json_of_values(const CallSpelling& spelling) {
  if (spelling.tags) return std::make_unique<JsonGrammar>(builder_, coded_in_tags(*spelling.tags));
  return std::make_unique<JsonGrammar>(builder_, CodePointSet(), spelling.loose->quote.empty());
}

GrammarPiece CallGrammar::id_of(CallIdForm form) {
  ByteSet bytes = ByteSet::of_range('0', '9');
  if (form == CallIdForm::kNumber) return builder_.repeat(builder_.bytes(bytes), 1, 3);
  bytes.add_range('a', 'z');
  bytes.add_range('A', 'Z');
  return builder_.repeat(builder_.bytes(bytes), 9, 9);
}

Result<GrammarPiece> CallGrammar::call_of(const CallSpelling& spelling,
                                          const CallForm::Tool& tool) {
  std::string name = tool.name;
  if (spelling.name_in_json) {
    name = write_json(Json(name));
    name = name.substr(1, name.size() - 2);  // the spelling has the quotes
  } else {
    HR_RETURN_IF_ERROR(check_plain_name(tool));
  }
  HR_ASSIGN_OR_RETURN(const GrammarPiece arguments, arguments_of(spelling, tool));
  GrammarPiece id;
  if (spelling.id != CallIdForm::kNone && spelling.before_id.empty())
    id = join({id_of(spelling.id), spelled(spelling.behind_id)});
  return join({builder_.literal(name), spelled(spelling.behind_name), id, arguments});
}

Result<GrammarPiece> CallGrammar::call(const CallSpelling& spelling) {
  std::vector<GrammarPiece> calls;
  for (const CallForm::Tool& tool : plan_.calls.tools) {
    Result<GrammarPiece> one = call_of(spelling, tool);
    if (!one.ok()) return at_field(one.status(), tool.field);
    calls.push_back(*std::move(one));
  }
  GrammarPiece id;
  if (!spelling.before_id.empty()) id = join({spelled(spelling.before_id), id_of(spelling.id)});
  return builder_.choice({join({id, spelled(spelling.before_name), builder_.choice(calls),
                                spelled(spelling.behind_arguments), spelled(spelling.close)})});
}

GrammarPiece CallGrammar::mark() {
  std::vector<GrammarPiece> marks;
  for (std::string_view open : dialect_.opens) marks.push_back(spelled(open));
  return builder_.choice(marks);
}

// Calls that stand behind one mark, or bare.
Result<GrammarPiece> CallGrammar::listed(const CallSpelling& spelling) {
  HR_ASSIGN_OR_RETURN(const GrammarPiece one, call(spelling));
  GrammarPiece more;
  if (!plan_.calls.one_call) {
    more = builder_.repeat(join({spelled(spelling.separator), one}), 0, GrammarBuilder::kNoLimit);
  }
  return join({spelled(spelling.list_open), one, more, spelled(spelling.list_close)});
}

// Up to the end of the answer where the call has no end of its own, else to that.
Result<GrammarPiece> CallGrammar::behind_mark(const CallSpelling& spelling) {
  if (!spelling.marks_each) {
    HR_ASSIGN_OR_RETURN(const GrammarPiece calls, listed(spelling));
    return join({json_.space(), calls});
  }
  HR_ASSIGN_OR_RETURN(const GrammarPiece one, call(spelling));
  if (!spelling.close.empty() || plan_.calls.one_call) return one;
  const GrammarPiece next = join({spelled(spelling.separator), mark(), one});
  return join({one, builder_.repeat(next, 0, GrammarBuilder::kNoLimit)});
}

Result<GrammarPiece> CallGrammar::answer(const CallSpelling& spelling) {
  if (!spelling.marks_each) {
    HR_ASSIGN_OR_RETURN(const GrammarPiece calls, behind_mark(spelling));
    return join({spelled(spelling.section_open), mark(), calls});
  }
  HR_ASSIGN_OR_RETURN(const GrammarPiece one, call(spelling));
  const GrammarPiece whole = builder_.choice(
      {join({spelled(spelling.lead), mark(), one, spelled(spelling.behind_close)})});
  GrammarPiece more;
  if (!plan_.calls.one_call) {
    more = builder_.repeat(join({spelled(spelling.separator), whole}), 0, GrammarBuilder::kNoLimit);
  }
  return join({spelled(spelling.section_open), whole, more, spelled(spelling.section_close)});
}

Result<GrammarPiece> CallGrammar::calls(bool may_be_bare) {
  std::vector<GrammarPiece> answers;
  for (const CallSpelling& spelling : dialect_.spellings) {
    HR_ASSIGN_OR_RETURN(GrammarPiece one, answer(spelling));
    answers.push_back(std::move(one));
  }
  if (may_be_bare && dialect_.enforces_bare) {
    HR_ASSIGN_OR_RETURN(GrammarPiece bare, listed(dialect_.spellings.front()));
    answers.push_back(std::move(bare));
  }
  return builder_.choice(answers);
}

Result<GrammarPiece> CallGrammar::words_or_calls() {
  const GrammarPiece text = builder_.declare();
  std::vector<GrammarPiece> calls;
  for (const CallSpelling& spelling : dialect_.spellings) {
    HR_ASSIGN_OR_RETURN(const GrammarPiece one, behind_mark(spelling));
    calls.push_back(spelling.close.empty() ? one : join({one, text}));
  }
  FreeText free{.marks = marks_, .may_end = true};
  const GrammarPiece then = builder_.choice(calls);
  for (std::string_view open : dialect_.opens) free.ends.push_back({.text = open, .then = then});
  for (std::string_view mark : marks_) {
    const bool opens =
        std::find(dialect_.opens.begin(), dialect_.opens.end(), mark) != dialect_.opens.end();
    if (!opens) free.passed.push_back(mark);
  }
  add_free_text(builder_, text, free);
  if (!dialect_.enforces_bare) return text;
  const GrammarPiece begin = builder_.declare();
  free.bare_open = dialect_.bare_open;
  HR_ASSIGN_OR_RETURN(free.behind_bare, listed(dialect_.spellings.front()));
  add_free_text(builder_, begin, free);
  return begin;
}

}  // namespace headrace
