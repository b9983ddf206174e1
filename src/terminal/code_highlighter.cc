#include "terminal/code_highlighter.h"

#include <cctype>
#include <utility>

namespace headrace {

struct CodeLanguage {
  std::string_view names;         // as fences have them, with blanks around
  std::string_view line_comment;  // empty: it has none
  std::string_view comment_begin, comment_end;
  std::string_view quotes;
  bool long_strings = false;  // """
  bool changes = false;       // of lines that begin with + or -
  std::string_view keywords;  // with blanks around
};

namespace {

constexpr std::string_view kCKeywords =
    " abstract alignas as async auto await bool boolean break byte case catch chan char class "
    "const "
    "constexpr continue crate def default defer delete do double else enum explicit export extends "
    "extern false final finally float fn for friend from func function go goto if impl implements "
    "import in inline instanceof int interface internal is let long loop map match mod move mut "
    "namespace new nil noexcept null nullptr object of open operator override package private "
    "protected pub public range ref return select self Self short signed sizeof static string "
    "struct super switch template this throw throws trait true try type typedef typename typeof "
    "union unsafe unsigned use using val var virtual void volatile when where while with yield ";

constexpr CodeLanguage kCodeLanguages[] = {
    {.names = " python py python3 ",
     .line_comment = "#",
     .quotes = "\"'",
     .long_strings = true,
     .keywords = " and as assert async await break case class continue def del elif else except "
                 "False finally for from global if import in is lambda match None nonlocal not or "
                 "pass raise return self True try while with yield "},
    {.names = " c h cpp c++ cc hpp cuda cu java javascript js jsx mjs typescript ts tsx go golang "
              "rust rs kotlin kt swift csharp cs c# scala dart php zig ",
     .line_comment = "//",
     .comment_begin = "/*",
     .comment_end = "*/",
     .quotes = "\"'`",
     .keywords = kCKeywords},
    {.names = " bash sh shell zsh fish console dockerfile make makefile ",
     .line_comment = "#",
     .quotes = "\"'",
     .keywords =
         " case cd do done echo elif else esac exit export fi for FROM function if in local "
         "return RUN set source sudo then until while "},
    {.names = " ruby rb perl r julia jl elixir ",
     .line_comment = "#",
     .quotes = "\"'",
     .keywords =
         " begin class def do else elsif end false for function if in include module my nil "
         "not or and require rescue return self sub then true unless until use when while "
         "yield "},
    {.names = " sql ",
     .line_comment = "--",
     .comment_begin = "/*",
     .comment_end = "*/",
     .quotes = "'\"",
     .keywords =
         " ALTER AND AS ASC BETWEEN BY CASE COUNT CREATE DELETE DESC DISTINCT DROP ELSE END "
         "EXISTS FROM FULL GROUP HAVING IN INDEX INNER INSERT INTO IS JOIN KEY LEFT LIKE "
         "LIMIT NOT NULL ON OR ORDER OUTER PRIMARY RIGHT SELECT SET TABLE THEN UNION UPDATE "
         "VALUES WHEN WHERE WITH and as by from group insert into join limit on or order "
         "select set update values where "},
    {.names = " lua haskell hs ",
     .line_comment = "--",
     .quotes = "\"'",
     .keywords = " and case data do else elseif end false for function if import in let local "
                 "module nil not of or repeat return then true type until where while "},
    {.names = " json jsonc json5 ",
     .line_comment = "//",
     .quotes = "\"",
     .keywords = " false null true "},
    {.names = " yaml yml toml ini cfg properties nginx ",
     .line_comment = "#",
     .quotes = "\"'",
     .keywords = " false no null off on true yes "},
    {.names = " html xml svg vue ",
     .comment_begin = "<!--",
     .comment_end = "-->",
     .quotes = "\"",
     .keywords = " a body br button div form h1 h2 h3 head html img input li link meta ol p script "
                 "span style table td th title tr ul "},
    {.names = " css scss less ", .comment_begin = "/*", .comment_end = "*/", .quotes = "\"'"},
    {.names = " diff patch ", .changes = true},
};

constexpr Style kCommentStyle{.colour = Colour::kGrey};
constexpr Style kStringStyle{.colour = Colour::kGreen};
constexpr Style kNumberStyle{.colour = Colour::kYellow};
constexpr Style kKeywordStyle{.colour = Colour::kMagenta};
constexpr Style kCallStyle{.colour = Colour::kBlue};

bool has_word(std::string_view words, std::string_view word) {
  return words.find(" " + std::string(word) + " ") != words.npos;
}

const CodeLanguage* find_language(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.empty() || lower.find(' ') != lower.npos) return nullptr;
  for (const CodeLanguage& language : kCodeLanguages) {
    if (has_word(language.names, lower)) return &language;
  }
  return nullptr;
}

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 || c == '_' || c == '$';
}

bool begins(std::string_view mark, std::string_view text) {
  return !mark.empty() && mark.starts_with(text);
}

}  // namespace

