#include "text/tokenizer_recipe.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/core.h>

#include "text/regex_syntax.h"

namespace headrace {
namespace {

// Unicode's White_Space. Not \s: without UCP that is ASCII only, and with UCP PCRE2 adds U+180E.
#define HR_SPACE "\\x09-\\x0d\\x{85}\\p{Z}"

// How most patterns end: line ends with the spaces before them; of other spaces all but the last,
// which goes with the word behind it; spaces at the end.
#define HR_LINES "[" HR_SPACE "]*[\\r\\n]+"
#define HR_SPACES "[" HR_SPACE "]+(?![^" HR_SPACE "])|[" HR_SPACE "]+"
#define HR_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define HR_WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define HR_SIGNS " ?[^" HR_SPACE "\\p{L}\\p{N}]+"
// Words whose capitals come first, with the apostrophe forms that `suffix` says.
#define HR_CASED_WORDS(suffix)                                                                \
  "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"                               \
  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" suffix                                                     \
  "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]" \
  "*" suffix

// "Language Models are Unsupervised Multitask Learners" (Radford et al. 2019), encoder.py. The last
// alternative of the original, \s+, is there so that each run of spaces is taken whole.
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" HR_SIGNS "|" HR_SPACES;
constexpr const char* kDigit = "\\p{N}";
// Falcon's, as llama.cpp has them.
constexpr const char* kFalconSigns = "[\\p{P}$+<=>^~|`]+";
constexpr const char* kFalconDigits = "[0-9][0-9][0-9]";
constexpr const char* kThreeDigits = "\\p{N}{1,3}";
// The others are those of the models' published tokenizer.json files.
constexpr const char* kLlama3 =
    HR_CONTRACTIONS "|" HR_WORD "|\\p{N}{1,3}|" HR_SIGNS "[\\r\\n]*|" HR_LINES "|" HR_SPACES;
constexpr const char* kQwen2 =
    HR_CONTRACTIONS "|" HR_WORD "|\\p{N}|" HR_SIGNS "[\\r\\n]*|" HR_LINES "|" HR_SPACES;
constexpr const char* kQwen35 =
    HR_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" HR_SPACE
                    "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" HR_LINES "|" HR_SPACES;
constexpr const char* kTekken =
    HR_CASED_WORDS("") "|\\p{N}|" HR_SIGNS "[\\r\\n/]*|" HR_LINES "|" HR_SPACES;
constexpr const char* kGpt4o =
    HR_CASED_WORDS(HR_CONTRACTIONS "?") "|\\p{N}{1,3}|" HR_SIGNS "[\\r\\n/]*|" HR_LINES
                                        "|" HR_SPACES;
constexpr const char* kBailing =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^" HR_SPACE
    "\\p{L}\\p{N}]++[\\r\\n]*|[" HR_SPACE "]*[\\r\\n]|" HR_SPACES;
constexpr const char* kSeedCoder = HR_CONTRACTIONS "|" HR_WORD "|\\p{N}| ?[^" HR_SPACE
                                                   "\\p{L}\\p{N}\\r\\n]+|" HR_LINES "|" HR_SPACES;

constexpr const char* kDeepSeek3Kana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr const char* kDeepSeek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" HR_LINES
    "|" HR_SPACES;

// Youtu's words, apart from scripts that it takes as runs.
constexpr const char* kYoutuRuns =
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr const char* kYoutu =
    HR_CASED_WORDS(HR_CONTRACTIONS "?") "|\\p{N}|" HR_SIGNS "[\\r\\n/]*|" HR_LINES "|" HR_SPACES;

// Of Kimi K2's code, whose classes of letters leave Han out.
#define HR_UPPER "(?:(?!\\p{sc:Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])"
#define HR_LOWER "(?:(?!\\p{sc:Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])"
#define HR_BEFORE "|[^\\r\\n\\p{L}\\p{N}]?"
constexpr const char* kKimiK2 =
    "\\p{sc:Han}+" HR_BEFORE HR_UPPER "*" HR_LOWER "+" HR_CONTRACTIONS "?" HR_BEFORE HR_UPPER
    "+" HR_LOWER "*" HR_CONTRACTIONS "?|\\p{N}{1,3}|" HR_SIGNS "[\\r\\n]*|" HR_LINES "|" HR_SPACES;
#undef HR_BEFORE
#undef HR_LOWER
#undef HR_UPPER

constexpr const char* kLineEnd = "[\\r\\n]";
constexpr const char* kDeepSeekHan = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr const char* kDeepSeekCoderWord = "[" HR_SPACE "]?\\p{L}+";
constexpr const char* kDeepSeekCoderSigns = "[" HR_SPACE "]?\\p{P}+";
constexpr const char* kDeepSeekLlmWord =
    "[" HR_SPACE
    "]?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec"
    "\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b"
    "\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787"
    "\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr const char* kDeepSeekLlmSigns =
    "[" HR_SPACE "]?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
// \s+$ of the original, which would look at each space of a long run in turn.
constexpr const char* kSpacesAtEnd = "(?<![" HR_SPACE "])[" HR_SPACE "]++\\z";
constexpr const char* kDigits = "\\p{N}+";
constexpr const char* kBloom =
    " ?[^(" HR_SPACE "|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+";
// Of files from before there were names.
constexpr const char* kOldSigns = "[\\p{P}$+<=>^~|]+";

#undef HR_CASED_WORDS
#undef HR_SIGNS
#undef HR_WORD
#undef HR_CONTRACTIONS
#undef HR_SPACES
#undef HR_LINES
#undef HR_SPACE

struct PreRow {
  std::string_view name;
  std::array<const char*, 6> stages = {};  // nullptr = unused
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};
// tokenizer.ggml.pre of byte-level BPE.
constexpr PreRow kPreRows[] = {
    {"gpt-2", {kGpt2}},
    {"gpt2", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"mpt", {kGpt2}},
    {"olmo", {kGpt2}},
    {"mellum", {kGpt2}},
    {"mellum2", {kDigit, kGpt2}},
    {"jais", {kGpt2}},
    {"default", {kOldSigns, kGpt2, kDigits, kFalconDigits}},
    {"bloom", {kBloom}},
    {"gpt3-finnish", {kBloom}},
    {"falcon", {kFalconSigns, kGpt2, kFalconDigits}},
    {"smollm", {kDigit, kGpt2}},
    {"starcoder", {kDigit, kGpt2}},
    {"refact", {kDigit, kGpt2}},
    {"command-r", {kDigit, kGpt2}},
    {"codeshell", {kDigit, kGpt2}},
    {"exaone", {kDigit, kGpt2}},
    {"exaone4", {kGpt2}},
    {"minerva-7b", {kDigit, kGpt2}},
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"falcon3", {kLlama3}, true, true},
    {"falcon-h1", {kLlama3}, true, true},
    {"pixtral", {kLlama3}, true, true},
    {"lfm2", {kLlama3}, true, true},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"chatglm-bpe", {kLlama3}},
    {"glm4", {kLlama3}},
    {"qwen2", {kQwen2}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"hunyuan", {kQwen2}},
    {"megrez", {kQwen2}},
    {"solar-open", {kQwen2}},
    {"grok-2", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"tekken", {kTekken}, true, true},
    {"gpt-4o", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"minimax-m2", {kGpt4o}},
    {"kanana2", {kGpt4o}},
    {"bailingmoe", {kBailing}},
    {"seed-coder", {kSeedCoder}},
    {"deepseek-v3", {kThreeDigits, kDeepSeek3Kana, kDeepSeek3}},
    {"hunyuan-dense", {kThreeDigits, kDeepSeek3Kana, kDeepSeek3}},
    {"joyai-llm", {kThreeDigits, kDeepSeek3Kana, kDeepSeek3}},
    {"kimi-k2", {kKimiK2}, true},
    {"youtu", {kYoutuRuns, kYoutu}, true},
    {"deepseek-coder", {kLineEnd, kDeepSeekCoderWord, kDeepSeekCoderSigns, kDeepSeekHan, kDigit}},
    {"deepseek-llm",
     {kLineEnd, kDeepSeekLlmWord, kDeepSeekLlmSigns, kSpacesAtEnd, kDeepSeekHan, kDigits}},
};

