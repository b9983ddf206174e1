#include "text/text_pattern.h"

#include <array>

#include <fmt/core.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/utf8.h"

namespace headrace {
namespace {

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string error_text(int error) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct TextPattern::Compiled {
  std::unique_ptr<pcre2_code, CodeFree> code;
  bool jit;

  int match(std::string_view text, size_t at, pcre2_match_data* data) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    if (jit) {
      const int found = pcre2_jit_match(code.get(), subject, text.size(), at, 0, data, nullptr);
      // Machine code has a stack of 32 KiB; the interpreter's way back is on the heap.
      if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    }
    return pcre2_match(code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       data, nullptr);
  }
};

TextPattern::TextPattern(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
TextPattern::TextPattern(TextPattern&&) noexcept = default;
TextPattern& TextPattern::operator=(TextPattern&&) noexcept = default;
TextPattern::~TextPattern() = default;

Result<TextPattern> TextPattern::create(const PatternSource& source) {
  if (!source.is_regex) {
    TextPattern pattern(nullptr);
    pattern.literal_ = source.text;
    return pattern;
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  std::unique_ptr<pcre2_code, CodeFree> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.text.data()), source.text.size(),
                    PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  if (!code) {
    return unsupported(fmt::format("regular expression: {} at {}", error_text(error), offset),
                       "pattern");
  }
  // Without machine code the interpreter runs the same pattern, a few times slower.
  const bool jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  return TextPattern(std::make_unique<Compiled>(Compiled{std::move(code), jit}));
}

Status TextPattern::for_each(std::string_view text, const Emit& emit) const {
  if (!compiled_) return for_each_literal(text, emit);
  std::unique_ptr<pcre2_match_data, MatchDataFree> data(pcre2_match_data_create(1, nullptr));
  if (!data) return exhausted("no memory for a regular expression match");
  size_t gap = 0;  // where the text that is in no match yet begins
  size_t at = 0;
  while (at < text.size()) {
    const int found = compiled_->match(text, at, data.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) return exhausted(fmt::format("regular expression: {}", error_text(found)));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    const size_t begin = bounds[0], end = std::max(bounds[0], bounds[1]);
    if (begin > gap) HR_RETURN_IF_ERROR(emit(text.substr(gap, begin - gap), false));
    HR_RETURN_IF_ERROR(emit(text.substr(begin, end - begin), true));
    gap = end;
    at = end > begin || end == text.size() ? end : end + utf8_step(text.substr(end)).length;
  }
  if (gap < text.size()) HR_RETURN_IF_ERROR(emit(text.substr(gap), false));
  return ok_status();
}

Status TextPattern::for_each_literal(std::string_view text, const Emit& emit) const {
  size_t at = 0;
  while (!literal_.empty()) {
    const size_t found = text.find(literal_, at);
    if (found == text.npos) break;
    if (found > at) HR_RETURN_IF_ERROR(emit(text.substr(at, found - at), false));
    HR_RETURN_IF_ERROR(emit(text.substr(found, literal_.size()), true));
    at = found + literal_.size();
  }
  if (at < text.size()) HR_RETURN_IF_ERROR(emit(text.substr(at), false));
  return ok_status();
}

}  // namespace headrace