CodeHighlighter::CodeHighlighter(std::string_view name) : language_(find_language(name)) {}

void CodeHighlighter::push(std::string_view character, const Tell& tell) {
  if (language_ == nullptr) {
    tell(character, {});
  } else if (language_->changes) {
    push_change(character, tell);
  } else if (character == "\n") {
    end_line(tell);
  } else if (state_ == State::kLineComment) {
    tell(character, kCommentStyle);
  } else if (state_ == State::kBlockComment) {
    push_block_comment(character, tell);
  } else if (state_ == State::kString) {
    push_string(character, tell);
  } else {
    push_code(character, tell);
  }
}

void CodeHighlighter::finish(const Tell& tell) {
  if (state_ == State::kWord) tell_word(' ', tell);
  tell_held({}, tell);
}

void CodeHighlighter::push_code(std::string_view character, const Tell& tell) {
  const bool word = is_word_byte(character[0]);
  if (state_ == State::kWord) {
    if (word) {
      held_ += character;
      return;
    }
    tell_word(character[0], tell);
  }
  if (character[0] == empty_quote_ && held_.empty()) {
    quote_ = std::string(3, empty_quote_);
    empty_quote_ = 0;
    state_ = State::kString;
    tail_.clear();
    tell(character, kStringStyle);
    return;
  }
  empty_quote_ = 0;
  if (word) {
    tell_held({}, tell);
    held_ = character;
    state_ = State::kWord;
    return;
  }
  held_ += character;
  push_mark(tell);
}

// Tells of what is held back all that can begin no comment, and begins a comment or a string.
void CodeHighlighter::push_mark(const Tell& tell) {
  while (!held_.empty()) {
    if (held_ == language_->line_comment || held_ == language_->comment_begin) {
      const bool line = held_ == language_->line_comment;
      state_ = line ? State::kLineComment : State::kBlockComment;
      tail_.clear();
      tell_held(kCommentStyle, tell);
      return;
    }
    if (begins(language_->line_comment, held_) || begins(language_->comment_begin, held_)) return;
    const bool string = language_->quotes.find(held_[0]) != std::string_view::npos;
    if (string) {
      quote_ = held_.substr(0, 1);
      state_ = State::kString;
      tail_.clear();
      escaped_ = false;
    }
    tell(std::string_view(held_).substr(0, 1), string ? kStringStyle : Style{});
    held_.erase(0, 1);
    if (!string) continue;
    // What followed belongs to the string.
    const std::string rest = std::exchange(held_, {});
    for (const char c : rest) push(std::string_view(&c, 1), tell);
    return;
  }
}

void CodeHighlighter::push_block_comment(std::string_view character, const Tell& tell) {
  tell(character, kCommentStyle);
  tail_ += character;
  if (tail_.size() > language_->comment_end.size()) {
    tail_.erase(0, tail_.size() - language_->comment_end.size());
  }
  if (tail_ == language_->comment_end) state_ = State::kCode;
}

void CodeHighlighter::push_string(std::string_view character, const Tell& tell) {
  tell(character, kStringStyle);
  if (escaped_) {
    escaped_ = false;
    tail_.clear();
    return;
  }
  escaped_ = character == "\\";
  tail_ += character;
  const bool empty = tail_ == quote_ && quote_.size() == 1;
  if (tail_.size() > quote_.size()) tail_.erase(0, tail_.size() - quote_.size());
  if (tail_ != quote_) return;
  state_ = State::kCode;
  if (empty && language_->long_strings) empty_quote_ = quote_[0];
}

void CodeHighlighter::push_change(std::string_view character, const Tell& tell) {
  if (line_begins_) {
    const char first = character[0];
    line_style_ = first == '+'   ? Style{.colour = Colour::kGreen}
                  : first == '-' ? Style{.colour = Colour::kRed}
                  : first == '@' ? Style{.colour = Colour::kCyan}
                                 : Style{};
  }
  tell(character, character == "\n" ? Style{} : line_style_);
  line_begins_ = character == "\n";
}

void CodeHighlighter::end_line(const Tell& tell) {
  finish(tell);
  // A short string that is still open was none: an apostrophe, or what only looks like this
  // language.
  const bool goes_on = state_ == State::kBlockComment ||
                       (state_ == State::kString && (quote_.size() > 1 || quote_ == "`"));
  if (!goes_on) state_ = State::kCode;
  tail_.clear();
  empty_quote_ = 0;
  tell("\n", {});
}

void CodeHighlighter::tell_word(char next, const Tell& tell) {
  const bool number = std::isdigit(static_cast<unsigned char>(held_[0])) != 0;
  Style style;
  if (number) {
    style = kNumberStyle;
  } else if (has_word(language_->keywords, held_)) {
    style = kKeywordStyle;
  } else if (next == '(') {
    style = kCallStyle;
  }
  tell_held(style, tell);
  state_ = State::kCode;
}

void CodeHighlighter::tell_held(const Style& style, const Tell& tell) {
  if (!held_.empty()) tell(held_, style);
  held_.clear();
}

}  // namespace headrace
