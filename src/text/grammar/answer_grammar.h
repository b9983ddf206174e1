// The form of a whole answer: thoughts, which are free, then what the request asks for, or calls of
// tools in the spelling of the model's dialect.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "text/grammar/grammar.h"
#include "text/output/dialect.h"

namespace headrace {

// What an answer's words shall be.
struct AnswerForm {
  enum class Kind : uint8_t { kFree, kJsonObject, kJsonSchema, kRegex, kChoice, kGbnf };
  Kind kind = Kind::kFree;
  Json schema;                       // kJsonSchema
  std::string pattern;               // kRegex, kGbnf
  std::vector<std::string> choices;  // kChoice
  std::string field;                 // of the request, which errors name

  bool asks_for_the_same(const AnswerForm& other) const {
    return kind == other.kind && schema == other.schema && pattern == other.pattern &&
           choices == other.choices;
  }
};

// Of a part of a field its root, which an error names: "tools" of "tools[0].function".
std::string root_field(std::string_view field);

// Calls of tools that an answer may have, or must.
struct CallForm {
  struct Tool {
    std::string name;
    Json parameters;     // a schema; null: any object
    std::string field;   // of the request
    bool strict = true;  // else arguments are any object where the schema has no form
  };
  enum class Need : uint8_t {
    kNone,     // there are none, or they are free
    kMayCall,  // words, or calls whose arguments are of their form
    kMustCall,
  };
  Need need = Need::kNone;
  std::vector<Tool> tools;
  bool one_call = false;
};

// Whether calls of the form may stand without a mark, as some dialects write them: an answer that
// begins as one is one. Beside words of a form, which may begin so, a call has its mark.
bool may_lack_mark(const CallForm& calls, const AnswerForm& words, const OutputDialect& dialect);

struct AnswerPlan {
  AnswerForm words;
  CallForm calls;
  OutputDialect dialect;
  bool starts_in_reasoning = false;  // the prompt ends inside of a thought
  bool may_open_thought = true;      // false: the answer begins at once, or behind that thought

  bool is_free() const {
    return words.kind == AnswerForm::Kind::kFree && calls.need == CallForm::Need::kNone;
  }
  // Equal plans have equal grammars: a key for whoever keeps them.
  std::string key() const;
};

// kInvalidArgument with the field at fault: what is ill-formed, too large or not supported.
// REQUIRES: !plan.is_free()
Result<std::shared_ptr<const Grammar>> answer_grammar(const AnswerPlan& plan);

}  // namespace headrace
