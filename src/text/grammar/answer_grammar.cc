#include "text/grammar/answer_grammar.h"

#include <utility>

#include <fmt/format.h>

#include "text/grammar/free_text.h"
#include "text/grammar/gbnf_grammar.h"
#include "text/grammar/json_grammar.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/regex_grammar.h"
#include "text/output/dialect_table.h"

namespace headrace {
namespace {

using Need = CallForm::Need;

Status at_field(const Status& status, const std::string& field) {
  return invalid_argument(fmt::format("{}: {}", field, status.message()), root_field(field));
}

class AnswerGrammar {
 public:
  explicit AnswerGrammar(const AnswerPlan& plan) : plan_(plan), json_(builder_) {}

  Result<std::shared_ptr<const Grammar>> build() {
    HR_ASSIGN_OR_RETURN(const GrammarPiece answer, words_or_calls());
    Result<std::shared_ptr<const Grammar>> grammar = builder_.finish(behind_thoughts(answer));
    if (grammar.ok()) return grammar;
    const bool words = plan_.words.kind != AnswerForm::Kind::kFree;
    return at_field(grammar.status(), words ? plan_.words.field : "tools");
  }

 private:
  Result<GrammarPiece> words() {
    const AnswerForm& form = plan_.words;
    switch (form.kind) {
      case AnswerForm::Kind::kJsonObject:
        return json_.object();
      case AnswerForm::Kind::kJsonSchema:
        return json_schema_grammar(builder_, json_, form.schema);
      case AnswerForm::Kind::kRegex:
        return regex_grammar(builder_, form.pattern);
      case AnswerForm::Kind::kGbnf:
        return gbnf_grammar(builder_, form.pattern);
      default:
        return builder_.one_of(form.choices);
    }
  }

  Result<GrammarPiece> words_or_calls() {
    const bool formed = plan_.words.kind != AnswerForm::Kind::kFree;
    const Need need = plan_.calls.need;
    GrammarPiece of_words;
    if (formed && need != Need::kMustCall) {
      Result<GrammarPiece> piece = words();
      if (!piece.ok()) return at_field(piece.status(), plan_.words.field);
      of_words = *piece;
    }
    if (need == Need::kNone) return of_words;
    HR_ASSIGN_OR_RETURN(const GrammarPiece one, call());
    const GrammarPiece more =
        plan_.calls.one_call
            ? GrammarPiece()
            : builder_.repeat(GrammarBuilder::join({builder_.literal("\n"), opening(), one}), 0,
                              GrammarBuilder::kNoLimit);
    if (need == Need::kMustCall) return GrammarBuilder::join({opening(), one, more});
    if (formed) {
      return builder_.choice({of_words, GrammarBuilder::join({opening(), one, more})});
    }
    const GrammarPiece text = builder_.declare();
    add_text_until(builder_, text, plan_.dialect.tools->spelling->open,
                   GrammarBuilder::join({one, text}), true);
    return text;
  }

  GrammarPiece opening() { return mark_grammar(builder_, plan_.dialect.tools->spelling->open); }

  Result<GrammarPiece> arguments_of(const CallForm::Tool& tool) {
    const bool any = tool.parameters.is_null() || (!tool.strict && !has_form(tool.parameters));
    if (any) return json_.object();
    return json_schema_grammar(builder_, json_, tool.parameters);
  }

  // Tried by itself: what is begun of a grammar cannot be taken back.
  static bool has_form(const Json& schema) {
    GrammarBuilder builder;
    JsonGrammar json(builder);
    const Result<GrammarPiece> piece = json_schema_grammar(builder, json, schema);
    return piece.ok() && builder.finish(*piece).ok();
  }

  // Behind the mark that opens it.
  Result<GrammarPiece> call() {
    const CallSpelling& spelling = *plan_.dialect.tools->spelling;
    std::vector<GrammarPiece> calls;
    for (const CallForm::Tool& tool : plan_.calls.tools) {
      const Result<GrammarPiece> arguments = arguments_of(tool);
      if (!arguments.ok()) return at_field(arguments.status(), tool.field);
      const std::string name = write_json(Json(tool.name));  // in quotes, which the spelling has
      calls.push_back(
          GrammarBuilder::join({builder_.literal(std::string_view(name).substr(1, name.size() - 2)),
                                builder_.literal(spelling.behind_name), *arguments}));
    }
    return GrammarBuilder::join({builder_.literal(spelling.before_name), builder_.choice(calls),
                                 builder_.literal(spelling.behind_arguments),
                                 mark_grammar(builder_, spelling.close)});
  }

  // Where the prompt has opened a thought it goes on up to its end; else the model may open one.
  GrammarPiece behind_thoughts(const GrammarPiece& answer) {
    const ReasoningDialect* reasoning = plan_.dialect.reasoning;
    if (!reasoning || reasoning->harmony) return answer;
    if (!plan_.may_open_thought && !plan_.starts_in_reasoning) return answer;
    ByteSet blank;
    for (char c : std::string_view(" \t\r\n")) blank.add(static_cast<uint8_t>(c));
    const GrammarPiece layout = builder_.repeat(builder_.bytes(blank), 0, 4);
    const GrammarPiece thoughts = builder_.declare();
    add_text_until(builder_, thoughts, reasoning->close, GrammarBuilder::join({layout, answer}),
                   false);
    if (plan_.starts_in_reasoning) return thoughts;
    const GrammarPiece opened =
        GrammarBuilder::join({mark_grammar(builder_, reasoning->open), thoughts});
    return builder_.choice({answer, opened});
  }

  const AnswerPlan& plan_;
  GrammarBuilder builder_;
  JsonGrammar json_;
};

}  // namespace

std::string root_field(std::string_view field) {
  return std::string(field.substr(0, field.find_first_of(".[")));
}

std::string AnswerPlan::key() const {
  Json tools = Json::array();
  for (const CallForm::Tool& tool : calls.tools) {
    tools.push(Json::Array{tool.name, tool.parameters, tool.strict});
  }
  Json choices = Json::array();
  for (const std::string& choice : words.choices) choices.push(choice);
  return write_json(Json::Array{static_cast<int>(words.kind), words.schema, words.pattern, choices,
                                static_cast<int>(calls.need), calls.one_call, starts_in_reasoning,
                                may_open_thought, dialect.tools_name(), dialect.reasoning_name(),
                                tools});
}

Result<std::shared_ptr<const Grammar>> answer_grammar(const AnswerPlan& plan) {
  const bool harmony = (plan.dialect.tools && plan.dialect.tools->harmony) ||
                       (plan.dialect.reasoning && plan.dialect.reasoning->harmony);
  if (harmony) {
    return invalid_argument(
        fmt::format("{} is not supported by this model: it writes its answers in channels",
                    plan.words.field),
        plan.words.field);
  }
  return AnswerGrammar(plan).build();
}

}  // namespace headrace
