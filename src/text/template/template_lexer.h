// Template source -> tokens, with Jinja's whitespace control applied (trim_blocks, lstrip_blocks,
// "-" and "+" marks, comments, raw blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct TemplateToken {
  enum class Kind : uint8_t {
    kData,           // text: what is output as it is
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kName,           // text
    kString,         // text, escapes resolved
    kInteger,        // integer
    kFloat,          // real
    kOperator,       // text: one of + - * / // % ** ~ == != < <= > >= = . : | , ( ) [ ] { }
    kEnd,
  };
  Kind kind;
  int line;
  std::string text;
  int64_t integer = 0;
  double real = 0;
};

// The last token is kEnd. Throws TemplateError.
std::vector<TemplateToken> lex_template(std::string_view source);

}  // namespace headrace
