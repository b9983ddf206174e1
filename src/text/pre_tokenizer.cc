#include "text/pre_tokenizer.h"

#include <utility>

namespace headrace {
class PreTokenizer::Step {
 public:
  virtual ~Step() = default;
  using Emit = std::function<Status(const Piece&)>;
  virtual Status apply(const Piece& piece, const Emit& emit) const = 0;
};

class PreTokenizer::SplitStep : public Step {
 public:
  SplitStep(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status apply(const Piece& piece, const Emit& emit) const override {
    std::string_view pending;  // what the next match or gap may join
    bool pending_matched = false;
    const auto flush = [&] {
      const bool is_first = piece.is_first && pending.data() == piece.text.data();
      const std::string_view whole = std::exchange(pending, {});
      return whole.empty() ? ok_status() : emit({whole, piece.place, is_first});
    };
    HR_RETURN_IF_ERROR(pattern_.for_each(piece.text, [&](std::string_view text, bool found) {
      const bool matched = found != invert_;
      if (!joins(pending_matched, matched)) HR_RETURN_IF_ERROR(flush());
      pending =
          pending.empty() ? text : std::string_view(pending.data(), pending.size() + text.size());
      pending_matched = matched;
      if (matched && behavior_ == SplitBehavior::kRemoved) pending = {};
      return ok_status();
    }));
    return flush();
  }

 private:
  // Whether a match or gap goes on with the one before it.
  bool joins(bool previous_matched, bool matched) const {
    switch (behavior_) {
      case SplitBehavior::kMergedWithPrevious:
        return matched && !previous_matched;
      case SplitBehavior::kMergedWithNext:
        return !matched && previous_matched;
      case SplitBehavior::kContiguous:
        return matched == previous_matched;
      default:
        return false;
    }
  }

  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class PreTokenizer::SpaceSpellingStep : public Step {
 public:
  explicit SpaceSpellingStep(SpaceSpelling rule) : rule_(std::move(rule)) {}

  Status apply(const Piece& piece, const Emit& emit) const override {
    const std::string spelled = spell(piece);
    Piece next{spelled, piece.place, piece.is_first};
    for (std::string_view rest = spelled; rule_.split; next.is_first = false) {
      const size_t from = rest.starts_with(rule_.spelling) ? rule_.spelling.size() : 0;
      const size_t length = rest.find(rule_.spelling, from);
      next.text = rest;
      if (length == rest.npos) break;
      next.text = rest.substr(0, length);
      HR_RETURN_IF_ERROR(emit(next));
      rest.remove_prefix(length);
    }
    return next.text.empty() ? ok_status() : emit(next);
  }

 private:
  std::string spell(const Piece& piece) const {
    std::string spelled;
    spelled.reserve(piece.text.size() + piece.text.size() / 2 + rule_.spelling.size());
    std::string_view rest = piece.text;
    for (size_t space; (space = rest.find(' ')) != rest.npos; rest.remove_prefix(space + 1)) {
      spelled.append(rest.substr(0, space)).append(rule_.spelling);
    }
    spelled += rest;
    if (wants_prefix(piece) && !spelled.starts_with(rule_.spelling))
      spelled.insert(0, rule_.spelling);
    return spelled;
  }

  bool wants_prefix(const Piece& piece) const {
    if (piece.is_first && piece.place == TextPlace::kBehindBytes) return false;
    if (rule_.scheme == PrependScheme::kFirst) {
      return piece.is_first && piece.place == TextPlace::kStart;
    }
    return rule_.scheme == PrependScheme::kAlways;
  }

  SpaceSpelling rule_;
};

class PreTokenizer::PrefixSpaceStep : public Step {
 public:
  Status apply(const Piece& piece, const Emit& emit) const override {
    const bool behind_bytes = piece.is_first && piece.place == TextPlace::kBehindBytes;
    if (piece.text.starts_with(' ') || behind_bytes) return emit(piece);
    const std::string prefixed = " " + std::string(piece.text);
    return emit({prefixed, piece.place, piece.is_first});
  }
};

PreTokenizer::PreTokenizer(std::vector<std::unique_ptr<Step>> steps) : steps_(std::move(steps)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

Result<PreTokenizer> PreTokenizer::create(const std::vector<PreTokenizerStep>& steps) {
  std::vector<std::unique_ptr<Step>> made;
  for (const PreTokenizerStep& step : steps) {
    if (const auto* split = std::get_if<Split>(&step)) {
      HR_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::create(split->pattern));
      made.push_back(
          std::make_unique<SplitStep>(std::move(pattern), split->behavior, split->invert));
    } else if (const auto* spelling = std::get_if<SpaceSpelling>(&step)) {
      made.push_back(std::make_unique<SpaceSpellingStep>(*spelling));
    } else {
      made.push_back(std::make_unique<PrefixSpaceStep>());
    }
  }
  return PreTokenizer(std::move(made));
}

Status PreTokenizer::split(std::string_view text, TextPlace place, const PieceSink& sink) const {
  if (text.empty()) return ok_status();
  return split_from(0, {text, place, true}, sink);
}

Status PreTokenizer::split_from(size_t step, const Piece& piece, const PieceSink& sink) const {
  if (step == steps_.size()) return sink(piece.text);
  return steps_[step]->apply(piece,
                             [&](const Piece& next) { return split_from(step + 1, next, sink); });
}

}  // namespace headrace
