#include "text/grammar/harmony_grammar.h"

#include <string_view>
#include <vector>

#include "text/grammar/call_grammar.h"
#include "text/grammar/free_text.h"

namespace headrace {
namespace {

class HarmonyGrammar {
 public:
  HarmonyGrammar(GrammarBuilder& builder, JsonGrammar& json, const AnswerPlan& plan)
      : builder_(builder), json_(json), plan_(plan), marks_(tool_marks(*plan.dialect.tools)) {}

  Result<GrammarPiece> answer() {
    const GrammarPiece answer = builder_.declare();
    const GrammarPiece on = join({spelled("<|start|>assistant"), answer});
    const GrammarPiece message = builder_.declare();
    add_free_text(builder_, message, text_up_to("<|end|>", on, false));
    for (std::string_view channel : {"analysis", "commentary"}) {
      builder_.add(answer, join({spelled("<|channel|>"), builder_.literal(channel),
                                 spelled("<|message|>"), message}));
    }
    HR_ASSIGN_OR_RETURN(const GrammarPiece call, calls());
    builder_.add(answer, call);
    if (plan_.calls.need == CallForm::Need::kMustCall) return answer;
    const GrammarPiece words = builder_.declare();
    add_free_text(builder_, words, text_up_to("<|return|>", {}, true));
    builder_.add(answer, join({spelled("<|channel|>final<|message|>"), words}));
    return answer;
  }

 private:
  static GrammarPiece join(std::initializer_list<GrammarPiece> pieces) {
    return GrammarBuilder::join(pieces);
  }
  GrammarPiece spelled(std::string_view text) { return spelled_grammar(builder_, text, marks_); }

  // A message's text holds no other mark, which would end it.
  FreeText text_up_to(std::string_view end, const GrammarPiece& then, bool may_end) const {
    FreeText text{.may_end = may_end};
    for (std::string_view mark : marks_) {
      text.ends.push_back({.text = mark, .then = then, .never = mark != end});
    }
    return text;
  }

  // The recipient stands in front of the channel or behind it.
  Result<GrammarPiece> calls() {
    std::vector<GrammarPiece> tools;
    for (const CallForm::Tool& tool : plan_.calls.tools) {
      const Status name = check_plain_name(tool);
      if (!name.ok()) return at_field(name, tool.field);
      const Result<GrammarPiece> arguments = json_arguments(builder_, json_, tool);
      if (!arguments.ok()) return at_field(arguments.status(), tool.field);
      const GrammarPiece to = builder_.literal(" to=functions." + tool.name);
      const GrammarPiece channel = spelled("<|channel|>commentary");
      tools.push_back(
          join({builder_.choice({join({channel, to}), join({to, channel})}), content_type(),
                spelled("<|message|>"), *arguments, builder_.optional(spelled("<|call|>"))}));
    }
    return builder_.choice(tools);
  }

  GrammarPiece content_type() {
    return builder_.choice({spelled(" <|constrain|>json"), spelled("<|constrain|>json"),
                            builder_.literal(" json"), GrammarPiece()});
  }

  GrammarBuilder& builder_;
  JsonGrammar& json_;
  const AnswerPlan& plan_;
  const std::vector<std::string_view> marks_;
};

}  // namespace

Result<GrammarPiece> harmony_calls(GrammarBuilder& builder, JsonGrammar& json,
                                   const AnswerPlan& plan) {
  return HarmonyGrammar(builder, json, plan).answer();
}

}  // namespace headrace
