#include "text/unicode.h"

#include <algorithm>
#include <vector>

#include <utf8proc.h>

#include "base/check.h"
#include "text/utf8.h"

namespace headrace {
namespace {

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<uint8_t>(c) > 127; });
}

int combining_class(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

std::vector<int32_t> decompose(std::string_view text, int options) {
  std::vector<int32_t> decomposed;
  decomposed.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    text.remove_prefix(step.length);
    int32_t parts[32];  // the longest decomposition has 18 characters
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<int32_t>(step.code_point), parts, 32,
                                               static_cast<utf8proc_option_t>(options), &boundary);
    CHECK(count >= 0 && count <= 32);
    decomposed.insert(decomposed.end(), parts, parts + count);
  }
  return decomposed;
}

// Marks behind a character in the order of their classes. utf8proc's own ordering inserts one by
// one, quadratic in the length of a run.
void order_marks(std::vector<int32_t>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    if (combining_class(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, text.end(), [](int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end,
                     [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

// Joins what has one character for it, [first, last), in place; where the result ends.
int32_t* compose(int32_t* first, int32_t* last) {
  const auto count = utf8proc_normalize_utf32(
      first, last - first, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  CHECK(count >= 0);
  return first + count;
}

// utf8proc swallows U+11A7 behind a Hangul syllable: it takes the place before the first final
// consonant for one. It joins with nothing on either side, so the parts between are composed alone.
void compose(std::vector<int32_t>& text) {
  constexpr int32_t kBeforeFinals = 0x11A7;
  int32_t* const end = text.data() + text.size();
  int32_t* out = text.data();
  for (int32_t* first = text.data();;) {
    int32_t* const last = std::find(first, end, kBeforeFinals);
    out = std::copy(first, compose(first, last), out);
    if (last == end) break;
    *out++ = kBeforeFinals;
    first = last + 1;
  }
  text.resize(static_cast<size_t>(out - text.data()));
}

}  // namespace

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d);
  if (c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

// Beyond the categories: circled and squared letters (Other_Alphabetic), joiners (Join_Control).
bool is_word_character(char32_t c) {
  switch (utf8proc_category(static_cast<int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
             (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C ||
             c == 0x200D;
  }
}

bool is_mark(char32_t c) {
  const auto category = utf8proc_category(static_cast<int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
         category == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code_point) {
  return utf8proc_category(static_cast<int32_t>(code_point)) == UTF8PROC_CATEGORY_MN;
}

bool is_no_text(char32_t code_point) {
  switch (utf8proc_category(static_cast<int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return true;
    default:
      return false;
  }
}

size_t grapheme_length(std::string_view text) {
  Utf8Step step = utf8_step(text);
  size_t length = step.length;
  int32_t state = 0;
  while (length < text.size()) {
    const auto previous = static_cast<int32_t>(step.code_point);
    step = utf8_step(text.substr(length));
    const auto next = static_cast<int32_t>(step.code_point);
    if (utf8proc_grapheme_break_stateful(previous, next, &state)) break;
    length += step.length;
  }
  return length;
}

void append_lower(char32_t c, std::string& out) {
  append_utf8(c == 0x130 ? U'i' : static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))),
              out);
  if (c == 0x130) append_utf8(0x307, out);  // the only lower case of two characters
}

std::string normalize(std::string_view text, UnicodeForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool composed = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool compatible = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  std::vector<int32_t> characters =
      decompose(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compatible ? UTF8PROC_COMPAT : 0));
  order_marks(characters);
  if (composed) compose(characters);
  std::string result;
  result.reserve(text.size());
  for (const int32_t c : characters) append_utf8(static_cast<char32_t>(c), result);
  return result;
}

}  // namespace headrace
