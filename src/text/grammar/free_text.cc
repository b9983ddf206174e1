#include "text/grammar/free_text.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace headrace {
namespace {

constexpr char kControl = static_cast<char>(kMarkByte);
constexpr std::string_view kBlanks = " \t\r\n";

std::string control_spelling(std::string_view mark) { return kControl + std::string(mark); }

struct FoundMark {
  size_t at = std::string_view::npos;
  std::string_view mark;
};

// The first of the marks but `outer`; of those that begin there, the longest.
FoundMark find_mark(std::string_view text, std::span<const std::string_view> marks,
                    std::string_view outer) {
  FoundMark found;
  for (std::string_view mark : marks) {
    if (mark.empty() || mark == outer) continue;
    const size_t at = text.find(mark);
    const bool better = at < found.at || (at == found.at && mark.size() > found.mark.size());
    if (at != text.npos && better) found = {at, mark};
  }
  return found;
}

GrammarPiece spelled_within(GrammarBuilder& builder, std::string_view text,
                            std::span<const std::string_view> marks, std::string_view outer) {
  GrammarPiece all;
  while (!text.empty()) {
    const auto [at, mark] = find_mark(text, marks, outer);
    if (mark.empty()) return GrammarBuilder::join({all, builder.literal(text)});
    all = GrammarBuilder::join({all, builder.literal(text.substr(0, at)),
                                builder.choice({spelled_within(builder, mark, marks, mark),
                                                builder.literal(control_spelling(mark))})});
    text.remove_prefix(at + mark.size());
  }
  return all;
}

// Texts as they are looked for: bytes, in which kMarkByte begins a control token.
class TextAutomaton {
 public:
  TextAutomaton(GrammarBuilder& builder, const FreeText& text) : builder_(builder), text_(text) {
    for (size_t i = 0; i < text.ends.size(); ++i) add_end(i);
    for (std::string_view mark : text.passed) passed_.insert(control_spelling(mark));
    for (const auto& [pattern, end] : patterns_) add_beginnings(pattern);
    for (const std::string& pattern : passed_) add_beginnings(pattern);
  }

  // The texts from `rule` on: behind nothing.
  void add_to(const GrammarPiece& rule) {
    states_[""] = rule;
    for (auto& [seen, piece] : states_) {
      if (!seen.empty()) piece = builder_.declare();
    }
    for (const auto& [seen, piece] : states_) add_steps(seen, piece, ByteSet());
  }

  // As add_to() but for the character that begins what is no text.
  void add_with_bare(const GrammarPiece& rule) {
    add_to(builder_.declare());
    ByteSet blanks, without;
    for (char c : kBlanks) blanks.add(static_cast<uint8_t>(c));
    without = blanks;
    without.add(static_cast<uint8_t>(text_.bare_open));
    builder_.add(rule, GrammarBuilder::join({builder_.bytes(blanks), rule}));
    builder_.add(rule, text_.behind_bare);
    add_steps("", rule, without);
  }

 private:
  void add_end(size_t index) {
    const std::string mark(text_.ends[index].text);
    patterns_[control_spelling(mark)] = index;
    names_.insert(mark);
    add_spellings(index, {}, mark);
  }

  // `spelled` and what is left of the mark, in which each mark may be a control token.
  void add_spellings(size_t index, const std::string& spelled, std::string_view left) {
    const auto [at, inner] = find_mark(left, text_.marks, text_.ends[index].text);
    if (inner.empty()) {
      patterns_[spelled + std::string(left)] = index;
      return;
    }
    names_.insert(std::string(inner));
    const std::string front = spelled + std::string(left.substr(0, at));
    const std::string_view behind = left.substr(at + inner.size());
    add_spellings(index, front + std::string(inner), behind);
    add_spellings(index, front + control_spelling(inner), behind);
  }

  void add_beginnings(const std::string& pattern) {
    for (char c : pattern) alphabet_.add(static_cast<uint8_t>(c));
    alphabet_.add(kMarkByte);
    for (size_t length = 0; length < pattern.size(); ++length) {
      states_.try_emplace(pattern.substr(0, length));
    }
  }

