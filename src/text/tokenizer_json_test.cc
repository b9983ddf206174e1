// What a tokenizer.json can ask for: read as it says, or refused by name.
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "text/regex_syntax.h"
#include "text/text_pair.h"
#include "text/tokenizer.h"
#include "text/tokenizer_recipe.h"

namespace headrace::tokenizer_json_test {
namespace {

constexpr std::string_view kModel =
    R"({"type":"BPE","unk_token":"<unk>","vocab":{"<unk>":0,"a":1,"b":2,"ab":3,"c":4,"C":5,"▁":6,"<s>":7,)"
    R"("</s>":8,"e":9,"1":10,"2":11,"12":12,"-":13," ":14},"merges":["a b",["1","2"]]})";

// A file of the model above (its merges spelled one way) with more members.
std::string file_with(std::string_view members) {
  std::string model(kModel);
  model.replace(model.find(R"(["1","2"])"), 9, R"("1 2")");
  return "{\"model\":" + model + (members.empty() ? "" : "," + std::string(members)) + "}";
}

std::string error_of(std::string_view file, std::string_view config = {}) {
  const auto vocab = vocab_from_tokenizer_json({.tokenizer = file, .tokenizer_config = config});
  if (!vocab.ok()) return vocab.status().message();
  const auto tokenizer = Tokenizer::create(*vocab);
  return tokenizer.ok() ? "" : tokenizer.status().message();
}

std::unique_ptr<Tokenizer> make(std::string_view file, std::string_view config = {}) {
  auto vocab = vocab_from_tokenizer_json({.tokenizer = file, .tokenizer_config = config});
  CHECK_MSG(vocab.ok(), vocab.status().message().c_str());
  return *Tokenizer::create(*std::move(vocab));
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> result;
  const std::vector<TokenId> ids = *tokenizer.encode(text, {.parse_special = true});
  for (const TokenId id : ids) {
    result.emplace_back(tokenizer.vocab().tokens[static_cast<size_t>(id)]);
  }
  return result;
}
using Pieces = std::vector<std::string>;

TEST(TokenizerJson, BothSpellingsOfMerges) {
  EXPECT_EQ(pieces(*make(file_with("")), "abc12"), (Pieces{"ab", "c", "12"}));
  std::string pairs(kModel);
  pairs.replace(pairs.find(R"("a b")"), 5, R"(["a","b"])");
  EXPECT_EQ(pieces(*make("{\"model\":" + pairs + "}"), "abc12"), (Pieces{"ab", "c", "12"}));
  EXPECT_NE(error_of("{\"model\":" + std::string(kModel) + "}").find("entry 1"), std::string::npos);
}

TEST(TokenizerJson, RefusesByName) {
  const std::pair<std::string, std::string> kCases[] = {
      {R"({"model":{"type":"WordPiece","vocab":{"a":0},"max_input_chars_per_word":-1}})",
       "max_input_chars_per_word"},
      {R"({"model":{"type":"WordLevel","vocab":{}}})", "WordLevel"},
      {R"({"model":{"vocab":{}}})", "model.type"},
      {R"({})", "model: is missing"},
      {R"([])", "is no object"},
      {R"({"model":)", "tokenizer.json"},
      {file_with(R"("normalizer":{"type":"BertNormalizer","lowercase":1})"), "lowercase"},
      {file_with(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Nmt"}]})"),
       "normalizer.normalizers[0]: 'Nmt'"},
      {file_with(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"!"})"), "base64"},
      {file_with(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"AAA="})"), "head"},
      {file_with(R"("normalizer":{"type":"Replace","pattern":{"Regex":"(a)\\1"},"content":""})"),
       "normalizer.pattern: regular expression: the escape '\\1'"},
      {file_with(R"("pre_tokenizer":{"type":"UnicodeScripts"})"), "UnicodeScripts"},
      {file_with(R"("pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"X"})"),
       "'X'"},
      {file_with(R"("pre_tokenizer":{"type":"Metaspace","replacement":"ab"})"), "one character"},
      {file_with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},)"
                 R"({"type":"Punctuation"}]})"),
       "behind ByteLevel"},
      {file_with(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},)"
                 R"({"type":"Split","pattern":{"Regex":"[0-9]a"},"behavior":"Isolated"}]})"),
       "behind ByteLevel"},
      {file_with(R"("decoder":{"type":"WordPiece","prefix":""})"), "decoder.prefix"},
      {file_with(R"("decoder":{"type":"Strip","content":" ","start":1,"stop":0})"), "Strip"},
      {file_with(R"("decoder":{"type":"Replace","pattern":{"String":""},"content":"x"})"),
       "literal"},
      {file_with(R"("post_processor":{"type":"X"})"), "post_processor: 'X'"},
      {file_with(R"("post_processor":{"type":"BertProcessing","cls":["a",1],"sep":["b",99]})"),
       "eos"},
      {file_with(R"("added_tokens":[{"id":1,"content":"x"}])"), "id 1 is two tokens"},
      {file_with(R"("added_tokens":[{"id":999999999,"content":"x"}])"), "id 999999999"},
      {file_with(R"("added_tokens":[{"id":-1,"content":"x"}])"), "id -1"},
      {file_with(R"("added_tokens":[{"id":15}])"), "content"},
  };
  for (const auto& [file, expected] : kCases) {
    EXPECT_NE(error_of(file).find(expected), std::string::npos) << file << "\n" << error_of(file);
  }
  const auto with_model = [](std::string_view from, std::string_view to) {
    std::string file = file_with("");
    return file.replace(file.find(from), from.size(), to);
  };
  const std::string bpe = R"("type":"BPE")";
  for (const std::string member :
       {"dropout\":0.5", "continuing_subword_prefix\":\"##", "end_of_word_suffix\":\"</w>"}) {
    const std::string quoted = member.ends_with("5") ? "\"" + member : "\"" + member + "\"";
    const std::string error = error_of(with_model(bpe, bpe + "," + quoted));
    EXPECT_NE(error.find(member.substr(0, 7)), std::string::npos) << error;
  }
  EXPECT_NE(error_of(with_model("\"a b\"", "\"a z\"")).find("no token"), std::string::npos);
  EXPECT_NE(error_of(with_model("\"a\":1", "\"a\":1.5")).find("integer"), std::string::npos);
}

