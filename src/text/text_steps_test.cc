// Normalisers, pre-tokenizers and the small parts that recipes are made of.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/base64.h"
#include "text/byte_fallback.h"
#include "text/chars_map.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace headrace::text_steps_test {
namespace {

std::string normalized(const NormalizerStep& step, std::string_view text) {
  return *Normalizer::create({step})->apply(text, TextPlace::kStart);
}

std::string replaced(PatternSource pattern, std::string content, std::string_view text) {
  const Replace step{std::move(pattern), std::move(content)};
  return normalized(step, text);
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize("e\u0301\u212b", UnicodeForm::kNfc), "\u00e9\u00c5");
  EXPECT_EQ(normalize("\u00e9\uac01", UnicodeForm::kNfd), "e\u0301\u1100\u1161\u11a8");
  EXPECT_EQ(normalize("\ufb01\u2460\u00b2", UnicodeForm::kNfkc), "fi12");
  EXPECT_EQ(normalize("\u1e69", UnicodeForm::kNfkd), "s\u0323\u0307");
  EXPECT_EQ(normalize("a\u0301\u0323", UnicodeForm::kNfd), "a\u0323\u0301");  // by class
  EXPECT_EQ(normalize("plain", UnicodeForm::kNfc), "plain");
  // The place before the first final consonant is none.
  EXPECT_EQ(normalize("\u1101\u1175\u11a7\u11a8", UnicodeForm::kNfc), "\ub07c\u11a7\u11a8");
  EXPECT_EQ(normalize("e\u0301\u11a7e\u0301\u11a7", UnicodeForm::kNfc), "\u00e9\u11a7\u00e9\u11a7");
}