  // Behind `seen`, which is what a text ends with; never by a byte of `without`.
  void add_steps(const std::string& seen, const GrammarPiece& state, const ByteSet& without) {
    std::map<std::string, ByteSet> next;
    const bool within = is_within_control(seen);
    for (int byte = 0; byte < 256; ++byte) {
      if (without.has(static_cast<uint8_t>(byte))) continue;
      if (!alphabet_.has(static_cast<uint8_t>(byte))) {
        if (!within) next[""].add(static_cast<uint8_t>(byte));
        continue;
      }
      const std::string text = seen + static_cast<char>(byte);
      if (const TextMark* end = end_of(text)) {
        ByteSet one;
        one.add(static_cast<uint8_t>(byte));
        if (!end->never) {
          builder_.add(state, GrammarBuilder::join({builder_.bytes(one), end->then}));
        }
        continue;
      }
      const std::string behind = longest_state(text);
      if (may_stand(text, behind)) next[behind].add(static_cast<uint8_t>(byte));
    }
    for (const auto& [behind, bytes] : next) {
      builder_.add(state, GrammarBuilder::join({builder_.bytes(bytes), states_.at(behind)}));
    }
    if (text_.may_end && !within) builder_.add(state, {});
  }

  const TextMark* end_of(std::string_view text) const {
    for (const auto& [pattern, index] : patterns_) {
      if (text.ends_with(pattern)) return &text_.ends[index];
    }
    return nullptr;
  }

  std::string longest_state(const std::string& text) const {
    for (size_t skip = 0; skip < text.size(); ++skip) {
      const auto found = states_.find(text.substr(skip));
      if (found != states_.end()) return found->first;
    }
    return {};
  }

  // Whether the last control token of a state is not complete.
  bool is_within_control(std::string_view seen) const {
    const size_t at = seen.rfind(kControl);
    if (at == seen.npos) return false;
    const std::string_view name = seen.substr(at + 1);
    const auto is_begun = [&](const std::string& whole) { return name.starts_with(whole); };
    return std::none_of(names_.begin(), names_.end(), is_begun) &&
           std::none_of(passed_.begin(), passed_.end(),
                        [&](const std::string& whole) { return is_begun(whole.substr(1)); });
  }

  // A control token is one of those that are known, or none.
  bool may_stand(std::string_view text, std::string_view behind) const {
    const bool within = text.back() == kControl || is_within_control(text);
    if (!within) return true;
    return text.size() - text.rfind(kControl) <= behind.size();
  }

  GrammarBuilder& builder_;
  const FreeText& text_;
  std::map<std::string, size_t> patterns_;      // to their index in `ends`
  std::set<std::string> passed_;                // as control tokens
  std::set<std::string> names_;                 // of control tokens in patterns
  std::map<std::string, GrammarPiece> states_;  // by what a text ends with
  ByteSet alphabet_;  // of all patterns: another byte leads to where a text begins
};

}  // namespace

GrammarPiece mark_grammar(GrammarBuilder& builder, std::string_view mark) {
  if (mark.empty()) return {};
  return builder.choice({builder.literal(mark), builder.literal(control_spelling(mark))});
}

GrammarPiece spelled_grammar(GrammarBuilder& builder, std::string_view text,
                             std::span<const std::string_view> marks) {
  return spelled_within(builder, text, marks, {});
}

void add_free_text(GrammarBuilder& builder, const GrammarPiece& rule, const FreeText& text) {
  TextAutomaton automaton(builder, text);
  if (text.bare_open != 0) return automaton.add_with_bare(rule);
  automaton.add_to(rule);
}

void add_text_until(GrammarBuilder& builder, const GrammarPiece& rule, std::string_view mark,
                    const GrammarPiece& then, bool may_end) {
  add_free_text(builder, rule, {.ends = {{.text = mark, .then = then}}, .may_end = may_end});
}

}  // namespace headrace