TEST(TokenizerJson, FlagsOfAddedTokens) {
  const auto tokenizer =
      make(file_with(R"("added_tokens":[{"id":15,"content":"<l>","lstrip":true,"special":true},)"
                     R"({"id":16,"content":"<r>","rstrip":true,"special":true},)"
                     R"({"id":17,"content":"ee","single_word":true,"normalized":false}])"));
  EXPECT_EQ(pieces(*tokenizer, "a  <l>b"), (Pieces{"a", "<l>", "b"}));
  EXPECT_EQ(pieces(*tokenizer, "a <r> \n b"), (Pieces{"a", " ", "<r>", "b"}));
  EXPECT_EQ(pieces(*tokenizer, " <r>  <l>"), (Pieces{" ", "<r>", "<l>"}));
  EXPECT_EQ(pieces(*tokenizer, "ee-ee aee"), (Pieces{"ee", "-", "ee", " ", "a", "e", "e"}));
  EXPECT_EQ(pieces(*tokenizer, "eeb"), (Pieces{"e", "e", "b"}));
  EXPECT_EQ(tokenizer->encode("<l>")->size(), 3u);  // not asked for: "<" and ">" are unknown
}

TEST(TokenizerJson, NormalizedTokensAreFoundInNormalizedText) {
  const auto tokenizer = make(file_with(
      R"("normalizer":{"type":"Lowercase"},"added_tokens":[)"
      R"({"id":15,"content":"BaB","normalized":true},{"id":16,"content":"EE","normalized":false}])"));
  EXPECT_EQ(pieces(*tokenizer, "cBABc"), (Pieces{"c", "BaB", "c"}));
  EXPECT_EQ(pieces(*tokenizer, "cEEee"), (Pieces{"c", "EE", "e", "e"}));
}

