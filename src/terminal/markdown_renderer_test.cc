#include "terminal/markdown_renderer.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "terminal/cell_width.h"

namespace headrace::markdown_renderer_test {
namespace {

StyledTexts rendered(std::string_view text, int columns = 40) {
  StyledTexts out;
  MarkdownRenderer renderer(columns);
  renderer.push(text, out);
  renderer.finish(out);
  return out;
}

std::string shown(std::string_view text, int columns = 40) {
  return plain_text(rendered(text, columns));
}

// The style of the text that is exactly `text`.
Style style_of(const StyledTexts& texts, std::string_view text) {
  for (const StyledText& each : texts) {
    if (each.text == text) return each.style;
  }
  ADD_FAILURE() << "'" << text << "' is no text of its own in " << plain_text(texts);
  return {};
}

// Texts that have all that is rendered, and what only looks like it.
constexpr std::string_view kAnswers[] = {
    "",
    "plain",
    "# Title\n\nSome **bold**, *italic*, ***both***, `code` and ~~gone~~ words.\n\n## Next\nEnd.",
    "- one\n- two **bold words\n  - nested `a*b`\n* star\n+ plus\n\n1. first\n2) second\n10. "
    "tenth\n",
    "> quoted *text*\n> more\n>> deeper\n\nafter",
    "```python\ndef f(x):  # comment\n    return \"\"\"long\nstring\"\"\" + 'a' + "
    "f(1.5)\n```\nafter `x`.",
    "~~~\nno language ```\n~~~\n---\n***\n___\n",
    "| a | b |\n|---|:-:|\n| 1 | **two** |\n| long cell here | 日本 |\n\nafter\n| no | table |\nx",
    "| a | b | c |\n|--|--|--|\n|1|2|3|\n|4|5|6|\n|7|8|9|\n|10|11|12|\n|13|wide wide wide|15|\n",
    "[link](http://x.y/z) ![img](u) [not] (a) <http://a.b> <b> a < b [open](\n[x]",
    "2 * 3 * 4, 2**3, a_b_c, snake_case_name, **open, *open, `open\n** not **, ``a ` b``, \\*no\\*",
    "日本語のテキストは空白なしで続きます。だから、どこでも行を分けることができます。終わり。",
    "emoji 👩‍👩‍👧‍👦 🇩🇪 e\xCC\x81 ❤️ and \x1b[31mred\x07 bytes \xff\xfe "
    "\xe2\x82 "
    "cut "
    "\xc2\x9b end",
    "a line with averyveryveryveryveryveryveryveryveryveryveryverylongword in it, and more words",
    "```diff\n+ new\n- old\n@@ 1 @@\n```\n```c\n/* block\ncomment */ int x = 0x1f; // end\nchar c "
    "= '\"';",
    "\n\n\nblank lines\n\n\n\nbetween\n\n",
    "#no heading\n####### seven\n#\n-\n-no\n1.no\n1234567. no\n| only a bar",
    "**a long bold sentence that goes on and on and on and on and on and on and on and on and on "
    "and on "
    "and on and on and on and on and on and on and on and on and on and on and on and on and on "
    "and on** x",
    "x\r\ny\r\n\tz `a\tb`",
    "- [ ] task\n- [x] done\n\n1. item\n\n   ```js\n   const a = `t${1}`;\n   ```\n",
};

TEST(MarkdownRenderer, IsTheSameWhereverTheTextWasCut) {
  for (const std::string_view text : kAnswers) {
    for (const int columns : {16, 40}) {
      const std::string whole = ansi_text(rendered(text, columns));
      for (size_t first = 0; first <= text.size(); ++first) {
        StyledTexts out;
        MarkdownRenderer renderer(columns);
        renderer.push(text.substr(0, first), out);
        renderer.push(text.substr(first), out);
        renderer.finish(out);
        ASSERT_EQ(ansi_text(out), whole) << "cut at " << first << " of " << text;
      }
      StyledTexts out;
      MarkdownRenderer renderer(columns);
      for (size_t i = 0; i < text.size(); ++i) renderer.push(text.substr(i, 1), out);
      renderer.finish(out);
      ASSERT_EQ(ansi_text(out), whole) << text;
    }
  }
}

// All cuts into three, of the texts that are short enough.
TEST(MarkdownRenderer, IsTheSameInThreePieces) {
  for (const std::string_view text : kAnswers) {
    if (text.size() > 90) continue;
    const std::string whole = ansi_text(rendered(text, 20));
    for (size_t first = 0; first <= text.size(); ++first) {
      for (size_t second = first; second <= text.size(); ++second) {
        StyledTexts out;
        MarkdownRenderer renderer(20);
        renderer.push(text.substr(0, first), out);
        renderer.push(text.substr(first, second - first), out);
        renderer.push(text.substr(second), out);
        renderer.finish(out);
        ASSERT_EQ(ansi_text(out), whole) << first << " " << second << " of " << text;
      }
    }
  }
}

TEST(MarkdownRenderer, NeverTakesBackWhatItTold) {
  for (const std::string_view text : kAnswers) {
    const std::string whole = shown(text);
    StyledTexts out;
    MarkdownRenderer renderer(40);
    for (size_t i = 0; i < text.size(); ++i) {
      renderer.push(text.substr(i, 1), out);
      ASSERT_TRUE(whole.starts_with(plain_text(out))) << plain_text(out);
    }
  }
}

// What is shown is not far behind what came: a reader sees words as they are written.
TEST(MarkdownRenderer, HoldsBackNoMoreThanTheLastWord) {
  StyledTexts out;
  MarkdownRenderer renderer(80);
  renderer.push("The quick brown fox jum", out);
  EXPECT_EQ(plain_text(out), "The quick brown fox");
  renderer.push("ps over **the la", out);
  EXPECT_EQ(plain_text(out), "The quick brown fox jumps over");
  renderer.push("zy** dog", out);
  EXPECT_EQ(plain_text(out), "The quick brown fox jumps over the lazy");
  out.clear();
  MarkdownRenderer code(80);
  code.push("```python\nprint(x", out);
  EXPECT_TRUE(plain_text(out).ends_with("print("));
}

TEST(MarkdownRenderer, NoRowIsWiderThanTheTerminal) {
  for (const std::string_view text : kAnswers) {
    if (text.find("```") != text.npos || text.find("~~~") != text.npos) continue;  // as it is
    for (const int columns : {16, 23, 40, 100}) {
      const std::string rows = shown(text, columns);
      for (size_t first = 0; first < rows.size();) {
        const size_t end = rows.find('\n', first);
        ASSERT_NE(end, rows.npos);
        const std::string row = rows.substr(first, end - first);
        EXPECT_LE(text_columns(row), columns) << row;
        first = end + 1;
      }
    }
  }
}

// Texts of marks alone, in any order.
TEST(MarkdownRenderer, RandomMarksAreTheSameInAnyPieces) {
  constexpr std::string_view kPieces[] = {"*", "**", "_",  "`",  "```", "~~",  "[",   "](", ")",
                                          "|", "#",  "- ", "> ", "1.",  "\n",  "\n",  "\\", "<h",
                                          " ", "a",  "b ", "日", "|-|", "---", "http"};
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const size_t length = random() % 40;
    for (size_t i = 0; i < length; ++i) text += kPieces[random() % std::size(kPieces)];
    const std::string whole = ansi_text(rendered(text, 20));
    StyledTexts out;
    MarkdownRenderer renderer(20);
    for (size_t first = 0; first < text.size();) {
      const size_t size = 1 + random() % 5;
      renderer.push(std::string_view(text).substr(first, size), out);
      first += size;
    }
    renderer.finish(out);
    ASSERT_EQ(ansi_text(out), whole) << text;
  }
}

TEST(MarkdownRenderer, Emphasis) {
  const StyledTexts texts = rendered("a **bold** b *it* c `code` d ~~gone~~ e __f__ _g_", 80);
  EXPECT_EQ(plain_text(texts), "a bold b it c code d gone e f g\n");
  EXPECT_TRUE(style_of(texts, "bold").bold);
  EXPECT_TRUE(style_of(texts, "it").italic);
  EXPECT_EQ(style_of(texts, "code").colour, Colour::kCyan);
  EXPECT_TRUE(style_of(texts, "gone").struck);
  EXPECT_TRUE(style_of(texts, "f").bold);
  const Style both = style_of(rendered("x ***b*** y"), "b");
  EXPECT_TRUE(both.bold && both.italic);
  const StyledTexts nested = rendered("**a *b* c**", 80);
  EXPECT_EQ(plain_text(nested), "a b c\n");
  EXPECT_TRUE(style_of(nested, "b").bold && style_of(nested, "b").italic);
}

TEST(MarkdownRenderer, WhatIsNoMarkStaysAsItIs) {
  for (const std::string_view text :
       {"2 * 3 * 4", "2*3*4", "a_b_c", "x ** y **", "**open", "`open", "*open", "[a] (b)", "a < b",
        "~5 and ~6", "#tag", "1.5 is a number", "-5 degrees", "C:\\new", "\\(x^2\\)", "3) is"}) {
    EXPECT_EQ(shown(text, 80), std::string(text) + "\n");
  }
}

TEST(MarkdownRenderer, Blocks) {
  EXPECT_EQ(shown("# T\n\ntext"), "T\n\ntext\n");
  EXPECT_TRUE(style_of(rendered("# T"), "T").bold);
  EXPECT_EQ(shown("- a\n  - b\n1. c"), "• a\n  • b\n1. c\n");
  EXPECT_EQ(shown("> q\n>> r"), "│ q\n│ │ r\n");
  EXPECT_EQ(shown("\n\na\n\n\n\nb\n\n"), "a\n\nb\n");
  EXPECT_EQ(shown("a\n---\nb", 16), "a\n────────────────\nb\n");
}

TEST(MarkdownRenderer, WrappedRowsStandBelowTheirText) {
  EXPECT_EQ(shown("- one two three four five", 16), "• one two three\n  four five\n");
  EXPECT_EQ(shown("> one two three four five", 16), "│ one two three\n│ four five\n");
}

TEST(MarkdownRenderer, CodeIsAsItIs) {
  const StyledTexts texts = rendered("```python\nif x:\n\treturn **1**  # *no*\n```\nend", 16);
  EXPECT_EQ(plain_text(texts),
            "── python ──────\nif x:\n    return **1**  # *no*\n────────────────\nend\n");
  EXPECT_EQ(style_of(texts, "return").colour, Colour::kMagenta);
  EXPECT_EQ(style_of(texts, "# *no*").colour, Colour::kGrey);
}

TEST(MarkdownRenderer, TablesAreAligned) {
  EXPECT_EQ(shown("| a | bb |\n|--:|---|\n| 100 | x |\n| 日本 | **y** |\nend"),
            "   a │ bb\n─────┼───\n 100 │ x\n日本 │ y\nend\n");
  // Later rows are broken into the columns that the first ones made.
  const std::string later = shown("|a|b|\n|-|-|\n|1|2|\n|1|2|\n|1|2|\n|1|2|\n|1|23|");
  EXPECT_TRUE(later.ends_with("1 │ 2\n  │ 3\n")) << later;
  EXPECT_EQ(shown("| a | b |\nno table"), "| a | b |\nno table\n");
}

TEST(MarkdownRenderer, ATableOfVeryManyColumnsIsText) {
  std::string line, rule;
  for (int i = 0; i < 65; ++i) {
    line += "|a";
    rule += "|-";
  }
  const std::string table = line + "|\n" + rule + "|\n" + line + "|\n";
  EXPECT_EQ(shown(table, 200), table);
  EXPECT_EQ(shown("|a|b|\n" + rule + "|\n", 200), "|a|b|\n" + rule + "|\n");
  const std::string fits = table.substr(2, 129) + "\n" + rule.substr(2) + "|\n";
  EXPECT_NE(shown(fits, 400).find("│"), std::string::npos);
}

TEST(MarkdownRenderer, LittleIsHeldBackOfALineThatDoesNotSayWhatItIs) {
  for (const char* mark : {"-", "*", "_", "`", "#", ">", "~"}) {
    StyledTexts out;
    MarkdownRenderer renderer(80);
    for (int i = 0; i < 600; ++i) renderer.push(mark, out);
    renderer.push("x", out);
    StyledTexts all = out;
    renderer.finish(all);
    const size_t held = plain_text(all).size() - plain_text(out).size();
    EXPECT_LE(held, 300U) << mark;  // of a row and of marks within it
  }
}

TEST(MarkdownRenderer, WideCharactersWrap) {
  EXPECT_EQ(shown("日本語日本語日本語", 16), "日本語日本語日本\n語\n");
  EXPECT_EQ(shown("a日本語日本語日本。", 16), "a日本語日本語日\n本。\n");
  EXPECT_EQ(shown("aaaaaaaaaaaaaa 👩‍👩‍👧‍👦", 16),
            "aaaaaaaaaaaaaa\n👩‍👩‍👧‍👦\n");
}

TEST(MarkdownRenderer, TellsNothingThatATerminalObeys) {
  const std::string text = shown(
      "a\x1b[2Jb\x07\xc2\x9b"
      "31mc\xe2\x80\xae",
      80);
  EXPECT_EQ(text, "a[2Jb31mc\n");
}

TEST(MarkdownRenderer, ANewWidthIsOfTheRowsThatCome) {
  StyledTexts out;
  MarkdownRenderer renderer(40);
  renderer.push("one two three four ", out);
  renderer.set_columns(16);
  renderer.push("five six seven eight", out);
  renderer.finish(out);
  EXPECT_EQ(plain_text(out), "one two three four\nfive six seven\neight\n");
}

}  // namespace
}  // namespace headrace::markdown_renderer_test
