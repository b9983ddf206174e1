#include "text/pre_tokenizer.h"

#include <array>
#include <string>

#include <fmt/core.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "text/utf8.h"

namespace headrace {
namespace {

// Unicode's White_Space. Not \s: without UCP that is ASCII only, and with UCP PCRE2 adds U+180E.
#define HR_SPACE "\\x09-\\x0d\\x{85}\\p{Z}"

// "Language Models are Unsupervised Multitask Learners" (Radford et al. 2019), encoder.py. The last
// alternative of the original, \s+, is there so that each run of spaces is taken whole.
constexpr const char* kGpt2Pattern = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" HR_SPACE
                                     "\\p{L}\\p{N}]+"
                                     "|[" HR_SPACE "]+(?![^" HR_SPACE "])|[" HR_SPACE "]+";

// SmolLM: every digit by itself, then GPT-2's pattern on what is left.
constexpr const char* kSingleDigitPattern = "\\p{N}";

#undef HR_SPACE

struct Recipe {
  std::string_view name;
  std::array<const char*, 2> stages;  // nullptr = unused
};
constexpr std::array<Recipe, 3> kRecipes = {{
    {"gpt-2", {kGpt2Pattern, nullptr}},
    {"gpt2", {kGpt2Pattern, nullptr}},
    {"smollm", {kSingleDigitPattern, kGpt2Pattern}},
}};

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDataFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

class PreTokenizer::Pattern {
 public:
  static Result<std::unique_ptr<Pattern>> compile(const char* source) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    std::unique_ptr<pcre2_code, CodeFree> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source),
                                                             PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                                                             &error, &offset, nullptr));
    if (!code) {
      return internal_error(
          fmt::format("pre-tokenizer pattern: PCRE2 error {} at {}", error, offset));
    }
    // Without machine code the interpreter runs the same pattern, a few times slower.
    const bool jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
    return std::unique_ptr<Pattern>(new Pattern(std::move(code), jit));
  }

  // Calls emit(piece) for matches and gaps in order. `text` is well-formed UTF-8.
  template <class Emit>
  Status for_each_piece(std::string_view text, const Emit& emit) const {
    std::unique_ptr<pcre2_match_data, MatchDataFree> match(pcre2_match_data_create(1, nullptr));
    if (!match) return exhausted("no memory for a regular expression match");
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    size_t at = 0;
    while (at < text.size()) {
      const int found =
          jit_ ? pcre2_jit_match(code_.get(), subject, text.size(), at, 0, match.get(), nullptr)
               : pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, match.get(),
                             nullptr);
      if (found == PCRE2_ERROR_NOMATCH) return emit(text.substr(at));
      if (found < 0) return exhausted(fmt::format("pre-tokenizer: PCRE2 error {}", found));
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
      if (bounds[0] > at) HR_RETURN_IF_ERROR(emit(text.substr(at, bounds[0] - at)));
      HR_RETURN_IF_ERROR(emit(text.substr(bounds[0], bounds[1] - bounds[0])));
      at = bounds[1];
    }
    return ok_status();
  }

 private:
  Pattern(std::unique_ptr<pcre2_code, CodeFree> code, bool jit)
      : code_(std::move(code)), jit_(jit) {}
  std::unique_ptr<pcre2_code, CodeFree> code_;
  bool jit_;
};

PreTokenizer::PreTokenizer(std::vector<std::unique_ptr<Pattern>> stages)
    : stages_(std::move(stages)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name != name) continue;
    std::vector<std::unique_ptr<Pattern>> stages;
    for (const char* source : recipe.stages) {
      if (source == nullptr) continue;
      HR_ASSIGN_OR_RETURN(auto pattern, Pattern::compile(source));
      stages.push_back(std::move(pattern));
    }
    return PreTokenizer(std::move(stages));
  }
  return unsupported(
      fmt::format("pre-tokenizer '{}' is not supported (known: gpt-2, smollm)", name), "pre");
}

Status PreTokenizer::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) HR_RETURN_IF_ERROR(split_stage(0, text.substr(0, valid), pieces));
    text.remove_prefix(valid);
    size_t invalid = 0;
    while (invalid < text.size()) {
      const Utf8Step step = utf8_step(text.substr(invalid));
      if (step.state == Utf8State::kValid) break;
      invalid += step.length;
    }
    if (invalid > 0) pieces.push_back(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
  return ok_status();
}

Status PreTokenizer::split_stage(size_t stage, std::string_view text,
                                 std::vector<std::string_view>& pieces) const {
  if (stage == stages_.size()) {
    pieces.push_back(text);
    return ok_status();
  }
  return stages_[stage]->for_each_piece(
      text, [&](std::string_view piece) { return split_stage(stage + 1, piece, pieces); });
}

}  // namespace headrace