TEST(TokenizerJson, WhatGoesAroundAText) {
  const std::string processor =
      R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},)"
      R"({"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],)"
      R"("special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]},)"
      R"("</s>":{"id":"</s>","ids":[8],"tokens":["</s>"]}}})";
  const std::string file = file_with(processor);
  EXPECT_EQ(pieces(*make(file), "ab"), (Pieces{"<s>", "ab", "</s>"}));
  EXPECT_EQ(make(file)->encode("ab", {.add_special = false})->size(), 1u);
  const std::string config = R"({"tokenizer_class":"LlamaTokenizerFast","add_bos_token":false,)"
                             R"("bos_token":{"content":"<s>"},"eos_token":"</s>"})";
  EXPECT_EQ(pieces(*make(file, config), "ab"), (Pieces{"ab", "</s>"}));
  EXPECT_NE(error_of(file, R"({"eos_token":"c"})").find("configuration names 4"),
            std::string::npos);
  std::string twice = file;
  const std::string item = R"({"SpecialToken":{"id":"<s>","type_id":0}},)";
  twice.insert(twice.find(item), item);
  EXPECT_NE(error_of(twice).find("more than one"), std::string::npos);
}

std::optional<PairFrame> pair_in(const std::string& processor) {
  return make(file_with(R"("post_processor":)" + processor))->vocab().pair;
}

// Of a template that has the elements of `pair`: "<A", "</:1", "A:0", "B:1".
std::optional<PairFrame> template_pair(std::initializer_list<std::pair<const char*, int>> pair) {
  std::string list;
  for (const auto& [name, type] : pair) {
    const bool text = name[0] == 'A' || name[0] == 'B';
    list += fmt::format(R"({}{{"{}":{{"id":"{}","type_id":{}}}}})", list.empty() ? "" : ",",
                        text ? "Sequence" : "SpecialToken", name, type);
  }
  return pair_in(
      R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[)" +
      list +
      R"(],"special_tokens":{"<s>":{"id":"<s>","ids":[7]},"</s>":{"id":"</s>","ids":[8]}}})");
}

using Ids = std::vector<TokenId>;

TEST(TokenizerJson, WhatGoesAroundTwoTexts) {
  const auto bert = pair_in(R"({"type":"BertProcessing","cls":["<s>",7],"sep":["</s>",8]})");
  ASSERT_TRUE(bert);
  EXPECT_EQ(bert->front, Ids{7});
  EXPECT_EQ(bert->middle, Ids{8});
  EXPECT_EQ(bert->back, Ids{8});
  EXPECT_TRUE(bert->second_type);
  const auto roberta = pair_in(R"({"type":"RobertaProcessing","cls":["<s>",7],"sep":["</s>",8]})");
  ASSERT_TRUE(roberta);
  EXPECT_EQ(roberta->middle, (Ids{8, 8}));
  EXPECT_FALSE(roberta->second_type);
  const auto typed =
      template_pair({{"<s>", 0}, {"A", 0}, {"</s>", 0}, {"</s>", 0}, {"B", 1}, {"</s>", 1}});
  ASSERT_TRUE(typed);
  EXPECT_EQ(typed->front, Ids{7});
  EXPECT_EQ(typed->middle, (Ids{8, 8}));
  EXPECT_EQ(typed->back, Ids{8});
  EXPECT_TRUE(typed->second_type);
  const auto bare = template_pair({{"A", 0}, {"B", 0}});
  ASSERT_TRUE(bare);
  EXPECT_EQ(bare->size(), 0u);
  EXPECT_FALSE(bare->second_type);
}

// Such templates are of models that are no cross-encoders; the tokenizer is loaded all the same.
TEST(TokenizerJson, OtherFormsOfPairsAreNone) {
  EXPECT_FALSE(template_pair({{"A", 0}}));
  EXPECT_FALSE(template_pair({{"B", 0}, {"A", 0}}));
  EXPECT_FALSE(template_pair({{"A", 0}, {"B", 1}, {"B", 1}}));
  EXPECT_FALSE(template_pair({{"A", 0}, {"<s>", 1}, {"B", 1}}));
  EXPECT_FALSE(template_pair({{"A", 0}, {"B", 1}, {"<s>", 0}}));
  EXPECT_FALSE(template_pair({{"A", 0}, {"B", 2}}));
  EXPECT_FALSE(template_pair({{"A", 0}, {"<x>", 0}, {"B", 0}}));
  EXPECT_FALSE(make(file_with(""))->vocab().pair);
}

