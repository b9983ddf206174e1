#include "text/normalizer.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "text/chars_map.h"
#include "text/text_pattern.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace headrace {
namespace {

// `text` with each character replaced by what `append` makes of it.
template <class AppendFn>
std::string map_characters(std::string_view text, const AppendFn& append) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    append(step.code_point, result);
    text.remove_prefix(step.length);
  }
  return result;
}

std::string strip_space(std::string_view text, StripSpace ends) {
  size_t begin = 0, end = 0;  // of what stays
  bool seen = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (!is_white_space(step.code_point)) {
      if (!seen) begin = at;
      seen = true;
      end = at + step.length;
    }
    at += step.length;
  }
  if (!seen) begin = ends.left ? text.size() : 0;
  if (!ends.left) begin = 0;
  if (!ends.right) end = text.size();
  return std::string(text.substr(begin, end > begin ? end - begin : 0));
}

std::string lower_case(std::string_view text) { return map_characters(text, append_lower); }

std::string strip_nonspacing_marks(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    if (!is_nonspacing_mark(c)) append_utf8(c, out);
  });
}

std::string clean_text(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    const bool line = c == '\t' || c == '\n' || c == '\r';
    if (c == 0xFFFD || (!line && is_no_text(c))) return;
    append_utf8(is_white_space(c) ? U' ' : c, out);
  });
}

// The blocks that BERT's own code names; Hangul, Hiragana and Katakana are written with spaces or
// as other scripts.
bool is_ideograph(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kBlocks[] = {
      {0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kBlocks), std::end(kBlocks),
                     [&](const auto& block) { return c >= block.first && c <= block.second; });
}

std::string space_ideographs(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    const bool alone = is_ideograph(c);
    if (alone) out.push_back(' ');
    append_utf8(c, out);
    if (alone) out.push_back(' ');
  });
}

std::string strip_accents(std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    if (!is_mark(c)) append_utf8(c, out);
  });
}

// Of a step without members.
std::string (*plain_function(const NormalizerStep& step))(std::string_view) {
  if (std::holds_alternative<Lowercase>(step)) return lower_case;
  if (std::holds_alternative<CleanText>(step)) return clean_text;
  if (std::holds_alternative<SpaceIdeographs>(step)) return space_ideographs;
  if (std::holds_alternative<StripNonspacingMarks>(step)) return strip_nonspacing_marks;
  return strip_accents;
}

}  // namespace

class Normalizer::Step {
 public:
  virtual ~Step() = default;
  virtual Result<std::string> apply(std::string_view text, TextPlace place) const = 0;
};

class Normalizer::ReplaceStep : public Step {
 public:
  ReplaceStep(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Result<std::string> apply(std::string_view text, TextPlace) const override {
    std::string result;
    result.reserve(text.size());
    HR_RETURN_IF_ERROR(pattern_.for_each(text, [&](std::string_view piece, bool matched) {
      result += matched ? std::string_view(content_) : piece;
      return ok_status();
    }));
    return result;
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class Normalizer::CharsMapStep : public Step {
 public:
  CharsMapStep(CharsMap map, bool by_grapheme) : map_(std::move(map)), by_grapheme_(by_grapheme) {}
  Result<std::string> apply(std::string_view text, TextPlace) const override {
    return by_grapheme_ ? map_.apply_by_grapheme(text) : map_.apply_longest(text);
  }

 private:
  CharsMap map_;
  bool by_grapheme_;
};

class Normalizer::PrependStep : public Step {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  Result<std::string> apply(std::string_view text, TextPlace place) const override {
    const bool wanted = !text.empty() && place != TextPlace::kBehindBytes;
    return (wanted ? prefix_ : std::string()) + std::string(text);
  }

 private:
  std::string prefix_;
};

// A step that is a function of the text.
class Normalizer::PlainStep : public Step {
 public:
  explicit PlainStep(std::function<std::string(std::string_view)> function)
      : function_(std::move(function)) {}
  Result<std::string> apply(std::string_view text, TextPlace) const override {
    return function_(text);
  }

 private:
  std::function<std::string(std::string_view)> function_;
};

Normalizer::Normalizer(std::vector<std::unique_ptr<Step>> steps) : steps_(std::move(steps)) {}
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

Result<std::unique_ptr<Normalizer::Step>> Normalizer::make_step(const NormalizerStep& step) {
  using Made = std::unique_ptr<Step>;
  if (const auto* replace = std::get_if<Replace>(&step)) {
    HR_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::create(replace->pattern));
    return Made(std::make_unique<ReplaceStep>(std::move(pattern), replace->content));
  }
  if (const auto* precompiled = std::get_if<PrecompiledCharsMap>(&step)) {
    HR_ASSIGN_OR_RETURN(CharsMap map, CharsMap::create(precompiled->blob));
    return Made(std::make_unique<CharsMapStep>(std::move(map), precompiled->by_grapheme));
  }
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    return Made(std::make_unique<PrependStep>(prepend->text));
  }
  if (const auto* form = std::get_if<UnicodeForm>(&step)) {
    return Made(std::make_unique<PlainStep>(
        [form = *form](std::string_view text) { return normalize(text, form); }));
  }
  if (const auto* ends = std::get_if<StripSpace>(&step)) {
    return Made(std::make_unique<PlainStep>(
        [ends = *ends](std::string_view text) { return strip_space(text, ends); }));
  }
  return Made(std::make_unique<PlainStep>(plain_function(step)));
}

Result<Normalizer> Normalizer::create(const std::vector<NormalizerStep>& steps) {
  std::vector<std::unique_ptr<Step>> made;
  for (const NormalizerStep& step : steps) {
    HR_ASSIGN_OR_RETURN(auto one, make_step(step));
    made.push_back(std::move(one));
  }
  return Normalizer(std::move(made));
}

Result<std::string> Normalizer::apply(std::string_view text, TextPlace place) const {
  std::string result(text);
  for (const auto& step : steps_) {
    HR_ASSIGN_OR_RETURN(result, step->apply(result, place));
  }
  return result;
}

}  // namespace headrace
