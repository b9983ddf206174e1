#include "terminal/safe_text.h"

#include <gtest/gtest.h>

#include "terminal/style.h"

namespace headrace::safe_text_test {
namespace {

TEST(TerminalSafe, DropsWhatATerminalObeys) {
  EXPECT_EQ(terminal_safe("a\n\tb"), "a\n\tb");
  EXPECT_EQ(terminal_safe("\x1b[2Jx\x07\x7f\r"), "[2Jx");
  EXPECT_EQ(terminal_safe("\xc2\x9b"
                          "31mred \xc3\xa9 \xe2\x82\xac"),
            "31mred é €");
}

TEST(SafeLine, IsOneLineOfWholeCharacters) {
  EXPECT_EQ(safe_line("a\nb\tc\x1b[31md", 100), "a b c[31md");
  EXPECT_EQ(safe_line("\u20ac\u20ac\u20ac", 8), "\u20ac\u20ac");
  EXPECT_EQ(safe_line("abc", 2), "ab");
}

TEST(SafeText, IsTheSameWhereverBytesWereCut) {
  const std::string_view text = "a\xc2\x9b\xe2\x82\xac\xff\xf0\x9f\x8e\x89\x1b\xe2\x82";
  const std::string whole = terminal_safe(text);
  EXPECT_EQ(whole, "a€\xEF\xBF\xBD🎉\xEF\xBF\xBD");
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    SafeText safe;
    std::string told = safe.push(text.substr(0, cut));
    told += safe.push(text.substr(cut));
    EXPECT_EQ(told + safe.finish(), whole) << cut;
  }
}

TEST(AnsiText, StylesEndWithTheirRow) {
  StyledTexts texts;
  append_styled(texts, "a", {});
  append_styled(texts, "b\nc", {.bold = true, .colour = Colour::kRed});
  EXPECT_EQ(ansi_text(texts), "a\x1b[1;31mb\x1b[0m\n\x1b[1;31mc\x1b[0m");
}

}  // namespace
}  // namespace headrace::safe_text_test
