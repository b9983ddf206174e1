// The forms that a model's requests have asked for lately, ready for the engine: a form that comes
// again costs nothing, and finds its states worked out.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/token_constraint.h"
#include "text/grammar/answer_grammar.h"
#include "text/grammar/token_trie.h"
#include "text/tokenizer.h"

namespace headrace {

// Any thread, but not the engine's: a form takes milliseconds.
class FormCache {
 public:
  // The tokenizer outlives it. `marks`, ascending: control tokens that a dialect's forms may have.
  // `ends_in_time`: as of make_grammar_constraint().
  FormCache(const Tokenizer& tokenizer, std::vector<TokenId> marks, bool ends_in_time)
      : tokenizer_(tokenizer), marks_(std::move(marks)), ends_in_time_(ends_in_time) {}

  // kInvalidArgument with the field at fault. REQUIRES: !plan.is_free()
  Result<std::shared_ptr<const TokenConstraint>> find(const AnswerPlan& plan);

 private:
  static constexpr size_t kFormsMax = 16;
  static constexpr size_t kBytesMax = size_t{128}
                                      << 20;  // of all, of which the latest may be larger
  using Entry = std::pair<std::string, std::shared_ptr<const TokenConstraint>>;

  std::shared_ptr<const TokenTrie> trie();
  // Moves those that are too many. REQUIRES: mutex_
  void forget(std::list<Entry>& forgotten);

  const Tokenizer& tokenizer_;
  const std::vector<TokenId> marks_;
  const bool ends_in_time_;
  std::once_flag once_;
  std::shared_ptr<const TokenTrie> trie_;  // made for the first form
  std::mutex mutex_;
  std::list<Entry> forms_;  // by last use, the latest first
};

}  // namespace headrace
