// A grammar as a pushdown automaton that follows all readings of a text at once, made deterministic
// as far as texts lead.
//
// A reading is a stack: a place in a rule, and the places to go on at behind it. Stacks share their
// lower parts, so that each is one number, and a state is a sorted list of them. States are kept
// with where each class of bytes leads, and with the tokens that may come next, so that answers of
// one form work out each state once, whoever asked for it. (Sets of stacks: Tomita 1985; states
// made as they are needed: Thompson 1968.)
//
// Work and memory are bounded whatever the grammar is: stacks have a height, a state a number of
// stacks, a call an amount of work, and a generation of states its bytes, behind which a new one
// begins.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/least_tokens.h"
#include "text/grammar/token_trie.h"

namespace headrace {

// States of one grammar, of which more are added and none goes. Under the automaton's mutex.
class GrammarStates {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;  // no reading is left

  // A stack: where it goes on, and the stack below.
  struct Stack {
    Grammar::Position at;
    uint32_t below;
  };
  static constexpr uint32_t kBottom = UINT32_MAX;

  // `least`: as least_tokens() finds them; empty: nobody asks. Both outlive this.
  GrammarStates(const Grammar& grammar, std::span<const uint32_t> least);

  // Of the text so far: nothing.
  State start();
  // kDead also where the readings are too many, or `work` of the call is used up.
  State step(State state, uint8_t byte);
  bool can_end(State state) const { return states_[state].can_end; }
  // The one byte that may follow; none: the text may end there, there is a choice, or there are too
  // many readings to look at.
  std::optional<uint8_t> only_byte(State state);

  // Finds the tokens that may follow; false: the work was too much. Of an automaton it is always
  // the same tree.
  bool find_tokens(State state, const TokenTrie& trie);
  // Both of a state whose tokens were found.
  void fill(State state, std::span<uint32_t> allowed) const;
  bool has_token(State state) const { return states_[state].has_token; }
  // The tokens that a text needs at least from there on; kNeverEnds and more: nobody knows.
  uint32_t least(State state) const { return states_[state].least; }
  // As fill(), of the tokens behind which `least` or fewer can end the text. REQUIRES: it was made
  // with least tokens
  void fill_within(State state, const TokenTrie& trie, uint32_t least, std::span<uint32_t> allowed);

  // The same state of another generation. `from` is not changed.
  State take_over(const GrammarStates& from, State state);

  // From here on, calls have so much work.
  void begin_call() { work_left_ = kWorkMax; }
  bool worked_too_much() const { return work_left_ < 0; }
  size_t bytes() const { return bytes_; }
  bool is_full() const { return bytes_ > bytes_max_; }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  static constexpr int32_t kHeightMax = 400;              // of stacks
  static constexpr size_t kStacksMax = 4096;              // of a state
  static constexpr size_t kOnlyStacksMax = 64;            // of one whose only byte is asked for
  static constexpr int64_t kWorkMax = 400'000;            // places looked at
  static constexpr size_t kBytesMax = size_t{6} << 20;    // of a generation,
  static constexpr size_t kBytesMost = size_t{64} << 20;  // or as many as its first masks need

  static constexpr int16_t kNotLooked = -2, kNoOnlyByte = -1;
  struct Row {
    std::vector<uint32_t> stacks;  // ascending
    bool can_end = false;
    bool tokens_found = false, has_token = false;
    int16_t only_byte = kNotLooked;
    uint32_t least = kNeverEnds;  // tokens to the end of a text,
    uint32_t most_after = 0;   // and behind that of the tokens that may come next which needs most
    std::vector<TokenId> few;  // the tokens that may come next,
    std::vector<uint32_t> words;  // or a bit each
    bool nearer_found = false;
    std::vector<std::pair<TokenId, uint32_t>> nearer;  // those that need fewer, and how many
  };
  struct Hash {
    size_t operator()(const std::vector<uint32_t>& stacks) const;
  };

  // Where a class of bytes leads; kUnknown: not worked out.
  State& next(State state, uint8_t byte_class) { return next_[state * class_count_ + byte_class]; }
  int16_t find_only_byte(const Row& row) const;
  uint32_t stack(Grammar::Position at, uint32_t below);
  void expand(Grammar::Position at, uint32_t below);
  State finish_state();
  void keep_tokens(Row& row, std::vector<uint32_t> words);
  // Of each node that tokens end at: the place behind it. False: the work was too much.
  template <class Take>
  bool walk(State state, const TokenTrie& trie, const Take& take);
  void find_nearer(State state, const TokenTrie& trie);

  const Grammar& grammar_;
  const std::span<const uint32_t> least_tokens_;  // [positions], or none
  const size_t class_count_;
  std::vector<Stack> stacks_;
  std::vector<uint16_t> heights_;
  std::vector<uint32_t> leasts_;  // [stacks]: tokens to the end of a text
  std::unordered_map<uint64_t, uint32_t> stack_index_;
  std::vector<Row> states_;
  std::vector<State> next_;  // [states, classes]
  std::unordered_map<std::vector<uint32_t>, State, Hash> state_index_;
  size_t bytes_ = 0, bytes_max_ = kBytesMax;
  int64_t work_left_ = kWorkMax;

  // Of the state under way.
  std::vector<uint32_t> found_;  // stacks that take a byte
  bool can_end_ = false;
  std::vector<Stack> to_expand_;
  std::unordered_map<uint64_t, bool> expanded_;
};

class GrammarAutomaton;

// Where one text is. One thread at a time.
class GrammarPlace {
 public:
  explicit GrammarPlace(std::shared_ptr<GrammarAutomaton> automaton);

  // False: no text of the grammar goes on like this; from here on the place is dead.
  bool accept(std::string_view bytes);
  bool can_end();
  // What must follow, up to where there is a choice, the end of a text, or so many bytes.
  std::string forced(size_t bytes_max);
  bool dead() const { return dead_; }
  void kill() { dead_ = true; }
  // A bit for each token that may follow. Tokens that end a text are those of the trie where
  // can_end(). All 0 where dead. Where so many tokens and one that ends them are just enough to end
  // the text, only those that leave enough; where they are too few, all that may follow.
  void fill(const TokenTrie& trie, int32_t tokens_left, std::span<uint32_t> allowed);
  // Whether any of the trie's tokens may follow.
  bool can_go_on(const TokenTrie& trie);

 private:
  // Both REQUIRE the automaton's mutex.
  void catch_up();
  bool find_tokens(const TokenTrie& trie);

  std::shared_ptr<GrammarAutomaton> automaton_;
  std::shared_ptr<GrammarStates> states_;
  GrammarStates::State state_ = 0;
  bool dead_ = false;
};

// Any thread.
class GrammarAutomaton {
 public:
  // `least`: as least_tokens() finds them; empty: no text is ended for want of tokens.
  explicit GrammarAutomaton(std::shared_ptr<const Grammar> grammar,
                            std::vector<uint32_t> least = {});
  // Of the states that it keeps.
  size_t bytes() const;

 private:
  friend class GrammarPlace;
  const std::shared_ptr<const Grammar> grammar_;
  const std::vector<uint32_t> least_;
  mutable std::mutex mutex_;
  std::shared_ptr<GrammarStates> states_;  // the generation that new states go to
};

}  // namespace headrace
