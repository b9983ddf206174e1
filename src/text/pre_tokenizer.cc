#include "text/pre_tokenizer.h"

#include <utility>

namespace headrace {
class PreTokenizer::Step {
 public:
  virtual ~Step() = default;
  // Appends what becomes of `piece`.
  virtual Status apply(Piece piece, Pieces& out) const = 0;
};

class PreTokenizer::SplitStep : public Step {
 public:
  SplitStep(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status apply(Piece piece, Pieces& out) const override {
    std::string_view pending;  // what the next match or gap may join
    bool pending_matched = false;
    const auto flush = [&] {
      const bool at_start = piece.at_start && pending.data() == piece.text.data();
      if (!pending.empty()) out.pieces.push_back({pending, at_start});
      pending = {};
    };
    const Status status = pattern_.for_each(piece.text, [&](std::string_view text, bool found) {
      const bool matched = found != invert_;
      if (!joins(pending_matched, matched)) flush();
      pending =
          pending.empty() ? text : std::string_view(pending.data(), pending.size() + text.size());
      pending_matched = matched;
      if (matched && behavior_ == SplitBehavior::kRemoved) pending = {};
    });
    flush();
    return status;
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

  Status apply(Piece piece, Pieces& out) const override {
    const std::string& spelled = out.storage.emplace_back(spell(piece));
    std::string_view rest = spelled;
    bool at_start = piece.at_start;
    while (rule_.split && !rest.empty()) {
      const size_t next = rest.find(
          rule_.spelling, rest.starts_with(rule_.spelling) ? rule_.spelling.size() : size_t{0});
      if (next == rest.npos) break;
      out.pieces.push_back({rest.substr(0, next), at_start});
      at_start = false;
      rest.remove_prefix(next);
    }
    if (!rest.empty()) out.pieces.push_back({rest, at_start});
    return ok_status();
  }

 private:
  std::string spell(Piece piece) const {
    std::string spelled;
    spelled.reserve(piece.text.size() + piece.text.size() / 2 + rule_.spelling.size());
    for (const char c : piece.text) {
      if (c == ' ') {
        spelled += rule_.spelling;
      } else {
        spelled += c;
      }
    }
    const bool wanted = rule_.scheme == PrependScheme::kAlways ||
                        (rule_.scheme == PrependScheme::kFirst && piece.at_start);
    if (wanted && !spelled.starts_with(rule_.spelling)) spelled.insert(0, rule_.spelling);
    return spelled;
  }

  SpaceSpelling rule_;
};

class PreTokenizer::PrefixSpaceStep : public Step {
 public:
  Status apply(Piece piece, Pieces& out) const override {
    if (!piece.text.starts_with(' ')) {
      piece.text = out.storage.emplace_back(" " + std::string(piece.text));
    }
    out.pieces.push_back(piece);
    return ok_status();
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

Result<Pieces> PreTokenizer::split(std::string_view text, bool at_start) const {
  Pieces result;
  if (text.empty()) return result;
  result.pieces.push_back({text, at_start});
  for (const auto& step : steps_) {
    std::vector<Piece> before = std::exchange(result.pieces, {});
    result.pieces.reserve(before.size());
    for (const Piece& piece : before) HR_RETURN_IF_ERROR(step->apply(piece, result));
  }
  return result;
}

}  // namespace headrace
