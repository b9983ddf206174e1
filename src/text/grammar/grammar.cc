#include "text/grammar/grammar.h"

#include <algorithm>

#include <fmt/format.h>

#include "text/grammar/utf8_ranges.h"

namespace headrace {
namespace {

using Kind = GrammarSymbol::Kind;

// Which rules reach which through the beginning of a rule. An edge grows where something stands
// behind the rule that is reached: around a cycle of such, a matcher's stack would grow for ever.
struct LeftEdge {
  uint32_t to;
  bool grows;
};

// Strongly connected components (Tarjan 1972, without recursion): rules of a cycle have one number.
class LeftCycles {
 public:
  explicit LeftCycles(const std::vector<std::vector<LeftEdge>>& edges)
      : edges_(edges), index_(edges.size(), 0), low_(edges.size(), 0), component_(edges.size(), 0) {
    for (uint32_t rule = 0; rule < edges.size(); ++rule) {
      if (index_[rule] == 0) visit(rule);
    }
  }
  bool has_growing() const {
    for (uint32_t rule = 0; rule < edges_.size(); ++rule) {
      for (const LeftEdge& edge : edges_[rule]) {
        if (edge.grows && component_[rule] == component_[edge.to]) return true;
      }
    }
    return false;
  }

 private:
  struct Frame {
    uint32_t rule;
    size_t next_edge;
  };

  void visit(uint32_t root) {
    frames_.push_back({root, 0});
    while (!frames_.empty()) {
      const uint32_t rule = frames_.back().rule;
      if (frames_.back().next_edge == 0 && index_[rule] == 0) {
        index_[rule] = low_[rule] = ++count_;
        path_.push_back(rule);
      }
      if (frames_.back().next_edge < edges_[rule].size()) {
        const uint32_t to = edges_[rule][frames_.back().next_edge++].to;
        if (index_[to] == 0) {
          frames_.push_back({to, 0});
        } else if (component_[to] == 0) {
          low_[rule] = std::min(low_[rule], index_[to]);
        }
        continue;
      }
      leave(rule);
    }
  }

  void leave(uint32_t rule) {
    frames_.pop_back();
    if (!frames_.empty()) {
      uint32_t& low = low_[frames_.back().rule];
      low = std::min(low, low_[rule]);
    }
    if (low_[rule] != index_[rule]) return;
    ++components_;
    uint32_t member;
    do {
      member = path_.back();
      path_.pop_back();
      component_[member] = components_;
    } while (member != rule);
  }