TEST(Unicode, ManyMarksTakeNoTime) {
  std::string text = "a";
  for (int i = 0; i < 200'000; ++i) text += i % 2 ? "\u0316" : "\u0301";  // out of order
  const std::string sorted = normalize(text, UnicodeForm::kNfd);
  EXPECT_EQ(sorted.size(), text.size());
  EXPECT_EQ(sorted.substr(1, 2), "\u0316");
  EXPECT_EQ(sorted.substr(sorted.size() - 2), "\u0301");
}

TEST(Unicode, Properties) {
  for (const char32_t c : {U' ', U'\n', U'\u0085', U'\u00a0', U'\u3000', U'\u2028'}) {
    EXPECT_TRUE(is_white_space(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'a', U'\u200b', U'\u180e', U'\0'}) EXPECT_FALSE(is_white_space(c));
  for (const char32_t c : {U'a', U'_', U'9', U'\u0301', U'\u4f60', U'\u24b6', U'\u2160'}) {
    EXPECT_TRUE(is_word_character(c)) << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {U'-', U' ', U'\u00bd', U'$'}) EXPECT_FALSE(is_word_character(c));
  EXPECT_EQ(grapheme_length("e\u0301x"), 3u);
  EXPECT_EQ(grapheme_length("\U0001F468\u200d\U0001F469!"), 11u);
  EXPECT_EQ(grapheme_length("\U0001F1E9\U0001F1EA\U0001F1EB"), 8u);
}

TEST(Normalizer, Steps) {
  EXPECT_EQ(normalized(Lowercase{}, "\u00c9\u0130\u03a3"), "\u00e9i\u0307\u03c3");
  EXPECT_EQ(normalized(StripAccents{}, "e\u0301\u0903a"), "ea");
  EXPECT_EQ(normalized(StripSpace{}, " \u3000 a b \n"), "a b");
  EXPECT_EQ(normalized(StripSpace{true, false}, " a "), "a ");
  EXPECT_EQ(normalized(StripSpace{false, true}, " a "), " a");
  EXPECT_EQ(normalized(StripSpace{}, "  "), "");
  EXPECT_EQ(replaced({" {2,}", true}, "_", "a   b c"), "a_b c");
  EXPECT_EQ(replaced({"aa", false}, "a", "aaaaa"), "aaa");
  EXPECT_EQ(replaced({"(?=b)", true}, "^", "abb"), "a^b^b");
  EXPECT_EQ(normalized(Prepend{"_"}, "a"), "_a");
  EXPECT_EQ(normalized(Prepend{"_"}, ""), "");
  const Normalizer prepend = *Normalizer::create({Prepend{"_"}});
  EXPECT_EQ(*prepend.apply("a", TextPlace::kBehindBytes), "a");
  std::vector<NormalizerStep> wrong(1);
  wrong[0].emplace<Replace>().pattern = {"(", true};
  EXPECT_FALSE(Normalizer::create(wrong).ok());
}

std::vector<std::string> split(std::vector<PreTokenizerStep> steps, std::string_view text,
                               TextPlace place = TextPlace::kStart) {
  std::vector<std::string> pieces;
  const Status status =
      PreTokenizer::create(steps)->split(text, place, [&](std::string_view piece) {
        pieces.emplace_back(piece);
        return ok_status();
      });
  EXPECT_TRUE(status.ok());
  return pieces;
}
using Pieces = std::vector<std::string>;

TEST(PreTokenizer, Behaviours) {
  const auto by = [](SplitBehavior behavior, bool invert = false) {
    return split({Split{{"-", false}, behavior, invert}}, "-a--b-");
  };
  EXPECT_EQ(by(SplitBehavior::kIsolated), (Pieces{"-", "a", "-", "-", "b", "-"}));
  EXPECT_EQ(by(SplitBehavior::kRemoved), (Pieces{"a", "b"}));
  EXPECT_EQ(by(SplitBehavior::kMergedWithPrevious), (Pieces{"-", "a-", "-", "b-"}));
  EXPECT_EQ(by(SplitBehavior::kMergedWithNext), (Pieces{"-a", "-", "-b", "-"}));
  EXPECT_EQ(by(SplitBehavior::kContiguous), (Pieces{"-", "a", "--", "b", "-"}));
  EXPECT_EQ(by(SplitBehavior::kRemoved, true), (Pieces{"-", "-", "-", "-"}));
}

TEST(PreTokenizer, SpacesInFront) {
  const auto spell = [](PrependScheme scheme, bool cut, std::string_view text, TextPlace place) {
    return split({SpaceSpelling{"_", scheme, cut}}, text, place);
  };
  EXPECT_EQ(spell(PrependScheme::kAlways, true, "a  b", TextPlace::kBehindToken),
            (Pieces{"_a", "_", "_b"}));
  EXPECT_EQ(spell(PrependScheme::kAlways, false, " a b", TextPlace::kStart), (Pieces{"_a_b"}));
  EXPECT_EQ(spell(PrependScheme::kFirst, false, "a", TextPlace::kStart), (Pieces{"_a"}));
  EXPECT_EQ(spell(PrependScheme::kFirst, false, "a", TextPlace::kBehindToken), (Pieces{"a"}));
  EXPECT_EQ(spell(PrependScheme::kAlways, false, "a", TextPlace::kBehindBytes), (Pieces{"a"}));
  EXPECT_EQ(split({PrefixSpace{}}, "a"), (Pieces{" a"}));
  EXPECT_EQ(split({PrefixSpace{}}, " a"), (Pieces{" a"}));
  EXPECT_EQ(split({PrefixSpace{}}, "a", TextPlace::kBehindBytes), (Pieces{"a"}));
  EXPECT_TRUE(split({}, "").empty());
  // Only the first of the pieces is at the start.
  EXPECT_EQ(split({Split{{"-", false}}, SpaceSpelling{"_", PrependScheme::kFirst}}, "a-b"),
            (Pieces{"_a", "-", "b"}));
}

TEST(ByteFallback, OnlyWhatIsExactlyAByte) {
  EXPECT_EQ(byte_of_spelling("<0x0A>"), 10);
  EXPECT_EQ(byte_of_spelling("<0xff>"), 255);
  for (const char* text : {"<0x-1>", "<0xA>", "<0x0A", "0x0A", "<0x0G>", "<0x00A>", "", "<0X0A>"}) {
    EXPECT_EQ(byte_of_spelling(text), -1) << text;
  }
}

TEST(Base64, DecodesOrRefuses) {
  EXPECT_EQ(decode_base64("AAEC/w=="), std::string("\0\1\2\xff", 4));
  EXPECT_EQ(decode_base64("TWFu"), "Man");
  EXPECT_EQ(decode_base64("TWE="), "Ma");
  EXPECT_EQ(decode_base64(""), "");
  for (const char* text : {"A", "AAA", "AA=A", "A===", "AA\n=", "@AAA"}) {
    EXPECT_FALSE(decode_base64(text)) << text;
  }
}

// Whatever the table says, nothing outside it is read; run under the sanitizers.
TEST(CharsMap, AnyBlobIsSafe) {
  EXPECT_FALSE(CharsMap::create("abc").ok());
  EXPECT_FALSE(CharsMap::create(std::string("\xff\0\0\0abc", 7)).ok());
  Rng rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::string blob("\x40\0\0\0", 4);
    while (blob.size() < 90) blob.push_back(static_cast<char>(rng.below(round % 2 ? 256 : 3)));
    const Result<CharsMap> map = CharsMap::create(blob);
    ASSERT_TRUE(map.ok());
    (void)map->apply_longest("a\u00e9 \U0001F600\u0301b");
    (void)map->apply_by_grapheme("a\u00e9 \U0001F600\u0301b");
  }
  const Result<CharsMap> none = CharsMap::create("");
  EXPECT_EQ(none->apply_longest("a\u0301"), "a\u0301");
  EXPECT_EQ(none->apply_by_grapheme("a\u0301"), "a\u0301");
}

}  // namespace
}  // namespace headrace::text_steps_test
