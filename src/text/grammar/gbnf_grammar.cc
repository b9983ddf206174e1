#include "text/grammar/gbnf_grammar.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "text/utf8.h"

namespace headrace {
namespace {

class GbnfParser {
 public:
  GbnfParser(GrammarBuilder& builder, std::string_view text) : builder_(builder), text_(text) {}

  Result<GrammarPiece> parse() {
    if (valid_utf8_prefix(text_) != text_.size()) return error("this is no UTF-8");
    for (skip(Lines::kAll); !at_end(); skip(Lines::kAll)) {
      if (builder_.too_large()) return GrammarPiece();
      HR_RETURN_IF_ERROR(rule());
    }
    for (const auto& [name, known] : rules_) {
      if (!known.defined) {
        return invalid_argument(
            fmt::format("the rule \"{}\" is not there", name.substr(0, kNameMax)));
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return invalid_argument("the rule \"root\" is not there");
    return root->second.piece;
  }

 private:
  static constexpr int kDepthMax = 100;
  static constexpr size_t kNameMax = 64;  // of a message
  enum class Lines : uint8_t { kOne, kAll };
  struct NamedRule {
    GrammarPiece piece;
    bool defined = false;
  };

  bool at_end() const { return at_ == text_.size(); }
  bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  Status error(std::string_view what) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    return invalid_argument(fmt::format("line {}: {}", line, what));
  }

  // Blanks and comments; kAll: and ends of lines.
  void skip(Lines lines) {
    for (; !at_end(); ++at_) {
      const char c = text_[at_];
      const bool line_end = c == '\n' || c == '\r';
      if (c == '#') {
        while (!at_end() && text_[at_] != '\n') ++at_;
        if (lines == Lines::kOne || at_end()) return;
      } else if (c != ' ' && c != '\t' && !(line_end && lines == Lines::kAll)) {
        return;
      }
    }
  }

  static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  std::string name() {
    const size_t first = at_;
    while (!at_end() && is_name_char(text_[at_])) ++at_;
    return std::string(text_.substr(first, at_ - first));
  }
  NamedRule& rule_of(const std::string& name) {
    const auto [known, is_new] = rules_.try_emplace(name);
    if (is_new) known->second.piece = builder_.declare();
    return known->second;
  }

  Status rule() {
    const std::string name = this->name();
    if (name.empty()) return error("a rule must begin with its name");
    skip(Lines::kAll);
    if (!take("::="))
      return error("::= must follow the name of a rule (grammars are GBNF: root ::= ...)");
    NamedRule& known = rule_of(name);
    if (std::exchange(known.defined, true)) {
      return error(fmt::format("the rule \"{}\" is there twice", name.substr(0, kNameMax)));
    }
    skip(Lines::kAll);
    HR_ASSIGN_OR_RETURN(const GrammarPiece piece, alternatives(0));
    builder_.add(known.piece, piece);
    if (!at_end() && text_[at_] != '\n' && text_[at_] != '\r' && !builder_.too_large()) {
      return error("what stands here is no part of a rule");
    }
    return ok_status();
  }

  Result<GrammarPiece> alternatives(int depth) {
    if (depth > kDepthMax) return error("groups are nested too deeply");
    std::vector<GrammarPiece> all;
    for (bool more = true; more;) {
      HR_ASSIGN_OR_RETURN(GrammarPiece one, sequence(depth));
      all.push_back(std::move(one));
      more = next_alternative();
    }
    return all.size() == 1 ? std::move(all[0]) : builder_.choice(all);
  }

  // A | here, or at the beginning of a line that follows.
  bool next_alternative() {
    const size_t before = at_;
    skip(Lines::kAll);
    if (take("|")) return skip(Lines::kAll), true;
    at_ = before;
    return false;
  }

  Result<GrammarPiece> sequence(int depth) {
    const Lines lines = depth > 0 ? Lines::kAll : Lines::kOne;
    GrammarPiece all;
    for (skip(lines); !at_end() && !builder_.too_large(); skip(lines)) {
      const char c = text_[at_];
      if (c == '|' || c == ')' || c == '\n' || c == '\r') break;
      HR_ASSIGN_OR_RETURN(GrammarPiece one, item(depth));
      HR_ASSIGN_OR_RETURN(one, quantified(std::move(one), lines));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  Result<GrammarPiece> item(int depth) {
    if (take("\"")) return literal('"');
    if (take("'")) return literal('\'');
    if (take("[")) return bracket();
    if (take(".")) return builder_.character(CodePointSet::all());
    if (take("(")) {
      HR_ASSIGN_OR_RETURN(GrammarPiece piece, alternatives(depth + 1));
      skip(Lines::kAll);
      if (!take(")") && !builder_.too_large()) return error("a ( has no )");
      return piece;
    }
    if (next_is("<") || next_is("!<"))
      return unsupported(error("tokens by their names are not supported").message());
    const std::string called = name();
    if (called.empty()) return error("what stands here is no part of a rule");
    return rule_of(called).piece;
  }

  Result<GrammarPiece> literal(char quote) {
    std::string text;
    while (!at_end() && text_[at_] != quote) {
      HR_ASSIGN_OR_RETURN(const char32_t c, character());
      append_utf8(c, text);
    }
    if (at_end()) return error("a literal does not end");
    ++at_;
    return builder_.literal(text);
  }

  Result<GrammarPiece> bracket() {
    const bool negated = take("^");
    CodePointSet set;
    while (!at_end() && text_[at_] != ']') {
      HR_ASSIGN_OR_RETURN(const char32_t first, character());
      char32_t last = first;
      if (next_is("-") && !next_is("-]")) {
        take("-");
        HR_ASSIGN_OR_RETURN(last, character());
      }
      if (last < first) return error("the ends of a range are the wrong way round");
      set.add(first, last);
    }
    if (!take("]")) return error("a [ has no ]");
    return builder_.character(negated ? set.complement() : set);
  }

  Result<char32_t> character() {
    if (at_end()) return error("the text ends too early");
    if (take("\\")) return escape();
    const Utf8Step step = utf8_step(text_.substr(at_));
    at_ += step.length;
    return step.code_point;
  }

  Result<char32_t> escape() {
    if (at_end()) return error("the text ends with a backslash");
    const char c = text_[at_++];
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'x':
        return code(2);
      case 'u':
        return code(4);
      case 'U':
        return code(8);
      case '\\':
      case '"':
      case '\'':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(c);
      default:
        return error("an escape is not known");
    }
  }

  Result<char32_t> code(int digits) {
    uint64_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = at_end() ? ' ' : text_[at_++];
      const std::string_view hex = "0123456789abcdef";
      const auto digit = hex.find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
      if (digit == std::string_view::npos) return error("a code of a character is too short");
      value = value * 16 + digit;
    }
    const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (value > kCodePointMax || surrogate) return error("there is no such character");
    return static_cast<char32_t>(value);
  }

  Result<GrammarPiece> quantified(GrammarPiece piece, Lines lines) {
    for (int count = 0; count < kDepthMax; ++count) {
      const size_t before = at_;
      skip(lines);
      if (take("*")) {
        piece = builder_.repeat(piece, 0, GrammarBuilder::kNoLimit);
      } else if (take("+")) {
        piece = builder_.repeat(piece, 1, GrammarBuilder::kNoLimit);
      } else if (take("?")) {
        piece = builder_.optional(piece);
      } else if (take("{")) {
        HR_ASSIGN_OR_RETURN(piece, counted(piece));
      } else {
        at_ = before;
        return piece;
      }
    }
    return error("too many repetitions of a repetition");
  }

  // Behind {
  Result<GrammarPiece> counted(const GrammarPiece& piece) {
    skip(Lines::kOne);
    const std::optional<int64_t> min = number();
    skip(Lines::kOne);
    std::optional<int64_t> max = min;
    if (take(",")) {
      skip(Lines::kOne);
      max = number();
      skip(Lines::kOne);
    }
    if ((!min && !max) || !take("}")) return error("a { has no bounds, or no }");
    const int64_t least = min.value_or(0), most = max.value_or(GrammarBuilder::kNoLimit);
    if (max && most < least) return error("the bounds of a { are the wrong way round");
    return builder_.repeat(piece, least, most);
  }

  std::optional<int64_t> number() {
    std::optional<int64_t> value;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = std::min<int64_t>(value.value_or(0) * 10 + (text_[at_] - '0'), 1 << 30);
    }
    return value;
  }

  GrammarBuilder& builder_;
  const std::string_view text_;
  size_t at_ = 0;
  std::map<std::string, NamedRule> rules_;
};

}  // namespace

Result<GrammarPiece> gbnf_grammar(GrammarBuilder& builder, std::string_view text) {
  return GbnfParser(builder, text).parse();
}

}  // namespace headrace