  const std::vector<std::vector<LeftEdge>>& edges_;
  std::vector<uint32_t> index_, low_, component_;  // 0: not yet
  std::vector<uint32_t> path_;
  std::vector<Frame> frames_;
  uint32_t count_ = 0, components_ = 0;
};

}  // namespace

GrammarPiece GrammarBuilder::declare() {
  ++symbol_count_;
  if (too_large() && !rules_.empty()) return {{Kind::kRule, 0}};
  rules_.emplace_back();
  return {{Kind::kRule, static_cast<uint32_t>(rules_.size() - 1)}};
}

void GrammarBuilder::add(const GrammarPiece& rule, const GrammarPiece& alternative) {
  symbol_count_ += alternative.size() + 1;
  if (too_large()) return;
  rules_[rule[0].index].alternatives.push_back(alternative);
}

GrammarPiece GrammarBuilder::bytes(const ByteSet& set) {
  const auto [at, is_new] = set_index_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
  if (is_new) sets_.push_back(set);
  return {{Kind::kBytes, at->second}};
}

GrammarPiece GrammarBuilder::literal(std::string_view text) {
  GrammarPiece piece;
  if (text.size() > kSymbolsMax) return note_too_large(), piece;
  for (char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    piece.push_back(bytes(ByteSet::of_range(byte, byte))[0]);
  }
  return piece;
}

GrammarPiece GrammarBuilder::character(const CodePointSet& set) {
  if (const auto known = characters_.find(set.ranges()); known != characters_.end()) {
    return known->second;
  }
  ByteSet single;
  std::vector<GrammarPiece> alternatives;
  for (const std::vector<ByteSet>& sequence : utf8_sequences(set)) {
    if (sequence.size() == 1) {
      for (int byte = 0; byte < 128; ++byte) {
        if (sequence[0].has(static_cast<uint8_t>(byte))) single.add(static_cast<uint8_t>(byte));
      }
      continue;
    }
    GrammarPiece piece;
    for (const ByteSet& each : sequence) piece.push_back(bytes(each)[0]);
    alternatives.push_back(std::move(piece));
  }
  if (!single.empty() || alternatives.empty()) alternatives.push_back(bytes(single));
  const GrammarPiece piece = choice(alternatives);
  characters_.emplace(set.ranges(), piece);
  return piece;
}

GrammarPiece GrammarBuilder::choice(std::span<const GrammarPiece> alternatives) {
  if (alternatives.size() == 1 && alternatives[0].size() == 1) return alternatives[0];
  std::vector<GrammarPiece> key(alternatives.begin(), alternatives.end());
  if (const auto known = choices_.find(key); known != choices_.end()) {
    ++symbol_count_;  // it is no larger, but took its time
    return known->second;
  }
  GrammarPiece rule = declare();
  for (const GrammarPiece& alternative : alternatives) add(rule, alternative);
  if (!too_large()) choices_.emplace(std::move(key), rule);
  return rule;
}

GrammarPiece GrammarBuilder::left_factored(std::span<const GrammarPiece> alternatives) {
  std::vector<GrammarPiece> reversed(alternatives.begin(), alternatives.end());
  for (GrammarPiece& piece : reversed) std::reverse(piece.begin(), piece.end());
  return factor(std::move(reversed), 0);
}

// As long as the first symbol is a rule that says one thing, that takes its place. What is copied
// counts as symbols, so that it ends.
void GrammarBuilder::open_front(GrammarPiece& reversed) {
  constexpr int kOpenedMax = 64;  // a rule may say that it is itself
  for (int i = 0; i < kOpenedMax && !reversed.empty() && !too_large(); ++i) {
    const GrammarSymbol first = reversed.back();
    if (first.kind == Kind::kBytes || rules_[first.index].alternatives.size() != 1) return;
    const GrammarPiece& inner = rules_[first.index].alternatives[0];
    symbol_count_ += inner.size();
    reversed.pop_back();
    reversed.insert(reversed.end(), inner.rbegin(), inner.rend());
  }
}

// Pieces are reversed: their first symbols stand at the end, where they are taken away.
GrammarPiece GrammarBuilder::factor(std::vector<GrammarPiece> reversed, int depth) {
  constexpr int kDepthMax = 200;
  std::sort(reversed.begin(), reversed.end());
  reversed.erase(std::unique(reversed.begin(), reversed.end()), reversed.end());
  std::vector<std::vector<GrammarPiece>> groups;
  std::map<GrammarSymbol, size_t> group_of;
  bool may_be_empty = false;
  for (GrammarPiece& piece : reversed) {
    // A single one stays as it is: there is nothing to share.
    if (reversed.size() > 1) open_front(piece);
    if (piece.empty()) {
      may_be_empty = true;
      continue;
    }
    const auto [group, is_new] = group_of.try_emplace(piece.back(), groups.size());
    if (is_new) groups.emplace_back();
    groups[group->second].push_back(std::move(piece));
  }
  std::vector<GrammarPiece> alternatives;
  for (std::vector<GrammarPiece>& group : groups) {
    if (group.size() > 1 && depth < kDepthMax && !too_large()) {
      const GrammarPiece shared = take_shared(group);
      alternatives.push_back(join({shared, factor(std::move(group), depth + 1)}));
      continue;
    }
    for (GrammarPiece& piece : group) alternatives.emplace_back(piece.rbegin(), piece.rend());
  }
  if (may_be_empty) alternatives.emplace_back();
  if (alternatives.size() == 1) return alternatives[0];
  return choice(alternatives);
}

// The symbols with which all begin, which are taken away.
GrammarPiece GrammarBuilder::take_shared(std::vector<GrammarPiece>& reversed) {
  GrammarPiece shared;
  const auto begin_alike = [&] {
    return std::all_of(reversed.begin(), reversed.end(), [&](const GrammarPiece& piece) {
      return !piece.empty() && piece.back() == reversed[0].back();
    });
  };
  while (begin_alike() && !too_large()) {
    shared.push_back(reversed[0].back());
    for (GrammarPiece& piece : reversed) {
      piece.pop_back();
      open_front(piece);
    }
  }
  return shared;
}

GrammarPiece GrammarBuilder::as_one(const GrammarPiece& piece) {
  return piece.size() == 1 ? piece : choice({piece});
}

GrammarPiece GrammarBuilder::optional(const GrammarPiece& piece) { return choice({piece, {}}); }

GrammarPiece GrammarBuilder::repeat(const GrammarPiece& piece, int64_t min, int64_t max) {
  const auto most = static_cast<int64_t>(kSymbolsMax);
  if (min > most || max > most) return note_too_large(), GrammarPiece();
  const GrammarPiece one = as_one(piece);
  GrammarPiece tail;
  if (max == kNoLimit) {
    GrammarPiece& endless = endless_[one[0]];
    if (endless.empty() && !too_large()) {
      endless = declare();
      add(endless, join({one, endless}));
      add(endless, {});
    }
    tail = endless;
  }
  for (int64_t count = min; count < max && !too_large(); ++count) {
    tail = optional(join({one, tail}));
  }
  symbol_count_ += static_cast<size_t>(min);
  if (too_large()) return {};
  GrammarPiece all;
  for (int64_t i = 0; i < min; ++i) all.push_back(one[0]);
  return as_one(join({all, tail}));
}

GrammarPiece GrammarBuilder::one_of(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return one_of_sorted(texts, 0);
}

// What follows the first `depth` bytes, which all have in common. A run that all share is one
// piece: depth of recursion is bounded by the number of texts, and by kDeepest.
GrammarPiece GrammarBuilder::one_of_sorted(std::span<const std::string> texts, size_t depth) {
  constexpr size_t kDeepest = size_t{1} << 12;
  if (too_large() || depth > kDeepest) return note_too_large(), GrammarPiece();
  if (texts.size() == 1) return literal(std::string_view(texts[0]).substr(depth));
  std::vector<GrammarPiece> alternatives;
  for (size_t first = 0; first < texts.size();) {
    if (texts[first].size() == depth) {
      alternatives.emplace_back();
      ++first;
      continue;
    }
    size_t last = first + 1;
    while (last < texts.size() && texts[last][depth] == texts[first][depth]) ++last;
    size_t shared = depth + 1;  // of the first and the last, and so of all between
    const std::string& low = texts[first];
    const std::string& high = texts[last - 1];
    while (shared < low.size() && shared < high.size() && low[shared] == high[shared]) ++shared;
    alternatives.push_back(join({literal(std::string_view(low).substr(depth, shared - depth)),
                                 one_of_sorted(texts.subspan(first, last - first), shared)}));
    first = last;
  }
  return choice(alternatives);
}

GrammarPiece GrammarBuilder::join(std::initializer_list<GrammarPiece> pieces) {
  GrammarPiece all;
  for (const GrammarPiece& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
  return all;
}

// --- what makes a grammar one that can be matched

// Rules that can match something (may_be_empty: nothing at all), by a count of what each
// alternative still waits for.
std::vector<bool> GrammarBuilder::find_rules(bool may_be_empty) const {
  struct OpenAlternative {
    uint32_t rule;
    size_t left;
  };
  std::vector<OpenAlternative> waiting;
  std::vector<std::vector<uint32_t>> waits_for(rules_.size());  // [rule]: alternatives
  std::vector<bool> found(rules_.size(), false);
  std::vector<uint32_t> fresh;
  const auto find = [&](uint32_t rule) {
    if (!found[rule]) fresh.push_back(rule);
    found[rule] = true;
  };
  for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
    for (const GrammarPiece& alternative : rules_[rule].alternatives) {
      const bool never = std::any_of(alternative.begin(), alternative.end(), [&](auto symbol) {
        return symbol.kind == Kind::kBytes && (may_be_empty || sets_[symbol.index].empty());
      });
      if (never) continue;
      size_t left = 0;
      for (const GrammarSymbol& symbol : alternative) {
        if (symbol.kind == Kind::kBytes) continue;
        ++left;
        waits_for[symbol.index].push_back(static_cast<uint32_t>(waiting.size()));
      }
      waiting.push_back({rule, left});
      if (left == 0) find(rule);
    }
  }
  while (!fresh.empty()) {
    const uint32_t rule = fresh.back();
    fresh.pop_back();
    for (uint32_t index : waits_for[rule]) {
      if (--waiting[index].left == 0) find(waiting[index].rule);
    }
  }
  return found;
}

// Takes away alternatives that nothing can match: what is left can always be brought to its end.
void GrammarBuilder::prune() {
  const std::vector<bool> can_end = find_rules(false);
  for (Rule& rule : rules_) {
    std::erase_if(rule.alternatives, [&](const GrammarPiece& alternative) {
      return std::any_of(alternative.begin(), alternative.end(), [&](auto symbol) {
        return symbol.kind == Kind::kBytes ? sets_[symbol.index].empty() : !can_end[symbol.index];
      });
    });
  }
}

Status GrammarBuilder::check_left_recursion() const {
  const std::vector<bool> may_be_empty = find_rules(true);
  std::vector<std::vector<LeftEdge>> edges(rules_.size());
  for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
    for (const GrammarPiece& alternative : rules_[rule].alternatives) {
      for (size_t i = 0; i < alternative.size(); ++i) {
        if (alternative[i].kind == Kind::kBytes) break;
        edges[rule].push_back({alternative[i].index, i + 1 < alternative.size()});
        if (!may_be_empty[alternative[i].index]) break;
      }
    }
  }
  if (!LeftCycles(edges).has_growing()) return ok_status();
  return invalid_argument(
      "a rule is left-recursive: it may begin with itself; write it as a repetition");
}

