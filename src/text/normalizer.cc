#include "text/normalizer.h"

#include <functional>
#include <utility>

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

std::string normalize_by(const UnicodeForm& form, std::string_view text) {
  return normalize(text, form);
}
std::string normalize_by(const Lowercase&, std::string_view text) {
  return map_characters(text, append_lower);
}
std::string normalize_by(const StripAccents&, std::string_view text) {
  return map_characters(text, [](char32_t c, std::string& out) {
    if (!is_mark(c)) append_utf8(c, out);
  });
}
std::string normalize_by(const StripSpace& ends, std::string_view text) {
  return strip_space(text, ends);
}
std::string normalize_by(const Prepend& prefix, std::string_view text) {
  return text.empty() ? std::string() : prefix.text + std::string(text);
}

}  // namespace

class Normalizer::Step {
 public:
  virtual ~Step() = default;
  virtual Result<std::string> apply(std::string_view text) const = 0;
};

class Normalizer::ReplaceStep : public Step {
 public:
  ReplaceStep(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  Result<std::string> apply(std::string_view text) const override {
    std::string result;
    result.reserve(text.size());
    HR_RETURN_IF_ERROR(pattern_.for_each(text, [&](std::string_view piece, bool matched) {
      result += matched ? std::string_view(content_) : piece;
    }));
    return result;
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

// A step that is a function of the text.
class Normalizer::PlainStep : public Step {
 public:
  explicit PlainStep(std::function<std::string(std::string_view)> function)
      : function_(std::move(function)) {}
  Result<std::string> apply(std::string_view text) const override { return function_(text); }

 private:
  std::function<std::string(std::string_view)> function_;
};

Normalizer::Normalizer(std::vector<std::unique_ptr<Step>> steps) : steps_(std::move(steps)) {}
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

Result<Normalizer> Normalizer::create(const std::vector<NormalizerStep>& steps) {
  std::vector<std::unique_ptr<Step>> made;
  for (const NormalizerStep& step : steps) {
    if (const auto* replace = std::get_if<Replace>(&step)) {
      HR_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::create(replace->pattern));
      made.push_back(std::make_unique<ReplaceStep>(std::move(pattern), replace->content));
      continue;
    }
    std::visit(
        [&](const auto& rule) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(rule)>, Replace>) {
            made.push_back(std::make_unique<PlainStep>(
                [rule](std::string_view text) { return normalize_by(rule, text); }));
          }
        },
        step);
  }
  return Normalizer(std::move(made));
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string result(text);
  for (const auto& step : steps_) {
    HR_ASSIGN_OR_RETURN(result, step->apply(result));
  }
  return result;
}

}  // namespace headrace