TEST(TextPair, LongestFirstIsTheRustLibrarys) {
  EXPECT_EQ(longest_first({3, 4}, 10), (PairLengths{3, 4}));
  EXPECT_EQ(longest_first({3, 40}, 10), (PairLengths{3, 7}));
  EXPECT_EQ(longest_first({40, 3}, 10), (PairLengths{7, 3}));
  EXPECT_EQ(longest_first({40, 30}, 11), (PairLengths{6, 5}));
  EXPECT_EQ(longest_first({30, 40}, 11), (PairLengths{5, 6}));
  EXPECT_EQ(longest_first({40, 40}, 11), (PairLengths{5, 6}));
  EXPECT_EQ(longest_first({0, 40}, 11), (PairLengths{0, 11}));
}

TEST(TokenizerJson, ConfigurationFiles) {
  const std::string file = file_with(
      R"("added_tokens":[{"id":7,"content":"<s>","special":true},{"id":8,"content":"</s>","special":true}])");
  auto vocab = vocab_from_tokenizer_json(
      {.tokenizer = file,
       .tokenizer_config =
           R"({"bos_token":"<s>","model_max_length":1000000000000000019884624838656,)"
           R"("chat_template":[{"name":"tool_use","template":"x"},)"
           R"({"name":"default","template":"y"}]})",
       .special_tokens_map = R"({"eos_token":{"content":"</s>"},"pad_token":"c"})"});
  ASSERT_TRUE(vocab.ok());
  EXPECT_EQ(vocab->bos, 7);
  EXPECT_EQ(vocab->eos, 8);
  EXPECT_EQ(vocab->pad, 4);
  EXPECT_EQ(vocab->unk, 0);
  EXPECT_EQ(vocab->chat_template, "y");
  EXPECT_EQ(vocab->end_ids, std::vector<TokenId>{8});
  EXPECT_FALSE(vocab->add_bos);
}

std::string translated(std::string_view pattern) {
  const auto result = pcre2_from_oniguruma(pattern);
  return result.ok() ? *result : "error: " + result.status().message();
}

TEST(RegexSyntax, SameMeaningInTheOtherSyntax) {
  EXPECT_EQ(translated("a|(b)+?"), "a|(?:b)+?");
  EXPECT_EQ(translated(R"(\d\D\v\.)"), R"(\p{Nd}\P{Nd}\x0b\.)");
  EXPECT_EQ(translated(R"([^\s\p{L}a-z\-])"), R"([^\x09-\x0d\x{85}\p{Z}\p{L}a-z\-])");
  EXPECT_EQ(translated(R"(\p{Han}\P{^Lu})"), R"(\p{sc:Han}\p{Lu})");
  EXPECT_EQ(translated(R"([a-\d])").substr(0, 5), "error");
  EXPECT_EQ(translated("[a[bc]-]"), R"([abc\-])");
  EXPECT_EQ(translated("a{2,3}b{,4}{"), R"(a{2,3}b{0,4}\{)");
  EXPECT_EQ(translated(R"(\x41\x{1F600}é)"), R"(\x{41}\x{1f600}é)");
  EXPECT_EQ(translated("(?i:'s)(?=a)(?!b)(?<=c)(?<!d)(?>e)"), "(?i:'s)(?=a)(?!b)(?<=c)(?<!d)(?>e)");
  EXPECT_EQ(translated("."), "[^\\n]");
}