// Classes of bytes: all are one until a set tells some of them apart.
void GrammarBuilder::find_classes(Grammar& grammar) const {
  grammar.class_of_.fill(0);
  int32_t count = 1;
  for (const ByteSet& set : sets_) {
    // What each class becomes, by whether the set has its bytes; 0: not met yet.
    std::array<uint16_t, 512> parts{};
    uint16_t fresh = 0;
    for (size_t byte = 0; byte < 256; ++byte) {
      const size_t part = grammar.class_of_[byte] * 2u + set.has(static_cast<uint8_t>(byte));
      if (parts[part] == 0) parts[part] = ++fresh;
      grammar.class_of_[byte] = static_cast<uint8_t>(parts[part] - 1);
    }
    count = fresh;
  }
  grammar.class_count_ = count;
  for (const ByteSet& set : sets_) {
    ByteSet classes;
    for (int byte = 0; byte < 256; ++byte) {
      if (set.has(static_cast<uint8_t>(byte))) {
        classes.add(grammar.class_of_[static_cast<size_t>(byte)]);
      }
    }
    grammar.class_sets_.push_back(classes);
  }
}

void GrammarBuilder::flatten(Grammar& grammar) const {
  const auto write = [&](const GrammarPiece& piece) {
    for (const GrammarSymbol& symbol : piece) {
      grammar.symbols_.push_back(symbol.kind == Kind::kRule ? 2 * symbol.index + 1
                                                            : 2 * (symbol.index + 1));
    }
    grammar.symbols_.push_back(0);
  };
  write({{Kind::kRule, static_cast<uint32_t>(rules_.size() - 1)}});
  for (const Rule& rule : rules_) {
    grammar.first_.push_back(static_cast<uint32_t>(grammar.alternatives_.size()));
    for (const GrammarPiece& alternative : rule.alternatives) {
      grammar.alternatives_.push_back(static_cast<uint32_t>(grammar.symbols_.size()));
      write(alternative);
    }
  }
  grammar.first_.push_back(static_cast<uint32_t>(grammar.alternatives_.size()));
}

Result<std::shared_ptr<const Grammar>> GrammarBuilder::finish(const GrammarPiece& root) {
  const GrammarPiece whole = declare();
  add(whole, root);
  if (too_large()) {
    return invalid_argument(
        fmt::format("it is too large: its grammar would have more than {} symbols", kSymbolsMax));
  }
  prune();
  if (rules_.back().alternatives.empty()) return invalid_argument("nothing can match it");
  HR_RETURN_IF_ERROR(check_left_recursion());
  std::shared_ptr<Grammar> grammar(new Grammar());
  find_classes(*grammar);
  flatten(*grammar);
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

}  // namespace headrace
