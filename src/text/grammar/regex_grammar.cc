#include "text/grammar/regex_grammar.h"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "text/utf8.h"

namespace headrace {
namespace {

const CodePointSet& class_set(char name) {
  static const CodePointSet digits = {{'0', '9'}};
  static const CodePointSet words = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}};
  static const CodePointSet spaces = {{'\t', '\r'}, {' ', ' '}};
  return name == 'd' ? digits : name == 'w' ? words : spaces;
}
// What \s is elsewhere: \S has none of it.
const CodePointSet& unicode_spaces() {
  static const CodePointSet set = {{'\t', '\r'},     {0x1C, 0x20},     {0x85, 0x85},
                                   {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                                   {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                   {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}
// Letters of other scripts are \w to some and \W to others: they are neither.
const CodePointSet& ascii() {
  static const CodePointSet set = {{0, 0x7F}};
  return set;
}
const CodePointSet& line_ends() {
  static const CodePointSet set = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class RegexParser {
 public:
  RegexParser(GrammarBuilder& builder, std::string_view pattern, const WriteCharacter& write)
      : builder_(builder), pattern_(pattern), write_(write) {}

  Result<GrammarPiece> parse() {
    if (valid_utf8_prefix(pattern_) != pattern_.size()) return error("is no UTF-8 here");
    HR_ASSIGN_OR_RETURN(GrammarPiece piece, alternatives(0));
    if (!at_end() && !builder_.too_large()) return error("has a ) without its (");
    return piece;
  }

 private:
  static constexpr int kDepthMax = 100;

  bool at_end() const { return at_ == pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  Status error(std::string_view what) const {
    return invalid_argument(fmt::format("the pattern {} (at byte {})", what, at_));
  }
  Status no(std::string_view what) const {
    return unsupported(fmt::format("{} of the pattern (at byte {}) is not supported", what, at_));
  }

  Result<GrammarPiece> alternatives(int depth) {
    if (depth > kDepthMax) return error("has groups that are nested too deeply");
    std::vector<GrammarPiece> all;
    do {
      HR_ASSIGN_OR_RETURN(GrammarPiece one, sequence(depth));
      all.push_back(std::move(one));
    } while (take("|"));
    return all.size() == 1 ? std::move(all[0]) : builder_.choice(all);
  }

  Result<GrammarPiece> sequence(int depth) {
    GrammarPiece all;
    // Where an anchor says nothing: at the ends of the whole expression.
    while (depth == 0 && all.empty() && (take("^") || take("\\A"))) {
    }
    while (!at_end() && !next_is("|") && !next_is(")")) {
      if (builder_.too_large()) return GrammarPiece();
      if (depth == 0 && ends_here()) break;
      HR_ASSIGN_OR_RETURN(GrammarPiece one, item(depth));
      HR_ASSIGN_OR_RETURN(one, quantified(std::move(one)));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  // An anchor behind which an alternative ends.
  bool ends_here() {
    const size_t before = at_;
    if (!take("$") && !take("\\Z") && !take("\\z")) return false;
    if (at_end() || next_is("|")) return true;
    at_ = before;
    return false;
  }

  Result<GrammarPiece> item(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) {
      HR_ASSIGN_OR_RETURN(const CodePointSet set, bracket());
      return write_(set);
    }
    if (take(".")) return write_(line_ends().complement());
    if (next_is("^") || next_is("$")) return no("an anchor inside");
    if (next_is("*") || next_is("+") || next_is("?")) return error("repeats nothing");
    HR_ASSIGN_OR_RETURN(const CodePointSet set, character(false));
    return write_(set);
  }

  Result<GrammarPiece> group(int depth) {
    if (take("?")) {
      if (take("P<") || (!next_is("<=") && !next_is("<!") && take("<"))) {
        while (!at_end() && !next_is(">")) ++at_;
        if (!take(">")) return error("has a group whose name does not end");
      } else if (!take(":")) {
        return no("a group that begins with (?");
      }
    }
    HR_ASSIGN_OR_RETURN(GrammarPiece piece, alternatives(depth + 1));
    if (!take(")") && !builder_.too_large()) return error("has a ( without its )");
    return piece;
  }

  Result<GrammarPiece> quantified(GrammarPiece piece) {
    for (int count = 0;; ++count) {
      std::optional<std::pair<int64_t, int64_t>> times;
      HR_ASSIGN_OR_RETURN(times, quantifier());
      if (!times) return piece;
      if (count > 0) return error("repeats a repetition");
      piece = builder_.repeat(piece, times->first, times->second);
      take("?");  // shortest first: the same texts
      if (next_is("+")) return no("a possessive quantifier");
    }
  }

  Result<std::optional<std::pair<int64_t, int64_t>>> quantifier() {
    using Times = std::optional<std::pair<int64_t, int64_t>>;
    if (take("*")) return Times({0, GrammarBuilder::kNoLimit});
    if (take("+")) return Times({1, GrammarBuilder::kNoLimit});
    if (take("?")) return Times({0, 1});
    const size_t before = at_;
    if (!take("{")) return Times();
    const std::optional<int64_t> min = number();
    std::optional<int64_t> max = min;
    const bool comma = take(",");
    if (comma) max = number();
    if (!take("}") || (!min && !max)) return at_ = before, Times();  // a brace like any character
    const int64_t least = min.value_or(0);
    const int64_t most = max.value_or(GrammarBuilder::kNoLimit);
    if (most != GrammarBuilder::kNoLimit && most < least) {
      return error("has a quantifier whose bounds are the wrong way round");
    }
    return Times({least, most});
  }

  std::optional<int64_t> number() {
    std::optional<int64_t> value;
    for (; !at_end() && is_digit(pattern_[at_]); ++at_) {
      value = std::min<int64_t>(value.value_or(0) * 10 + (pattern_[at_] - '0'), 1 << 30);
    }
    return value;
  }

  Result<CodePointSet> bracket() {
    const bool negated = take("^");
    CodePointSet set;
    has_spaces_ = false;
    for (bool first = true; first || !next_is("]"); first = false) {
      if (at_end()) return error("has a [ without its ]");
      if (next_is("]")) return no("an empty class");
      if (next_is("[:")) return no("a class by its name");
      HR_ASSIGN_OR_RETURN(const CodePointSet low, character(true));
      const bool is_range = next_is("-") && !next_is("-]") && at_ + 1 < pattern_.size();
      if (!is_range || !is_single(low)) {
        set.add(low);
        continue;
      }
      take("-");
      HR_ASSIGN_OR_RETURN(const CodePointSet high, character(true));
      if (!is_single(high) || high.ranges()[0].first < low.ranges()[0].first) {
        return error("has a range whose ends are the wrong way round");
      }
      set.add(low.ranges()[0].first, high.ranges()[0].first);
    }
    take("]");
    if (negated && has_spaces_) set.add(unicode_spaces());  // what \s is anywhere
    return negated ? set.complement() : set;
  }

  static bool is_single(const CodePointSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
  }

  Result<CodePointSet> character(bool in_class) {
    if (at_end()) return error("ends too early");
    if (take("\\")) return escape(in_class);
    const Utf8Step step = utf8_step(pattern_.substr(at_));
    at_ += step.length;
    return CodePointSet{{step.code_point, step.code_point}};
  }

  Result<CodePointSet> escape(bool in_class) {
    if (at_end()) return error("ends with a backslash");
    const char c = pattern_[at_++];
    const auto one = [](char32_t code) { return CodePointSet{{code, code}}; };
    switch (c) {
      case 'd':
      case 'w':
      case 's':
        has_spaces_ = has_spaces_ || c == 's';
        return class_set(c);
      case 'D':
        return class_set('d').complement();
      case 'W':
        return ascii().without(class_set('w'));
      case 'S':
        return unicode_spaces().complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'x':
        return code_point(2, 2);
      case 'u':
        return take("{") ? code_point(1, 6) : code_point(4, 4);
      default:
        break;
    }
    if (c == 'b' && in_class) return one('\b');
    if (is_digit(c)) return no("a reference to a group");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return no(fmt::format("\\{}", c));
    --at_;
    const Utf8Step step = utf8_step(pattern_.substr(at_));
    at_ += step.length;
    return one(step.code_point);
  }

  // Behind \x, \u or \u{.
  Result<CodePointSet> code_point(int digits_min, int digits_max) {
    char32_t code = 0;
    int count = 0;
    for (; count < digits_max && !at_end() && hex_digit(pattern_[at_]) >= 0; ++count) {
      code = code * 16 + static_cast<char32_t>(hex_digit(pattern_[at_++]));
    }
    const bool good = count >= digits_min && code <= kCodePointMax;
    if (!good || (digits_min == 1 && !take("}"))) return error("has an ill-formed code");
    if (code >= 0xD800 && code <= 0xDFFF) return no("half a pair of surrogates");
    return CodePointSet{{code, code}};
  }

  GrammarBuilder& builder_;
  const std::string_view pattern_;
  const WriteCharacter& write_;
  size_t at_ = 0;
  bool has_spaces_ = false;  // the class that is read has a \s
};

}  // namespace

Result<GrammarPiece> regex_grammar(GrammarBuilder& builder, std::string_view pattern,
                                   const WriteCharacter& write) {
  return RegexParser(builder, pattern, write).parse();
}

Result<GrammarPiece> regex_grammar(GrammarBuilder& builder, std::string_view pattern) {
  return regex_grammar(builder, pattern,
                       [&](const CodePointSet& set) { return builder.character(set); });
}

}  // namespace headrace