TEST(RegexSyntax, RefusesByName) {
  for (const auto& [pattern, what] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"((a)\1)", R"('\1')"},
           {R"(\k<a>)", R"('\k')"},
           {R"(\R)", R"('\R')"},
           {"(?<name>a)", "(?<n"},
           {"(?m:a)", "(?m:"},
           {"(?R)", "(?R)"},
           {"(*LIMIT_MATCH=1)", "(*LI"},
           {"[[:alpha:]]", "[:"},
           {"[a&&b]", "&&"},
           {"[a[^b]]", "[^"},
           {"[]", "empty class"},
           {"[a", "does not end"},
           {"(a", "does not end"},
           {"a)", "')'"},
           {"a{2}+", "suffix"},
           {"a{2}?", "suffix"},
           {R"(\p{Alpha})", "'Alpha'"},
           {R"(\pL)", "braces"},
           {R"([\W])", "negated"},
           {R"(\xff)", "character code"},
           {R"(\x{110000})", "character code"},
           {R"(\u12)", "character code"},
           {"\\", "at the end"},
           {"[\\", "at the end"},
           {std::string(200, '(') + std::string(200, ')'), "deep nesting"},
           {std::string(1 << 17, 'a'), "131072 bytes"},
           {"\xff", "UTF-8"}}) {
    EXPECT_NE(translated(pattern).find("error: "), std::string::npos) << pattern;
    EXPECT_NE(translated(pattern).find(what), std::string::npos) << translated(pattern);
  }
}

// Patterns that only PCRE2 can judge, and one that backtracks without end.
TEST(RegexSyntax, WhatPcre2Refuses) {
  const auto split_by = [](std::string_view regex) {
    return file_with(
        R"("pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":")" +
        std::string(regex) + "\"}}");
  };
  EXPECT_NE(error_of(split_by("a**b")).find("regular expression"), std::string::npos);
  EXPECT_NE(error_of(split_by("(?<=a+)b")).find("regular expression"), std::string::npos);
  EXPECT_NE(error_of(split_by(R"(\\p{Klingon})")).find("regular expression"), std::string::npos);
  const auto slow = make(split_by("(?:a|a)*(?:a|a)*(?:a|a)*b|c"));
  const auto ids = slow->encode(std::string(4000, 'a'));
  EXPECT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), StatusCode::kExhausted);
  EXPECT_TRUE(slow->encode("aac").ok());
}

// A file with WordPiece, BERT's normaliser and its cuts; a word has at most 6 characters.
std::string wordpiece_file(const std::string& normalizer) {
  return R"({"model":{"type":"WordPiece","unk_token":"[UNK]","max_input_chars_per_word":6,"vocab":)"
         R"({"[UNK]":0,"un":1,"##do":2,"##doi":3,"##ng":4,"undo":5,".":6,"e":7,"\u4e2d":8,"E":9}},)"
         R"("pre_tokenizer":{"type":"BertPreTokenizer"},"decoder":{"type":"WordPiece"},)"
         R"("normalizer":{"type":"BertNormalizer")" +
         normalizer + "}}";
}

TEST(TokenizerJson, WordPieceTakesTheLongestTokenFirst) {
  const auto tokenizer = make(wordpiece_file(""));
  const auto ids = [&](std::string_view text) { return *tokenizer->encode(text); };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ids("undo"), (Ids{5}));
  EXPECT_EQ(ids("unundo"), (Ids{0}));  // "##un" is no token: the whole word is unknown
  EXPECT_EQ(ids("undong"), (Ids{5, 4}));
  EXPECT_EQ(ids("undongx"), (Ids{0}));  // seven characters
  EXPECT_EQ(ids("undoing"), (Ids{0}));
  EXPECT_EQ(ids("undo.e"), (Ids{5, 6, 7}));
  EXPECT_EQ(tokenizer->decode(ids("undong . e"), true), "undong. e");
}

TEST(TokenizerJson, BertsNormalizerDoesWhatItsFlagsSay) {
  const auto ids = [](const std::string& flags, std::string_view text) {
    return *make(wordpiece_file(flags))->encode(text);
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(ids("", "\u00c9\u4e2d\u00e9"), (Ids{7, 8, 7}));  // accents and case go
  EXPECT_EQ(ids("", "e\u00a0e\u200be\x01"), (Ids{7, 0}));    // a zero-width space is no text
  EXPECT_EQ(ids(R"(,"lowercase":false)", "E\u00e9"), (Ids{0}));
  EXPECT_EQ(ids(R"(,"lowercase":false,"strip_accents":true)", "\u00c9"), (Ids{9}));
  EXPECT_EQ(ids(R"(,"handle_chinese_chars":false)", "e\u4e2d"), (Ids{0}));
}

}  // namespace
}  // namespace headrace::tokenizer_json_test
