// Detokenizer, StopMatcher and TextStream: what a client sees of a growing answer.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/text_stream.h"
#include "text/utf8.h"
#include "text/vocab_fixture.h"

namespace headrace::stream_test {
namespace {

TEST(Utf8, ReplacesMaximalSubpartsAsPython) {
  // Left: bytes; right: what Python's bytes.decode("utf-8", "replace") gives, "?" for U+FFFD.
  const std::pair<std::string, std::string> cases[] = {
      {"abc", "abc"},
      {"\xC3\xA9", "\xC3\xA9"},
      {"\xC3", "?"},
      {"\xC3(", "?("},
      {"\xE2\x82", "?"},
      {"\xE2\x82(", "?("},
      {"\xF0\x9F\x98", "?"},
      {"\xF0\x9F(", "?("},
      {"\x80\x80", "??"},
      {"\xC0\xAF", "??"},
      {"\xE0\x80\x80", "???"},
      {"\xED\xA0\x80", "???"},
      {"\xF4\x90\x80\x80", "????"},
      {"\xF5\x80", "??"},
      {"\xFF\xFE", "??"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},
  };
  for (const auto& [bytes, want] : cases) {
    std::string expanded;
    for (char c : want)
      expanded += c == '?' ? std::string(kReplacementCharacter) : std::string(1, c);
    EXPECT_EQ(replace_invalid_utf8(bytes), expanded);
  }
}

// A million tokens in random sequences, with halves of characters, bytes that are none, and
// control tokens.
TEST(Detokenizer, DeltasJoinToTheOneShotText) {
  const auto tokenizer = *Tokenizer::create(tiny_vocab());
  Rng rng(37);
  int tokens = 0;
  while (tokens < 1'000'000) {
    const bool skip = rng.below(2) == 0;
    Detokenizer detokenizer(*tokenizer, skip);
    std::vector<TokenId> ids;
    std::string streamed;
    const size_t length = 1 + rng.below(40);
    const bool any = rng.below(2) == 0;
    const std::string likely =
        "\xF0\x9F\x98\x80\xE4\xBD\xA0\xC3\xA9"
        "a";
    for (size_t i = 0; i < length; ++i) {
      const TokenId byte = 5 + static_cast<uint8_t>(likely[rng.below(likely.size())]);
      ids.push_back(
          any ? static_cast<TokenId>(rng.below(static_cast<uint64_t>(tokenizer->vocab_size())))
              : byte);
      const std::string delta = detokenizer.push(ids.back());
      ASSERT_EQ(valid_utf8_prefix(delta), delta.size());
      streamed += delta;
    }
    streamed += detokenizer.flush();
    ASSERT_EQ(streamed, replace_invalid_utf8(tokenizer->decode(ids, skip)));
    tokens += static_cast<int>(length);
  }
}

struct Outcome {
  std::string text;
  std::optional<size_t> stop;
  bool operator==(const Outcome&) const = default;
};

// The definition: the stop string that is complete first, the longest of those.
Outcome stop_by_definition(const std::string& text, const std::vector<std::string>& stops,
                           bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].empty() || !std::string_view(text).substr(0, end).ends_with(stops[i])) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, include ? end : end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

// Every way to cut the text into deltas.
void check_all_splits(const std::string& text, const std::vector<std::string>& stops,
                      bool include) {
  const Outcome want = stop_by_definition(text, stops, include);
  for (uint32_t cuts = 0; cuts < (1u << (text.size() - 1)); ++cuts) {
    StopMatcher matcher(stops, include);
    Outcome outcome;
    size_t begin = 0;
    for (size_t end = 1; end <= text.size() && !outcome.stop; ++end) {
      if (end < text.size() && (cuts >> (end - 1) & 1) == 0) continue;
      StopMatcher::Step step = matcher.push(std::string_view(text).substr(begin, end - begin));
      outcome.text += step.text;
      outcome.stop = step.stop;
      begin = end;
      // Nothing leaves that may yet be cut away, and nothing else is held.
      ASSERT_TRUE(want.text.starts_with(outcome.text)) << text;
    }
    if (!outcome.stop) outcome.text += matcher.flush();
    ASSERT_EQ(outcome, want) << text << " cuts " << cuts;
  }
}

TEST(StopMatcher, EverySplitGivesTheSame) {
  const std::vector<std::vector<std::string>> stop_sets = {
      {"stop"},  {"aab"},       {"abcd", "bc"}, {"bc", "abc"},   {"日本"}, {"\n\n", "\nUser:"},
      {"", "x"}, {"aa", "aaa"}, {"é", "日"},    {"abab", "babb"}};
  const std::vector<std::string> texts = {"go stop on", "aaaab",    "xabcdx",     "xabce",
                                          "a日本b",     "日月日本", "a\nUser: b", "a\n\nb",
                                          "aaaa",       "ababbab",  "no match"};
  for (const auto& stops : stop_sets) {
    for (const std::string& text : texts) {
      check_all_splits(text, stops, false);
      check_all_splits(text, stops, true);
    }
  }
}

TEST(StopMatcher, HoldsOnlyWhatMayBeAStop) {
  StopMatcher matcher({"</end>"}, false);
  EXPECT_EQ(matcher.push("a</en").text, "a");
  EXPECT_EQ(matcher.held_bytes(), 4u);
  EXPECT_EQ(matcher.push("x").text, "</enx");
  EXPECT_EQ(matcher.push("</").text, "");
  EXPECT_EQ(matcher.flush(), "</");
}

// However the text is cut, and where a stop string begins in front of the shield.
TEST(StopMatcher, BetweenTheMarksOfAShieldNothingStops) {
  const std::string text = "a<b<call>x stop <call> y</call>z</c stop";
  const std::string_view before_stop = "a<b<call>x stop <call> y</call>z</c ";
  for (size_t size = 1; size <= text.size(); ++size) {
    StopMatcher matcher({"stop", "<call>x", "b<cal"}, false, {{"<call>"}, "</call>"});
    StopMatcher other({"stop", "<call>x"}, false, {{"<call>"}, "</call>"});
    std::string of_other;
    std::optional<size_t> early, late;
    for (size_t at = 0; at < text.size(); at += size) {
      early = early ? early : matcher.push(std::string_view(text).substr(at, size)).stop;
      StopMatcher::Step step = other.push(std::string_view(text).substr(at, size));
      of_other += step.text;
      late = late ? late : step.stop;
    }
    EXPECT_EQ(early, 2u) << size;
    EXPECT_EQ(late, 0u) << size;
    EXPECT_EQ(of_other, before_stop) << size;
  }
}

// Any of several marks opens it, and what has no closing mark goes on to the end.
TEST(StopMatcher, AShieldMayHaveMarksOrNone) {
  const auto stop_of = [](const StopShield& shield, std::string_view text) {
    StopMatcher matcher({"stop"}, false, shield);
    std::optional<size_t> stop;
    for (char c : text) stop = stop ? stop : matcher.push({&c, 1}).stop;
    return stop.has_value();
  };
  const StopShield two{.opens = {"<a>", "[b]"}, .close = "end"};
  EXPECT_FALSE(stop_of(two, "x <a>stop"));
  EXPECT_FALSE(stop_of(two, "x [b]stop end"));
  EXPECT_TRUE(stop_of(two, "[b]stop end stop"));
  EXPECT_TRUE(stop_of(two, "[a]stop"));
  EXPECT_FALSE(stop_of({.opens = {"<a>"}}, "<a> stop end stop"));
  const StopShield bare{.opens = {"<a>"}, .bare_open = '{'};
  EXPECT_FALSE(stop_of(bare, "\n {stop"));
  EXPECT_TRUE(stop_of(bare, "x{stop"));
  EXPECT_FALSE(stop_of(bare, "x<a>stop"));
}

TEST(StopMatcher, ManyPartialMatchesStayLinear) {
  StopMatcher matcher({std::string(255, 'a') + "b"}, false);
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(matcher.push(text).text.size(), text.size() - 255);
  EXPECT_EQ(matcher.push("b").stop, 0u);
}

struct StreamResult {
  std::string text;
  std::optional<size_t> stop;
  std::vector<TokenId> tokens;
  std::vector<size_t> offsets;
};

StreamResult run_stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                        TextStreamOptions options) {
  TextStream stream(tokenizer, std::move(options));
  StreamResult result;
  const auto take = [&](TextStream::Delta delta) {
    result.text += delta.text;
    if (delta.stop) result.stop = delta.stop;
    for (const TextStream::TokenText& token : delta.tokens) {
      result.tokens.push_back(token.token);
      result.offsets.push_back(token.offset);
    }
  };
  for (TokenId id : ids) take(stream.push(id));
  take(stream.finish());
  return result;
}

