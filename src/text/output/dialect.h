// How families of models write calls of tools and thoughts: one row of a table for each form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/stop_matcher.h"

namespace headrace {

struct ToolDialect;
struct ReasoningDialect;

struct OutputDialect {
  const ToolDialect* tools = nullptr;           // nullptr: calls are not read
  const ReasoningDialect* reasoning = nullptr;  // nullptr: thoughts are not told apart

  std::string_view tools_name() const;  // "none" where there is none
  std::string_view reasoning_name() const;
  // The texts that must reach the parser even where control tokens leave no text.
  std::vector<std::string_view> marks() const;
  // Whether a thought is open at the end of this text of a prompt.
  bool opens_reasoning(std::string_view prompt_end) const;
  // Whether one has just ended there, as templates write it that switch thoughts off.
  bool closes_reasoning(std::string_view prompt_end) const;
};

// By a name that vLLM, SGLang or llama.cpp use for the form, "none", or "auto": what the chat
// template writes for earlier turns. kInvalidArgument naming `flag` for a name that is not known.
Result<const ToolDialect*> choose_tool_dialect(std::string_view name,
                                               std::string_view chat_template);
Result<const ReasoningDialect*> choose_reasoning_dialect(std::string_view name,
                                                         std::string_view chat_template);

// Whether the form of its calls can be enforced (text/grammar/answer_grammar.h).
bool enforces_calls(const ToolDialect* dialect);
// Whether calls of the form that is enforced may come without a mark, where an answer begins.
bool enforces_bare_calls(const ToolDialect* dialect);
// Between what a call of the form that is enforced stands. REQUIRES: enforces_calls(dialect)
StopShield call_shield(const ToolDialect& dialect);

// Whether the length of thoughts can be bounded (text/output/thought_budget.h).
bool bounds_thoughts(const ReasoningDialect* dialect);

// How the API calls a call that the model gave no name.
enum class CallIdStyle : uint8_t {
  kCall,  // call_ and 24 characters
  kNine,  // 9 letters and digits, which Mistral's template insists on
};
CallIdStyle call_id_style(const ToolDialect* dialect);

}  // namespace headrace
