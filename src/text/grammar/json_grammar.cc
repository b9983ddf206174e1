#include "text/grammar/json_grammar.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "text/utf8.h"

namespace headrace {
namespace {

constexpr int64_t kNoLimit = GrammarBuilder::kNoLimit;
constexpr int64_t kNumberDigitsMax = 16;

constexpr ByteSet bytes_of(std::string_view bytes) {
  ByteSet set;
  for (char c : bytes) set.add(static_cast<uint8_t>(c));
  return set;
}
constexpr ByteSet digit_range(char first, char last) {
  return ByteSet::of_range(static_cast<uint8_t>(first), static_cast<uint8_t>(last));
}
constexpr ByteSet kHexDigits = bytes_of("0123456789abcdefABCDEF");

// Control characters, the quote and the backslash stand in a string only behind a backslash.
CodePointSet escaped_with(const CodePointSet& coded) {
  CodePointSet set = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  set.add(coded);
  return set;
}

std::string json_text(std::string_view text) {
  std::string spelled;
  append_json_string(spelled, text);
  return spelled;
}

}  // namespace

JsonGrammar::JsonGrammar(GrammarBuilder& builder, CodePointSet coded, bool python_words)
    : builder_(builder),
      coded_(std::move(coded)),
      python_words_(python_words),
      escaped_(escaped_with(coded_)) {
  const GrammarPiece blanks = builder.repeat(builder.bytes(bytes_of(" \t")), 0, 20);
  const GrammarPiece line = builder.repeat(builder.literal("\n"), 1, 2);
  space_ =
      builder.choice({GrammarPiece(), builder.literal(" "), GrammarBuilder::join({line, blanks})});
  character_ = any_character();
  string_ = quoted(builder.repeat(character_, 0, kNoLimit));
  value_ = builder.declare();
  const GrammarPiece more_members =
      builder.repeat(GrammarBuilder::join({comma(), member(string_, value_)}), 0, kNoLimit);
  object_ = builder.choice(
      {object_of({}), object_of(GrammarBuilder::join({member(string_, value_), more_members}))});
  const GrammarPiece more_items =
      builder.repeat(GrammarBuilder::join({comma(), value_}), 0, kNoLimit);
  array_ = builder.choice({list_of({}), list_of(GrammarBuilder::join({value_, more_items}))});
  for (const GrammarPiece& each : {object_, array_, string_, number({}, {}), boolean(), null()}) {
    builder.add(value_, each);
  }
}

GrammarPiece JsonGrammar::null() {
  return python_words_ ? builder_.one_of({"null", "None"}) : builder_.literal("null");
}

GrammarPiece JsonGrammar::boolean() {
  std::vector<std::string> words = {"true", "false"};
  if (python_words_) words.insert(words.end(), {"True", "False"});
  return builder_.one_of(std::move(words));
}

GrammarPiece JsonGrammar::escape() {
  const auto set = [&](std::string_view bytes) { return builder_.bytes(bytes_of(bytes)); };
  const GrammarPiece hex = builder_.bytes(kHexDigits);
  const auto join = GrammarBuilder::join;
  const GrammarPiece short_one = set("\"\\/bfnrt");
  // Not a half of a pair alone, which is no character.
  const GrammarPiece low = join({set("0123456789abcefABCEF"), hex, hex, hex});
  const GrammarPiece below_pairs = join({set("dD"), set("01234567"), hex, hex});
  const GrammarPiece pair = join({set("dD"), set("89abAB"), hex, hex, builder_.literal("\\u"),
                                  set("dD"), set("cdefCDEF"), hex, hex});
  const GrammarPiece code = builder_.choice({low, below_pairs, pair});
  return join(
      {builder_.literal("\\"), builder_.choice({short_one, join({builder_.literal("u"), code})})});
}

GrammarPiece JsonGrammar::any_character() {
  const GrammarPiece plain = builder_.character(escaped_.complement());
  return builder_.choice({plain, escape()});
}

GrammarPiece JsonGrammar::character(const CodePointSet& set) {
  std::vector<GrammarPiece> alternatives = {builder_.character(set.without(escaped_))};
  std::vector<std::string> escapes;
  for (char32_t c = 0; c <= '\\'; ++c) {
    if (!set.has(c) || !escaped_.has(c)) continue;
    const char byte = static_cast<char>(c);
    const std::string quoted_one = coded_text(json_text(std::string_view(&byte, 1)));
    escapes.push_back(quoted_one.substr(1, quoted_one.size() - 2));
  }
  if (!escapes.empty()) alternatives.push_back(builder_.one_of(escapes));
  return builder_.choice(alternatives);
}

GrammarPiece JsonGrammar::quoted(const GrammarPiece& characters) {
  const GrammarPiece quote = builder_.literal("\"");
  return builder_.choice({GrammarBuilder::join({quote, characters, quote})});
}

GrammarPiece JsonGrammar::string(int64_t min, int64_t max) {
  if (min == 0 && max == kNoLimit) return string_;
  return quoted(builder_.repeat(character_, min, max));
}

std::string JsonGrammar::text_of(const Json& value) const { return coded_text(write_json(value)); }

// Of JSON, in which the characters that are coded stand in strings alone.
std::string JsonGrammar::coded_text(std::string text) const {
  if (coded_.ranges().empty()) return text;
  std::string out;
  for (char c : text) {
    const bool coded = static_cast<uint8_t>(c) < 0x80 && coded_.has(static_cast<uint8_t>(c));
    out += coded ? fmt::format("\\u{:04x}", static_cast<int>(c)) : std::string(1, c);
  }
  return out;
}

GrammarPiece JsonGrammar::string_but(std::vector<std::string> names) {
  for (std::string& name : names) {
    name = coded_text(json_text(name));
    name = name.substr(1);  // with its quote, which is where it differs from a longer one
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return GrammarBuilder::join({builder_.literal("\""), string_but_sorted(names, 0)});
}

// What may follow the first `depth` bytes, which all names share. A text that leaves the names does
// so with a plain character: an escape could be another spelling of the next one.
GrammarPiece JsonGrammar::string_but_sorted(std::span<const std::string> names, size_t depth) {
  constexpr size_t kDeepest = 512;
  if (builder_.too_large() || depth > kDeepest) return builder_.note_too_large(), GrammarPiece();
  const GrammarPiece rest =
      GrammarBuilder::join({builder_.repeat(character_, 0, kNoLimit), builder_.literal("\"")});
  CodePointSet others = escaped_;
  std::vector<GrammarPiece> alternatives;
  bool ends = false;
  for (size_t first = 0; first < names.size();) {
    const Utf8Step next = utf8_step(std::string_view(names[first]).substr(depth));
    const std::string_view spelled = std::string_view(names[first]).substr(depth, next.length);
    size_t last = first + 1;
    while (last < names.size() &&
           std::string_view(names[last]).substr(depth, next.length) == spelled) {
      ++last;
    }
    others.add(next.code_point, next.code_point);
    if (spelled == "\"") {
      ends = true;
    } else if (spelled != "\\") {
      alternatives.push_back(GrammarBuilder::join(
          {builder_.literal(spelled),
           string_but_sorted(names.subspan(first, last - first), depth + next.length)}));
    }
    first = last;
  }
  alternatives.push_back(GrammarBuilder::join({builder_.character(others.complement()), rest}));
  if (!ends) alternatives.push_back(builder_.literal("\""));
  return builder_.choice(alternatives);
}

GrammarPiece JsonGrammar::comma() { return GrammarBuilder::join({builder_.literal(","), space_}); }

GrammarPiece JsonGrammar::member(const GrammarPiece& key, const GrammarPiece& value) {
  return GrammarBuilder::join({key, builder_.literal(":"), space_, value});
}

GrammarPiece JsonGrammar::object_of(const GrammarPiece& members) {
  const auto join = GrammarBuilder::join;
  if (members.empty()) return join({builder_.literal("{"), space_, builder_.literal("}")});
  return join({builder_.literal("{"), space_, members, space_, builder_.literal("}")});
}

GrammarPiece JsonGrammar::list_of(const GrammarPiece& items) {
  const auto join = GrammarBuilder::join;
  if (items.empty()) return join({builder_.literal("["), space_, builder_.literal("]")});
  return join({builder_.literal("["), space_, items, space_, builder_.literal("]")});
}

// --- numbers

// As many digits as both ends have. REQUIRES: equal lengths, low <= high
GrammarPiece JsonGrammar::digits_between(std::string_view low, std::string_view high) {
  const size_t rest = low.size() - std::min<size_t>(low.size(), 1);
  if (low.empty()) return {};
  const auto all_are = [](std::string_view digits, char digit) {
    return digits.find_first_not_of(digit) == std::string_view::npos;
  };
  const auto with_any = [&](char first, char last) {
    const GrammarPiece digit = builder_.bytes(digit_range('0', '9'));
    return GrammarBuilder::join(
        {builder_.bytes(digit_range(first, last)),
         builder_.repeat(digit, static_cast<int64_t>(rest), static_cast<int64_t>(rest))});
  };
  if (low[0] == high[0]) {
    return GrammarBuilder::join(
        {builder_.literal(low.substr(0, 1)), digits_between(low.substr(1), high.substr(1))});
  }
  char first = low[0], last = high[0];
  std::vector<GrammarPiece> alternatives;
  if (!all_are(low.substr(1), '0')) {
    ++first;
    alternatives.push_back(
        GrammarBuilder::join({builder_.literal(low.substr(0, 1)),
                              digits_between(low.substr(1), std::string(rest, '9'))}));
  }
  if (!all_are(high.substr(1), '9')) {
    --last;
    alternatives.push_back(
        GrammarBuilder::join({builder_.literal(high.substr(0, 1)),
                              digits_between(std::string(rest, '0'), high.substr(1))}));
  }
  if (first <= last) alternatives.push_back(with_any(first, last));
  return builder_.choice(alternatives);
}

// REQUIRES: 0 <= low <= high
GrammarPiece JsonGrammar::integers_between(int64_t low, int64_t high) {
  std::vector<GrammarPiece> alternatives;
  for (int64_t begin = low; begin <= high;) {
    const std::string first = fmt::format("{}", begin);
    const std::string nines(first.size(), '9');
    const bool inside = first.size() < fmt::format("{}", high).size();
    const std::string last = inside ? nines : fmt::format("{}", high);
    alternatives.push_back(digits_between(first, last));
    if (!inside) break;
    begin = std::stoll(nines) + 1;
  }
  return builder_.choice(alternatives);
}

namespace {

// Digits behind the point that tell a number beside `bound` from it when both are read as doubles,
// which have 15 digits for certain.
int64_t telling_digits(int64_t bound) {
  if (bound == 0) return kNumberDigitsMax;
  return std::max<int64_t>(0, 15 - static_cast<int64_t>(fmt::format("{}", bound).size()));
}

}  // namespace

// One to `most` digits, not all of them zeros.
GrammarPiece JsonGrammar::digits_above_zero(int64_t most) {
  const auto join = GrammarBuilder::join;
  const GrammarPiece digit = builder_.bytes(digit_range('0', '9'));
  const GrammarPiece first = builder_.bytes(digit_range('1', '9'));
  GrammarPiece digits = first;
  for (int64_t i = 1; i < most; ++i) {
    digits = builder_.choice(
        {join({first, builder_.repeat(digit, 0, i)}), join({builder_.literal("0"), digits})});
  }
  return digits;
}

// Numbers without a sign. REQUIRES: 0 <= low
GrammarPiece JsonGrammar::magnitudes(NumberBound low, std::optional<NumberBound> high,
                                     bool fractions) {
  constexpr int64_t kMost = 9'999'999'999'999'999;  // kNumberDigitsMax digits
  const auto join = GrammarBuilder::join;
  const GrammarPiece digit = builder_.bytes(digit_range('0', '9'));
  std::vector<GrammarPiece> alternatives;
  const int64_t whole_low = low.value + (low.exclusive ? 1 : 0);
  const int64_t whole_high = high ? high->value - (high->exclusive ? 1 : 0) : kMost;
  if (whole_low <= whole_high) alternatives.push_back(integers_between(whole_low, whole_high));
  if (fractions) {
    const GrammarPiece point = builder_.literal(".");
    const int64_t below_high = high ? high->value - 1 : kMost;
    const int64_t first = low.value + (low.exclusive ? 1 : 0);
    const auto with_digits = [&](int64_t from, int64_t to, int64_t most) {
      if (from > to || most == 0) return;
      alternatives.push_back(
          join({integers_between(from, to), point, builder_.repeat(digit, 1, most)}));
    };
    // Less than a bound by a fraction alone.
    const int64_t far_below = high && high->exclusive ? below_high - 1 : below_high;
    with_digits(first, far_below, kNumberDigitsMax);
    if (far_below < below_high && first <= below_high) {
      with_digits(below_high, below_high, telling_digits(high->value));
    }
    const GrammarPiece zero = builder_.literal("0");
    // More than a bound by a fraction alone, and the other bound with none.
    const int64_t digits = high && high->exclusive && high->value == low.value + 1
                               ? std::min(telling_digits(low.value), telling_digits(high->value))
                               : telling_digits(low.value);
    if (low.exclusive && (!high || low.value < high->value) && digits > 0) {
      alternatives.push_back(
          join({integers_between(low.value, low.value), point, digits_above_zero(digits)}));
    }
    if (high && !high->exclusive && high->value >= first) {
      alternatives.push_back(join({integers_between(high->value, high->value), point,
                                   builder_.repeat(zero, 1, kNumberDigitsMax)}));
    }
  }
  return builder_.choice(alternatives);
}

GrammarPiece JsonGrammar::bounded(std::optional<NumberBound> low, std::optional<NumberBound> high,
                                  bool fractions) {
  std::vector<GrammarPiece> alternatives;
  // From zero up.
  if (!high || high->value >= 0) {
    const NumberBound zero{0, false};
    const bool above = low && low->value >= 0;
    alternatives.push_back(magnitudes(above ? *low : zero, high, fractions));
  }
  // Below zero: the bounds change places.
  if (!low || low->value < 0) {
    const bool below = high && high->value <= 0;
    NumberBound least = below ? NumberBound{-high->value, high->exclusive} : NumberBound{0, true};
    if (least.value == 0) least.exclusive = true;
    std::optional<NumberBound> most;
    if (low) most = NumberBound{-low->value, low->exclusive};
    alternatives.push_back(
        GrammarBuilder::join({builder_.literal("-"), magnitudes(least, most, fractions)}));
  }
  return builder_.choice(alternatives);
}

GrammarPiece JsonGrammar::integer(std::optional<NumberBound> low, std::optional<NumberBound> high) {
  return bounded(low, high, false);
}

GrammarPiece JsonGrammar::number(std::optional<NumberBound> low, std::optional<NumberBound> high) {
  if (low || high) return bounded(low, high, true);
  const GrammarPiece digit = builder_.bytes(digit_range('0', '9'));
  const auto join = GrammarBuilder::join;
  const GrammarPiece whole = builder_.choice(
      {builder_.literal("0"), join({builder_.bytes(digit_range('1', '9')),
                                    builder_.repeat(digit, 0, kNumberDigitsMax - 1)})});
  const GrammarPiece fraction =
      builder_.optional(join({builder_.literal("."), builder_.repeat(digit, 1, kNumberDigitsMax)}));
  const GrammarPiece exponent = builder_.optional(
      join({builder_.bytes(bytes_of("eE")), builder_.optional(builder_.bytes(bytes_of("+-"))),
            builder_.repeat(digit, 1, 2)}));
  return builder_.choice(
      {join({builder_.optional(builder_.literal("-")), whole, fraction, exponent})});
}

}  // namespace headrace