TEST(TextStream, TokensStayBesideTheirText) {
  const auto tokenizer = *Tokenizer::create(tiny_vocab());
  const std::vector<TokenId> ids = *tokenizer->encode("hello é 日 world", {.add_special = false});
  const StreamResult all = run_stream(*tokenizer, ids, {});
  EXPECT_EQ(all.text, "hello é 日 world");
  EXPECT_EQ(all.tokens, ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string before = tokenizer->decode(TokenSpan(ids.data(), i), true);
    EXPECT_EQ(all.offsets[i], count_code_points(before.substr(0, valid_utf8_prefix(before))));
  }
}

TEST(TextStream, StopCutsTextAndTokensAlike) {
  const auto tokenizer = *Tokenizer::create(tiny_vocab());
  const std::vector<TokenId> ids = *tokenizer->encode("hello xyz world", {.add_special = false});
  const StreamResult cut = run_stream(*tokenizer, ids, {.stops = {"q", "yz w"}});
  EXPECT_EQ(cut.text, "hello x");
  EXPECT_EQ(cut.stop, 1u);
  EXPECT_EQ(tokenizer->decode(cut.tokens, true), "hello x");
  const StreamResult kept = run_stream(*tokenizer, ids, {.stops = {"yz w"}, .include_stop = true});
  EXPECT_EQ(kept.text, "hello xyz w");
  EXPECT_EQ(tokenizer->decode(kept.tokens, true), "hello xyz world");  // the last one only in part
}

TEST(TextStream, RandomTokensAppearOnceAndInOrder) {
  const auto tokenizer = *Tokenizer::create(tiny_vocab());
  Rng rng(38);
  for (int round = 0; round < 5000; ++round) {
    std::vector<TokenId> ids;
    const size_t length = rng.below(30);
    for (size_t i = 0; i < length; ++i) {
      ids.push_back(
          static_cast<TokenId>(rng.below(static_cast<uint64_t>(tokenizer->vocab_size()))));
    }
    const StreamResult plain = run_stream(*tokenizer, ids, {});
    EXPECT_EQ(plain.tokens, ids);
    EXPECT_EQ(plain.text, replace_invalid_utf8(tokenizer->decode(ids, true)));
    const std::vector<std::string> stops = {"a", "lo", "\xEF\xBF\xBD!"};
    const StreamResult cut = run_stream(*tokenizer, ids, {.stops = stops});
    EXPECT_EQ(cut.text, stop_by_definition(plain.text, stops, false).text);
    ASSERT_LE(cut.tokens.size(), ids.size());
    EXPECT_TRUE(std::equal(cut.tokens.begin(), cut.tokens.end(), ids.begin()));
  }
}

}  // namespace
}  // namespace headrace::stream_test
