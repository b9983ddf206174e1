#include "terminal/code_highlighter.h"

#include <gtest/gtest.h>

#include "text/utf8.h"

namespace headrace::code_highlighter_test {
namespace {

StyledTexts coloured(std::string_view language, std::string_view code) {
  StyledTexts out;
  CodeHighlighter highlighter(language);
  const auto tell = [&out](std::string_view text, const Style& style) {
    append_styled(out, text, style);
  };
  while (!code.empty()) {
    const size_t length = utf8_step(code).length;
    highlighter.push(code.substr(0, length), tell);
    code.remove_prefix(length);
  }
  highlighter.finish(tell);
  return out;
}

// The texts of one colour, with a bar between them.
std::string of_colour(const StyledTexts& texts, Colour colour) {
  std::string found;
  for (const StyledText& each : texts) {
    if (each.style.colour == colour) found += each.text + "|";
  }
  return found;
}

TEST(CodeHighlighter, LosesNothing) {
  for (const std::string_view code :
       {"int x = a / b; // c\n", "\"\"\"a\nb\"\"\" ''\n", "/", "'", "x", "/* open", "-- a - b\n"}) {
    for (const std::string_view language : {"python", "c", "sql", "html", "diff", "", "nonsense"}) {
      EXPECT_EQ(plain_text(coloured(language, code)), code) << language;
    }
  }
}

TEST(CodeHighlighter, Python) {
  const StyledTexts texts = coloured(
      "python", "def f(x):\n  '''a\nb''' # no 'string'\n  return \"\" + g(12) + 'it\\'s'\n");
  EXPECT_EQ(of_colour(texts, Colour::kMagenta), "def|return|");
  EXPECT_EQ(of_colour(texts, Colour::kBlue), "f|g|");
  EXPECT_EQ(of_colour(texts, Colour::kYellow), "12|");
  EXPECT_EQ(of_colour(texts, Colour::kGrey), "# no 'string'|");
  EXPECT_EQ(of_colour(texts, Colour::kGreen), "'''a|b'''|\"\"|'it\\'s'|");
}

TEST(CodeHighlighter, C) {
  const StyledTexts texts =
      coloured("cpp", "/* a\nb */ int x = 1 / 2; // end\nchar c = '\"';\ndon't\nint y;\n");
  EXPECT_EQ(of_colour(texts, Colour::kGrey), "/* a|b */|// end|");
  EXPECT_EQ(of_colour(texts, Colour::kMagenta), "int|char|int|");
  EXPECT_EQ(of_colour(texts, Colour::kGreen), "'\"'|'t|");  // an apostrophe ends with its line
}

TEST(CodeHighlighter, Changes) {
  const StyledTexts texts = coloured("diff", "+a\n-b\n c\n");
  EXPECT_EQ(of_colour(texts, Colour::kGreen), "+a|");
  EXPECT_EQ(of_colour(texts, Colour::kRed), "-b|");
}

TEST(CodeHighlighter, UnknownLanguagesHaveNoColours) {
  const StyledTexts texts = coloured("brainfuck", "if 1 // x");
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_EQ(texts[0].style, Style{});
}

}  // namespace
}  // namespace headrace::code_highlighter_test
