// How a family's tokenizer works, as data: the steps between a text and the pieces that its model
// encodes, and what its tokens spell. A GGUF file names its family (tables in
// tokenizer_recipe.cc), a tokenizer.json says it step by step (tokenizer_json.h).
//
// A text goes this way: user-defined and control tokens are cut out (special_matcher.h); what lies
// between goes through the normalisers, then the pre-tokenizers, each of which cuts the pieces of
// the one before; the model encodes each piece.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "text/unicode.h"
#include "text/vocab.h"

namespace headrace {

// A literal, or a regular expression in PCRE2's syntax (see text_pattern.h).
struct PatternSource {
  std::string text;
  bool is_regex = false;
};

// --- Normalisers: text -> text.

struct Lowercase {};
struct StripAccents {};  // leaves out marks (general category M)
// BERT's: what is no text goes, any white space becomes a space.
struct CleanText {};
struct SpaceIdeographs {};       // a space on each side of a CJK ideograph: each is a word
struct StripNonspacingMarks {};  // leaves out general category Mn
struct StripSpace {              // Unicode's White_Space at the ends
  bool left = true, right = true;
};
struct Replace {
  PatternSource pattern;
  std::string content;
};
struct Prepend {  // to a text that is not empty and does not go on behind bytes that are no UTF-8
  std::string text;
};
// SentencePiece's compiled table of replacements (chars_map.h).
struct PrecompiledCharsMap {
  std::string blob;
  bool by_grapheme = false;  // as HF tokenizers applies it
};
using NormalizerStep =
    std::variant<UnicodeForm, Lowercase, StripAccents, CleanText, SpaceIdeographs,
                 StripNonspacingMarks, StripSpace, Replace, Prepend, PrecompiledCharsMap>;

// --- Pre-tokenizers: pieces -> more pieces.

enum class SplitBehavior : uint8_t {
  kIsolated,            // matches and gaps are pieces
  kRemoved,             // gaps are pieces
  kMergedWithPrevious,  // a match ends a piece
  kMergedWithNext,      // a match begins a piece
  kContiguous,          // as kIsolated, runs of matches together
};
struct Split {
  PatternSource pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;  // what is between the matches counts as match
};
enum class PrependScheme : uint8_t { kNever, kFirst, kAlways };
// Where a text that goes through the steps stands in what is encoded.
enum class TextPlace : uint8_t {
  kStart,        // it begins the whole text
  kBehindToken,  // a special token is in front of it
  kBehindBytes,  // it goes on behind bytes that are no UTF-8: nothing is put in front of it
};

// Spaces are spelled as `spelling`, one is put in front by `scheme`: kFirst = of the whole text.
struct SpaceSpelling {
  std::string spelling;
  PrependScheme scheme = PrependScheme::kNever;
  bool split = false;  // before each spelling
};
struct PrefixSpace {};  // a space in front of each piece that does not begin with one
using PreTokenizerStep = std::variant<Split, SpaceSpelling, PrefixSpace>;

// --- Models.

enum class TokenModelKind : uint8_t {
  kByteBpe,       // merges over bytes, spelled in GPT-2's alphabet (bpe.h)
  kCharacterBpe,  // merges over characters (bpe.h)
  kScoreBpe,      // SentencePiece's (score_bpe.h)
  kUnigram,       // unigram.h
  kWordPiece,     // wordpiece.h
  kLongestMatch,  // longest_match.h
};
struct TokenModelOptions {
  TokenModelKind kind = TokenModelKind::kByteBpe;
  bool ignore_merges = false;  // a piece that is a token needs no merges
  bool byte_fallback = false;  // unknown characters become byte tokens
  bool use_unk = false;        // what is unknown becomes the unknown token, else nothing
  bool fuse_unk = false;       // neighbouring unknown characters become one unknown token
  // kWordPiece
  std::string continuing_prefix;  // of tokens that go on with a word
  int32_t word_chars_max = 100;   // a longer word is the unknown token
};

// --- Token -> text.

struct TokenSpelling {
  bool byte_letters = false;  // GPT-2's alphabet
  // A token that begins with this goes on with a word and stands without it; any other has a space
  // in front. Empty: neither.
  std::string continuing_prefix;
  // In order, in every token but control tokens; only where byte_letters is false.
  std::vector<std::pair<std::string, std::string>> replacements;
  // Spaces that the tokenizer puts in front of a text and that are taken away from its start.
  int leading_spaces = 0;
};

struct TokenizerRecipe {
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;
  TokenModelOptions model;
  TokenSpelling spelling;
};

// The recipe of a GGUF file, by vocab.model and vocab.pre. kUnsupported for names that are not
// known: a wrong split gives wrong ids without any other sign.
Result<TokenizerRecipe> recipe_by_name(const Vocab& vocab);

// Whether files of that family mean add_bos where they do not say so.
bool adds_bos_by_default(std::string_view model, std::string_view pre);

// BERT's cuts: at white space, which goes, and around punctuation.
std::vector<PreTokenizerStep> bert_pre_tokenizers();
// A character of punctuation, as BERT has it.
std::string_view punctuation_pattern();

// The regular expression of GPT-2, which tokenizer.json's ByteLevel means, too.
std::string_view gpt2_pattern();

}  // namespace headrace
