// What a tokenizer needs to know of a model file, as one plain value. The weights folder's readers
// fill it; text knows no file format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace headrace {

// Numbered as GGUF's tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never made from user text unless special parsing is asked for
  kUserDefined = 4,  // matched in any text, before everything else
  kUnused = 5,
  kByte = 6,
};

// How the text of a special token is matched, as tokenizer.json says it.
struct AddedTokenFlags {
  bool lstrip = false;       // takes in the white space in front of it
  bool rstrip = false;       // and behind it
  bool single_word = false;  // only where no word character touches it
  bool normalized = false;   // matched in the normalised text
};
struct AddedToken {
  TokenId id;
  AddedTokenFlags flags;
};

// What stands around two texts that are read together ([CLS] a [SEP] b [SEP]).
struct PairFrame {
  std::vector<TokenId> front, middle, back;
  bool second_type = false;  // the second text and what is behind it have the second token type

  size_t size() const { return front.size() + middle.size() + back.size(); }
};

struct TokenizerRecipe;

struct Vocab {
  // The family's names, as GGUF has them (table in tokenizer_recipe.cc).
  std::string model;  // "gpt2" = byte-level BPE, "llama" = SentencePiece's BPE,
                      // "t5" = SentencePiece's unigram model, "rwkv" = RWKV's, greedy,
                      // "bert" = WordPiece: tokens that go on with a word begin with "##"
  std::string pre;    // pre-tokenizer: "smollm", "qwen2"
  // What a tokenizer.json says; where it is there, model and pre are for people only.
  std::shared_ptr<const TokenizerRecipe> recipe;

  std::vector<std::string_view> tokens;  // by id, as the file spells them
  std::vector<TokenKind> kinds;          // by id; empty = all normal
  std::vector<double> scores;            // by id; empty = none
  std::vector<AddedToken> added;         // by id, ascending: special tokens that have flags
  // Merge rules by rank, in one of two spellings: "left right", or two texts, which may hold
  // spaces.
  std::vector<std::string_view> merges;
  std::vector<std::pair<std::string_view, std::string_view>> merge_pairs;
  TokenId bos = -1, eos = -1, unk = -1, pad = -1;  // -1 = none
  std::vector<TokenId> end_ids;                    // every id that ends generation, ascending
  bool add_bos = false;                            // in front of a text
  bool add_eos = false;                            // behind it
  std::optional<PairFrame> pair;                   // empty: the file has no form of pairs
  bool add_space_prefix = false;
  std::string charsmap;                 // SentencePiece's compiled normaliser; empty = none
  bool remove_extra_spaces = false;     // runs of spaces become one, none at the ends
  bool lowercase = true;                // of "bert": case and accents are lost
  std::string chat_template;            // empty = none
  std::shared_ptr<const void> storage;  // keeps the memory behind the views alive

  size_t merge_count() const { return merges.size() + merge_pairs.size(); }
  // The kind of `id`. REQUIRES: 0 <= id < tokens.size()
  TokenKind kind(TokenId id) const {
    return kinds.empty() ? TokenKind::kNormal : kinds[static_cast<size_t>(id)];
  }
};

// Adds to end_ids: eos, and every control token whose text is a known end-of-turn or end-of-text
// mark (the list is in vocab.cc). Files often name only one of them as eos, while the model may
// close a turn with another. Sorts end_ids and drops repeats.
void add_known_end_ids(Vocab& vocab);

// Whether all tokens from this id on were added to the model's own (marks, or no tokens at all).
bool has_only_added_tokens_from(const Vocab& vocab, size_t first);

// Leaves the first `count` tokens, and forgets the ids behind them wherever they are named.
void cut_vocab(Vocab& vocab, size_t count);

// Sizes agree and every id is inside the vocabulary.
Status validate(const Vocab& vocab);

}  // namespace headrace
