// Calls of tools in a dialect's spelling (text/output/dialect_table.h), with arguments of the
// tools' schemas.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/grammar/answer_grammar.h"
#include "text/grammar/free_text.h"
#include "text/grammar/json_grammar.h"
#include "text/output/dialect_table.h"

namespace headrace {

// Of a dialect with spellings. One thread; builder, JSON and plan outlive it.
// kInvalidArgument: what a tool has and such a call cannot; the message names the tool's field.
class CallGrammar {
 public:
  CallGrammar(GrammarBuilder& builder, JsonGrammar& json, const AnswerPlan& plan)
      : builder_(builder), json_(json), plan_(plan), dialect_(*plan.dialect.tools) {}

  // An answer of calls. `may_be_bare`: also without a mark, where the dialect has such.
  Result<GrammarPiece> calls(bool may_be_bare);
  // Free words, among which calls may be.
  Result<GrammarPiece> words_or_calls();

 private:
  static GrammarPiece join(std::initializer_list<GrammarPiece> pieces) {
    return GrammarBuilder::join(pieces);
  }
  Result<GrammarPiece> call(const CallSpelling& spelling);
  Result<GrammarPiece> call_of(const CallSpelling& spelling, const CallForm::Tool& tool);
  Result<GrammarPiece> arguments_of(const CallSpelling& spelling, const CallForm::Tool& tool);
  std::unique_ptr<JsonGrammar> json_of_values(const CallSpelling& spelling);
  Result<GrammarPiece> listed(const CallSpelling& spelling);
  Result<GrammarPiece> behind_mark(const CallSpelling& spelling);
  Result<GrammarPiece> answer(const CallSpelling& spelling);
  GrammarPiece mark();
  GrammarPiece spelled(std::string_view text) { return spelled_grammar(builder_, text, marks_); }
  GrammarPiece id_of(CallIdForm form);

  GrammarBuilder& builder_;
  JsonGrammar& json_;
  const AnswerPlan& plan_;
  const ToolDialect& dialect_;
  const std::vector<std::string_view> marks_ = tool_marks(dialect_);
  std::unique_ptr<JsonGrammar> json_of_values_;  // of arguments that are named one by one
  // Of a tool, as JSON or otherwise: several spellings may ask for them.
  std::map<std::pair<const CallForm::Tool*, const TaggedCallForm*>, GrammarPiece> arguments_;
};

// The arguments of a tool as JSON. Any object where it has no schema, or is not strict and its
// schema has no form.
Result<GrammarPiece> json_arguments(GrammarBuilder& builder, JsonGrammar& json,
                                    const CallForm::Tool& tool);

// kInvalidArgument where it is no plain word, which names are outside of JSON.
Status check_plain_name(const CallForm::Tool& tool);

// `status` behind the name of a field of the request.
Status at_field(const Status& status, const std::string& field);

}  // namespace headrace