constexpr std::string_view kSpaceLetter = "\xE2\x96\x81";  // U+2581

const PreRow* find_pre(std::string_view name) {
  const auto row = std::find_if(std::begin(kPreRows), std::end(kPreRows),
                                [&](const PreRow& candidate) { return candidate.name == name; });
  return row == std::end(kPreRows) ? nullptr : row;
}

Result<TokenizerRecipe> byte_bpe_recipe(const Vocab& vocab) {
  if (const PreRow* row = find_pre(vocab.pre)) {
    TokenizerRecipe recipe;
    if (vocab.add_space_prefix) recipe.pre_tokenizers.push_back(PrefixSpace{});
    for (const char* stage : row->stages) {
      if (stage != nullptr) recipe.pre_tokenizers.push_back(Split{.pattern = {stage, true}});
    }
    recipe.model = {.kind = TokenModelKind::kByteBpe, .ignore_merges = row->ignore_merges};
    recipe.spelling.byte_letters = true;
    return recipe;
  }
  std::string known;
  for (const PreRow& row : kPreRows) known += (known.empty() ? "" : ", ") + std::string(row.name);
  return unsupported(
      fmt::format("pre-tokenizer '{}' is not supported (known: {})", vocab.pre, known), "pre");
}

TokenizerRecipe sentence_piece_recipe(const Vocab& vocab, TokenModelOptions model) {
  TokenizerRecipe recipe;
  if (!vocab.charsmap.empty()) recipe.normalizers.push_back(PrecompiledCharsMap{vocab.charsmap});
  if (vocab.remove_extra_spaces) {
    recipe.normalizers.push_back(Replace{{" {2,}", true}, " "});
    recipe.normalizers.push_back(Replace{{"\\A | \\z", true}, ""});
  }
  if (vocab.add_space_prefix) recipe.normalizers.push_back(Prepend{" "});
  recipe.pre_tokenizers.push_back(SpaceSpelling{std::string(kSpaceLetter)});
  recipe.model = model;
  recipe.spelling.replacements = {{std::string(kSpaceLetter), " "}};
  recipe.spelling.leading_spaces = vocab.add_space_prefix ? 1 : 0;
  return recipe;
}

