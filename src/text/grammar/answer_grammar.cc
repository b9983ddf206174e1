#include "text/grammar/answer_grammar.h"

#include <utility>

#include <fmt/format.h>

#include "text/grammar/call_grammar.h"
#include "text/grammar/free_text.h"
#include "text/grammar/gbnf_grammar.h"
#include "text/grammar/harmony_grammar.h"
#include "text/grammar/json_grammar.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/regex_grammar.h"
#include "text/output/dialect_table.h"

namespace headrace {
namespace {

using Need = CallForm::Need;

class AnswerGrammar {
 public:
  explicit AnswerGrammar(const AnswerPlan& plan) : plan_(plan), json_(builder_) {}

  Result<std::shared_ptr<const Grammar>> build() {
    HR_ASSIGN_OR_RETURN(const GrammarPiece whole, answer());
    Result<std::shared_ptr<const Grammar>> grammar = builder_.finish(whole);
    if (grammar.ok()) return grammar;
    const bool words = plan_.words.kind != AnswerForm::Kind::kFree;
    return at_field(grammar.status(), words ? plan_.words.field : "tools");
  }

 private:
  Result<GrammarPiece> answer() {
    const bool harmony = plan_.dialect.tools && plan_.dialect.tools->harmony;
    if (harmony) return harmony_calls(builder_, json_, plan_);
    HR_ASSIGN_OR_RETURN(const GrammarPiece answer, words_or_calls());
    return behind_thoughts(answer);
  }

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
    CallGrammar calls(builder_, json_, plan_);
    if (need == Need::kMayCall && !formed) return calls.words_or_calls();
    HR_ASSIGN_OR_RETURN(const GrammarPiece of_calls,
                        calls.calls(may_lack_mark(plan_.calls, plan_.words, plan_.dialect)));
    return need == Need::kMustCall ? of_calls : builder_.choice({of_words, of_calls});
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
    const GrammarPiece then = GrammarBuilder::join({layout, answer});
    add_free_text(builder_, thoughts,
                  {.ends = {{.text = reasoning->close, .then = then}}, .marks = reasoning->inner});
    if (plan_.starts_in_reasoning) return thoughts;
    std::vector<std::string_view> marks(reasoning->inner.begin(), reasoning->inner.end());
    marks.push_back(reasoning->open);
    const GrammarPiece open = spelled_grammar(builder_, reasoning->open, marks);
    return builder_.choice({answer, GrammarBuilder::join({open, thoughts})});
  }

  const AnswerPlan& plan_;
  GrammarBuilder builder_;
  JsonGrammar json_;
};

}  // namespace

std::string root_field(std::string_view field) {
  return std::string(field.substr(0, field.find_first_of(".[")));
}

bool may_lack_mark(const CallForm& calls, const AnswerForm& words, const OutputDialect& dialect) {
  const bool only_calls = calls.need == Need::kMustCall;
  return enforces_bare_calls(dialect.tools) &&
         (only_calls || words.kind == AnswerForm::Kind::kFree);
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
  const bool calls_in_channels = plan.dialect.tools && plan.dialect.tools->harmony;
  const bool in_channels =
      calls_in_channels || (plan.dialect.reasoning && plan.dialect.reasoning->harmony);
  const bool only_calls =
      plan.words.kind == AnswerForm::Kind::kFree || plan.calls.need == CallForm::Need::kMustCall;
  if (in_channels && !(calls_in_channels && only_calls)) {
    return invalid_argument(
        fmt::format("{} is not supported by this model: it writes its answers in channels",
                    plan.words.field),
        plan.words.field);
  }
  return AnswerGrammar(plan).build();
}

}  // namespace headrace