Result<TokenizerRecipe> score_bpe_recipe(const Vocab& vocab) {
  return sentence_piece_recipe(vocab, {.kind = TokenModelKind::kScoreBpe});
}

Result<TokenizerRecipe> unigram_recipe(const Vocab& vocab) {
  return sentence_piece_recipe(
      vocab, {.kind = TokenModelKind::kUnigram, .byte_fallback = true, .fuse_unk = true});
}

// Merges of characters over all of a text, whose spaces are spelled as letters.
Result<TokenizerRecipe> gemma4_recipe(const Vocab&) {
  TokenizerRecipe recipe;
  recipe.pre_tokenizers.push_back(SpaceSpelling{std::string(kSpaceLetter)});
  recipe.model = {.kind = TokenModelKind::kCharacterBpe,
                  .byte_fallback = true,
                  .use_unk = true,
                  .fuse_unk = true};
  recipe.spelling.replacements = {{std::string(kSpaceLetter), " "}};
  return recipe;
}

Result<TokenizerRecipe> word_piece_recipe(const Vocab& vocab) {
  TokenizerRecipe recipe;
  recipe.normalizers = {CleanText{}, SpaceIdeographs{}};
  if (vocab.lowercase) {
    recipe.normalizers.insert(recipe.normalizers.end(),
                              {UnicodeForm::kNfd, StripNonspacingMarks{}, Lowercase{}});
  }
  recipe.pre_tokenizers = bert_pre_tokenizers();
  recipe.model = {.kind = TokenModelKind::kWordPiece, .continuing_prefix = "##"};
  recipe.spelling.continuing_prefix = "##";
  recipe.spelling.leading_spaces = 1;
  return recipe;
}

Result<TokenizerRecipe> longest_match_recipe(const Vocab&) {
  TokenizerRecipe recipe;
  recipe.model = {.kind = TokenModelKind::kLongestMatch};
  return recipe;
}

struct ModelRow {
  std::string_view name;
  Result<TokenizerRecipe> (*recipe)(const Vocab&);
  bool add_bos;  // where the file does not say
};
// tokenizer.ggml.model.
constexpr ModelRow kModelRows[] = {
    {"gpt2", byte_bpe_recipe, false}, {"llama", score_bpe_recipe, true},
    {"t5", unigram_recipe, false},    {"rwkv", longest_match_recipe, false},
    {"gemma4", gemma4_recipe, true},  {"bert", word_piece_recipe, true},
};

}  // namespace

std::string_view gpt2_pattern() { return kGpt2; }

std::string_view punctuation_pattern() {
  return "[\\p{P}\\x21-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\x7e]";
}

std::vector<PreTokenizerStep> bert_pre_tokenizers() {
  return {Split{{pcre2_from_oniguruma("\\s").value(), true}, SplitBehavior::kRemoved},
          Split{{std::string(punctuation_pattern()), true}, SplitBehavior::kIsolated}};
}

Result<TokenizerRecipe> recipe_by_name(const Vocab& vocab) {
  for (const ModelRow& row : kModelRows) {
    if (row.name == vocab.model) return row.recipe(vocab);
  }
  return unsupported(
      fmt::format(
          "tokenizer model '{}' is not supported (known: gpt2, llama, t5, rwkv, gemma4, bert)",
          vocab.model),
      "model");
}

bool adds_bos_by_default(std::string_view model, std::string_view pre) {
  const PreRow* pre_row = find_pre(pre);
  if (model == "gpt2" && pre_row != nullptr) return pre_row->add_bos;
  return std::any_of(std::begin(kModelRows), std::end(kModelRows),
                     [&](const ModelRow& row) { return row.name == model && row.add_bos; });
}

}  // namespace headrace
