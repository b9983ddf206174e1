// What matches: regular expressions, GBNF, JSON schemas, text with calls in it. Bytes only; tokens
// are token_mask_test.cc's.
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "text/grammar/answer_grammar.h"
#include "text/grammar/gbnf_grammar.h"
#include "text/grammar/grammar_automaton.h"
#include "text/grammar/json_schema_grammar.h"
#include "text/grammar/regex_grammar.h"
#include "text/grammar/utf8_ranges.h"
#include "text/utf8.h"

namespace headrace::grammar_test {
namespace {

using GrammarResult = Result<std::shared_ptr<const Grammar>>;
using Texts = std::vector<std::string>;

bool matches(const Grammar& grammar, std::string_view text) {
  const std::shared_ptr<const Grammar> borrowed(std::shared_ptr<const Grammar>(), &grammar);
  GrammarPlace place(std::make_shared<GrammarAutomaton>(borrowed));
  return place.accept(text) && place.can_end();
}

void expect_matches(const GrammarResult& grammar, const Texts& yes, const Texts& no) {
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  for (const std::string& text : yes) EXPECT_TRUE(matches(**grammar, text)) << text;
  for (const std::string& text : no) EXPECT_FALSE(matches(**grammar, text)) << text;
}

GrammarResult from_regex(std::string_view pattern) {
  GrammarBuilder builder;
  const auto root = regex_grammar(builder, pattern);
  return root.ok() ? builder.finish(*root) : GrammarResult(root.status());
}
GrammarResult from_gbnf(std::string_view text) {
  GrammarBuilder builder;
  const auto root = gbnf_grammar(builder, text);
  return root.ok() ? builder.finish(*root) : GrammarResult(root.status());
}
GrammarResult from_schema(std::string_view schema) {
  GrammarBuilder builder;
  JsonGrammar json(builder);
  const auto root = json_schema_grammar(builder, json, *parse_json(schema));
  return root.ok() ? builder.finish(*root) : GrammarResult(root.status());
}
std::string schema_error(std::string_view schema) { return from_schema(schema).status().message(); }

// --- characters

// Every character of a range has one spelling in its sequences, and no other text has any.
TEST(Utf8Ranges, SpellExactlyTheCharactersOfASet) {
  const CodePointSet sets[] = {{{0, kCodePointMax}},
                               {{0x40, 0x41}, {0x7F, 0x81}, {0x7FE, 0x802}},
                               {{0xFFFE, 0x10001}, {0x3FFFF, 0x40000}, {0x10FFFF, 0x10FFFF}},
                               {{0xD700, 0xE010}}};
  for (const CodePointSet& set : sets) {
    const auto sequences = utf8_sequences(set);
    for (char32_t c = 0; c <= kCodePointMax; c += c < 0x11000 ? 1 : 97) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      std::string text;
      append_utf8(c, text);
      int count = 0;
      for (const auto& sequence : sequences) {
        bool fits = sequence.size() == text.size();
        for (size_t i = 0; fits && i < text.size(); ++i) {
          fits = sequence[i].has(static_cast<uint8_t>(text[i]));
        }
        count += fits ? 1 : 0;
      }
      EXPECT_EQ(count, set.has(c) ? 1 : 0) << static_cast<uint32_t>(c);
    }
  }
  EXPECT_EQ(CodePointSet({{0xD000, 0xE000}}).ranges().size(), 2u);  // surrogates are in none
}

TEST(CodePointSet, UnionsComplementsAndDifferences) {
  CodePointSet set = {{'a', 'c'}, {'e', 'g'}};
  set.add('d', 'd');
  EXPECT_EQ(set.ranges(), (std::vector<CodePointRange>{{'a', 'g'}}));
  EXPECT_TRUE(set.complement().complement().ranges() == set.ranges());
  EXPECT_EQ(set.without({{'c', 'z'}}).ranges(), (std::vector<CodePointRange>{{'a', 'b'}}));
  EXPECT_EQ(CodePointSet().complement().ranges(), CodePointSet::all().ranges());
}

// --- regular expressions

TEST(RegexGrammar, MatchesTheWholeText) {
  expect_matches(from_regex("ab|cd"), {"ab", "cd"}, {"", "a", "abcd", "xab"});
  expect_matches(from_regex("^(a|b)*c?$"), {"", "abba", "c", "abc"}, {"cc", "ca"});
  expect_matches(from_regex("a{2}b{1,}c{,2}d{0,1}"), {"aab", "aabbbccd"}, {"ab", "aa", "aabccc"});
  expect_matches(from_regex(R"([a-c\d_-]+)"), {"a", "c3_-"}, {"d", ""});
  expect_matches(from_regex(R"([^a-z\n]x)"), {"Ax", "\xC3\xA9x", "\xF0\x9F\x98\x80x"},
                 {"ax", "\nx", "\xC3x", "\xFFx"});
  expect_matches(from_regex(R"(\w+\s\S\D\W)"), {"ab_1 xy!"}, {"ab 12!", "ab  y!"});
  expect_matches(from_regex(R"(.\.\x41\u00e9\u{1F600}\n)"), {"z.A\xC3\xA9\xF0\x9F\x98\x80\n"},
                 {"\n.A\xC3\xA9\xF0\x9F\x98\x80\n"});
  expect_matches(from_regex("(?:a(?P<n>b)(?<m>c))+?"), {"abc", "abcabc"}, {"ab"});
  expect_matches(from_regex("a{x}"), {"a{x}"}, {"a"});
  expect_matches(from_regex("(a*)*b"), {"b", "aab"}, {"a"});
  expect_matches(from_regex("((a?){3}){3}"), {"", "aaaaaaaaa"}, {"aaaaaaaaaa"});
  expect_matches(from_regex("^a$|^b$"), {"a", "b"}, {"ab"});
}

TEST(RegexGrammar, RefusesWhatItDoesNotDo) {
  for (const char* pattern :
       {"(a",          "a)",     "[a",      "a\\",   "*a",   "a{3,1}", "(?=a)",
        "(?<!a)b",     "(a)\\1", "\\bword", "a^b",   "a$b",  "\\p{L}", "[b-a]",
        "[[:alpha:]]", "a++",    "\\uD800", "(?i)a", "[]a]", "\xFF"}) {
    const Status status = from_regex(pattern).status();
    EXPECT_FALSE(status.ok()) << pattern;
    EXPECT_NE(status.message().find("pattern"), std::string::npos) << status.message();
  }
}

// --- GBNF

TEST(GbnfGrammar, RulesGroupsAndRepetitions) {
  expect_matches(from_gbnf("# a list\n"
                           "root ::= item (\",\" ws item)*   # comment\n"
                           "item ::= [a-z]{1,3}\n"
                           "  | \"\\\"\" [^\"\\\\]* \"\\\"\"\n"
                           "ws ::= \" \"?\n"),
                 {"abc", "a, b,\"x y\"", "\"\""}, {"abcd", "a,", ", a"});
  expect_matches(from_gbnf("root ::= 'yes' | 'no'"), {"yes", "no"}, {"", "maybe"});
  expect_matches(from_gbnf("root ::= (\n \"a\"\n | \"b\" )+ . [\\x41-\\u0043]"),
                 {"ab\xE2\x82\xAC"
                  "B"},
                 {"a"});
  expect_matches(from_gbnf("root ::= \"(\" root \")\" | \"x\""), {"x", "((x))"}, {"(x", "()"});
  expect_matches(from_gbnf("root ::= a{2} b{2,} c{,1}\na ::= \"a\"\nb ::= \"b\"\nc ::= \"c\""),
                 {"aabb", "aabbbc"}, {"abb", "aab", "aabbcc"});
}

TEST(GbnfGrammar, RefusesWithTheLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"root ::= other", "\"other\" is not there"},
      {"other ::= \"a\"", "\"root\" is not there"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2: the rule \"root\" is there twice"},
      {"root ::= \"a", "does not end"},
      {"root ::= (\"a\"", "has no )"},
      {"root ::= \"a\"\nx = \"b\"", "line 2: ::= must follow"},
      {"root ::= [z-a]", "wrong way round"},
      {"root ::= <[5]>", "not supported"},
      {"root ::= root \"a\" | \"a\"", "left-recursive"},
      {"root ::= e root \"a\" | \"a\"\ne ::= \"b\"?", "left-recursive"},
      {"root ::= \"a\" root", "nothing can match"},
      {"", "\"root\" is not there"},
  };
  for (const auto& [text, message] : cases) {
    const Status status = from_gbnf(text).status();
    EXPECT_NE(status.message().find(message), std::string::npos)
        << text << ": " << status.message();
  }
}

// --- JSON schemas

TEST(JsonSchemaGrammar, ObjectsHaveTheirPropertiesInOrder) {
  const auto grammar = from_schema(
      R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},
          "c":{"type":"boolean"}},"required":["b"],"additionalProperties":false})");
  expect_matches(
      grammar,
      {R"({"b":"x"})", R"({"a": 1, "b": "x"})",
       "{\n  \"a\": -12,\n  \"b\": \"\",\n  \"c\": true\n}", R"({ "b":"\u00e9\n\"", "c":false })"},
      {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","d":1})", R"({"b":"x",})",
       R"({,"b":"x"})", R"({"a":1.5,"b":"x"})", R"({"a":01,"b":"x"})", "{\"b\":\"\n\"}",
       R"({"b":"\x"})", R"({"b":"\ud800"})"});
}

TEST(JsonSchemaGrammar, OtherPropertiesOnlyWhereAskedForAndNeverTwice) {
  expect_matches(
      from_schema(
          R"({"properties":{"ab":{"type":"null"}},"additionalProperties":{"type":"integer"}})"),
      {"{}", R"({"ab":null})", R"({"ab":null,"x":1,"abc":2})", R"({"a":1})", R"({"":3})"},
      {R"({"ab":1})", R"({"ab":null,"ab":1})", R"({"x":null})", R"({"\u0061b":1})"});
  expect_matches(from_schema(R"({"type":"object","additionalProperties":{"type":"boolean"}})"),
                 {"{}", R"({"x":true, "y":false})"}, {R"({"x":1})"});
  expect_matches(from_schema(R"({"required":["q"],"properties":{"p":{"const":1}}})"),
                 {R"({"q":[1]})", R"({"p":1,"q":null})"}, {R"({"p":1})"});
  expect_matches(from_schema(R"({"type":"object","properties":{"a\nb":{"const":1}},
                                 "additionalProperties":{"const":2}})"),
                 {R"({"a\nb":1})", R"({"b":2})"}, {R"({"a\nb":2})"});
}

TEST(JsonSchemaGrammar, Arrays) {
  expect_matches(
      from_schema(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})"),
      {"[1]", "[1, 2,3]", "[ 1 ]"}, {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]"});
  expect_matches(
      from_schema(R"({"prefixItems":[{"const":"a"},{"const":2}],"items":{"type":"null"}})"),
      {"[]", R"(["a"])", R"(["a",2,null,null])"}, {"[2]", R"(["a",2,3])"});
  expect_matches(from_schema(R"({"prefixItems":[{"const":"a"},{"const":2}],"minItems":2})"),
                 {R"(["a",2])"}, {R"(["a"])", R"(["a",2,3])"});
  expect_matches(from_schema(R"({"prefixItems":[{"const":1},{"const":2}],"maxItems":1})"),
                 {"[]", "[1]"}, {"[1,2]"});
  expect_matches(from_schema(R"({"type":"array","items":false})"), {"[]"}, {"[1]"});
  expect_matches(from_schema(R"({"type":"array","maxItems":0})"), {"[]"}, {"[1]"});
}

TEST(JsonSchemaGrammar, Numbers) {
  expect_matches(from_schema(R"({"type":"integer","minimum":-12,"maximum":105})"),
                 {"-12", "-9", "-1", "0", "7", "99", "100", "105"},
                 {"-13", "106", "1000", "-0", "1.0"});
  expect_matches(from_schema(R"({"type":"integer","exclusiveMinimum":0,"maximum":9})"), {"1", "9"},
                 {"0", "10", "-1"});
  expect_matches(from_schema(R"({"type":"integer","minimum":2.5,"exclusiveMaximum":1000})"),
                 {"3", "999"}, {"2", "1000"});
  expect_matches(from_schema(R"({"type":"number","minimum":-2,"exclusiveMaximum":3})"),
                 {"-2", "-2.0", "-1.999", "-0.5", "0", "0.25", "2.999"},
                 {"-2.1", "3", "3.0", "-3", "1e5"});
  expect_matches(from_schema(R"({"type":"number","exclusiveMinimum":0})"), {"0.001", "1", "12.5"},
                 {"0", "0.0", "-1"});
  // Of a number that a validator would read as its bound there is none.
  expect_matches(from_schema(R"({"type":"number","exclusiveMinimum":641,"exclusiveMaximum":700})"),
                 {"641.000000000001", "699.999999999999", "650.1234567890123456"},
                 {"641.0000000000001", "699.9999999999999", "641.0", "700.0"});
  expect_matches(from_schema(R"({"type":"number","exclusiveMinimum":-3,"exclusiveMaximum":-2})"),
                 {"-2.00000000000001", "-2.99999999999999", "-2.5"},
                 {"-2.9999999999999999", "-2.0000000000000001", "-2", "-3"});
  expect_matches(
      from_schema(R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":999999999999999})"),
      {"0.0000000000000001", "999999999999998"}, {"999999999999998.9", "0.0"});
  expect_matches(from_schema(R"({"type":"number"})"), {"0", "-1.5e+10", "12E3", "0.5"},
                 {"01", "1.", ".5", "+1", "1e999", "NaN"});
}

// The bounds of integers, against counting.
TEST(JsonSchemaGrammar, BoundsOfIntegersAreExact) {
  const std::pair<int, int> bounds[] = {{0, 0},     {1, 10},      {-10, -1},  {-101, 99},
                                        {8, 12},    {95, 105},    {100, 100}, {-7, 1234},
                                        {199, 201}, {-1000, -999}};
  for (const auto& [low, high] : bounds) {
    const auto grammar = from_schema("{\"type\":\"integer\",\"minimum\":" + std::to_string(low) +
                                     ",\"maximum\":" + std::to_string(high) + "}");
    ASSERT_TRUE(grammar.ok());
    for (int value = -1300; value <= 1300; ++value) {
      EXPECT_EQ(matches(**grammar, std::to_string(value)), low <= value && value <= high)
          << value << " in " << low << ".." << high;
    }
  }
}

TEST(JsonSchemaGrammar, Strings) {
  expect_matches(from_schema(R"({"type":"string","minLength":1,"maxLength":3})"),
                 {R"("a")", R"("\n\n\n")", "\"\xC3\xA9\xF0\x9F\x98\x80x\"", R"("\ud83d\ude00ab")"},
                 {R"("")", R"("abcd")"});
  expect_matches(from_schema(R"({"type":"string","pattern":"^[a-c\"\\\\\n]+$"})"),
                 {R"("abc")", R"("\"\\\n")"}, {R"("d")", "\"\n\"", R"("")"});
  expect_matches(from_schema(R"({"format":"date"})"), {R"("2024-02-28")", R"("1999-12-31")"},
                 {R"("2024-02-30")", R"("2024-13-01")", R"("24-01-01")"});
  expect_matches(from_schema(R"({"type":"string","format":"date-time"})"),
                 {R"("2024-06-30T23:59:59Z")", R"("2024-06-30T00:00:00.123+02:00")"},
                 {R"("2024-06-30")", R"("2024-06-31T00:00:00Z")"});
  expect_matches(from_schema(R"({"format":"uuid"})"), {R"("123e4567-e89b-12d3-a456-426614174000")"},
                 {R"("123e4567")"});
  expect_matches(from_schema(R"({"format":"duration"})"),
                 {R"("P3D")", R"("PT1H30M")", R"("P1Y2M3DT4S")"},
                 {R"("P")", R"("3D")", R"("P1DT")"});
  expect_matches(from_schema(R"({"format":"ipv6"})"),
                 {R"("::1")", R"("1:2:3:4:5:6:7:8")", R"("fe80::1")"}, {R"("1:2:3")", R"(":::")"});
  expect_matches(from_schema(R"({"format":"uri"})"), {R"("https://a.b/c?d=%20")"}, {R"("a b")"});
  expect_matches(from_schema(R"({"format":"ipv4"})"), {R"("192.168.0.255")"}, {R"("256.1.1.1")"});
  expect_matches(from_schema(R"({"format":"email"})"), {R"("a.b@c.de")"},
                 {R"("a@")", R"("a b@c")", R"("a..b@c")", R"(".a@c")"});
}

// Validators count characters: a model that does not find an end must not write too many.
TEST(JsonSchemaGrammar, NamesOfMailAndHostsEnd) {
  const auto quoted = [](const std::string& text) { return "\"" + text + "\""; };
  const std::string label(63, 'a'), words = "a.b.c.d.e.f.g.h";
  expect_matches(from_schema(R"({"format":"hostname"})"),
                 {quoted(label), quoted(label + "." + label + "." + label), quoted(words)},
                 {quoted(label + "a"), quoted(label + "." + label + "." + label + "." + label),
                  quoted(words + ".i.j.k"), quoted("a-.b")});
  expect_matches(from_schema(R"({"format":"email"})"),
                 {quoted(label + "a@c.de"), quoted("first.last+tag@" + words)},
                 {quoted(label + "aa@c.de"), quoted(words + "." + label + "@c.de"),
                  quoted("a@" + label + "a")});
}

TEST(JsonSchemaGrammar, UnionsReferencesAndConstants) {
  expect_matches(from_schema(R"({"enum":["a","ab",1,null,{"x":[1]}]})"),
                 {R"("a")", R"("ab")", "1", "null", R"({"x":[1]})"},
                 {R"("b")", "2", R"({"x": [1]})"});
  expect_matches(from_schema(R"({"type":"string","enum":["a",1]})"), {R"("a")"}, {"1"});
  expect_matches(from_schema(R"({"anyOf":[{"type":"integer"},{"type":"null"}],"default":null})"),
                 {"1", "null"}, {"true"});
  expect_matches(from_schema(R"({"type":["boolean","null"]})"), {"true", "null"}, {"1"});
  expect_matches(
      from_schema(
          R"({"allOf":[{"$ref":"#/$defs/a"},{"properties":{"b":{"const":2}},"required":["b"]}],
                                 "$defs":{"a":{"type":"object","properties":{"a":{"const":1}},"required":["a"]}}})"),
      {R"({"a":1,"b":2})"}, {R"({"a":1})", R"({"b":2})"});
  expect_matches(
      from_schema(R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":
                     {"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"]}}})"),
      {R"({"v":1})", R"({"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]})"}, {R"({"v":1,"kids":[{}]})"});
  expect_matches(from_schema("true"), {"1", "[{}]", R"({"a":[null,"x"]})"}, {"", "x", "[1"});
  expect_matches(from_schema("{}"), {"{}", "false"}, {"nope"});
}

// Keywords that say nothing beside what a form has anyway.
TEST(JsonSchemaGrammar, KeywordsThatSayNothing) {
  expect_matches(from_schema(R"({"type":"string","format":"ipv4network"})"), {R"("x")"}, {"1"});
  expect_matches(from_schema(R"({"type":"string","format":"uri","minLength":1})"),
                 {R"("https://a.b")"}, {R"("")"});
  expect_matches(from_schema(R"({"type":"integer","minimum":0,"maximum":18446744073709551615.0})"),
                 {"0", "1234567890123456"}, {"-1"});
  expect_matches(from_schema(R"({"type":"number","multipleOf":1})"), {"2"}, {"2.5", "1e-3"});
  expect_matches(from_schema(R"({"type":"object","unevaluatedProperties":false})"), {"{}"},
                 {R"({"a":1})"});
  expect_matches(from_schema(R"({"$ref":"#/$defs/a%20b","$defs":{"a b":{"type":"null"}}})"),
                 {"null"}, {"1"});
}

TEST(JsonSchemaGrammar, OneOfWhoseSchemasAreApart) {
  expect_matches(from_schema(R"({"oneOf":[{"type":"integer"},{"type":"string"},{"const":null}]})"),
                 {"1", R"("a")", "null"}, {"true"});
  expect_matches(from_schema(
                     R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{
              "a":{"type":"object","properties":{"v":{"type":"integer"},"kind":{"const":"a"}},"required":["v","kind"]},
              "b":{"type":"object","properties":{"v":{"type":"integer"},"kind":{"const":"b"}},"required":["v","kind"]}}})"),
                 {R"({"v":1,"kind":"a"})", R"({"v":1,"kind":"b"})"},
                 {R"({"v":1,"kind":"c"})", R"({"v":1})"});
}

// An allOf that leads back to where it stands, through unions on the way: a tree, and no recursion
// of the compiler.
TEST(JsonSchemaGrammar, AllOfThatLeadsBack) {
  std::string inner = R"({"type":"object","allOf":[{"$ref":"#/$defs/a"}]})";
  for (int i = 0; i < 20; ++i) inner = R"({"anyOf":[)" + inner + "]}";
  expect_matches(from_schema(R"({"$defs":{"a":{"type":"object","properties":{"x":)" + inner +
                             R"(}}},"type":"object","allOf":[{"$ref":"#/$defs/a"}]})"),
                 {"{}", R"({"x":{}})", R"({"x":{"x":{"x":{}}}})"}, {R"({"x":1})", R"({"y":{}})"});
}

// What costs many times its size is done once, or refused.
TEST(JsonSchemaGrammar, WorkIsBoundedByTheSchema) {
  std::string names, refs, types, values, classes;
  for (int i = 0; i < 14'000; ++i) names += (i ? ",\"n" : "\"n") + std::to_string(i) + "\"";
  for (int i = 0; i < 4'900; ++i)
    refs += i ? R"(,{"$ref":"#/$defs/a"})" : R"({"$ref":"#/$defs/a"})";
  for (int i = 0; i < 11'000; ++i) types += i ? R"(,"string")" : R"("string")";
  for (int i = 0; i < 60'000; ++i) values += i ? ",1" : "1";
  for (int i = 0; i < 40'000; ++i) {
    classes +=
        std::string("[!") + static_cast<char>('#' + i % 50) + static_cast<char>('a' + i % 26) + "]";
  }
  const auto start = std::chrono::steady_clock::now();
  (void)from_schema(R"({"$defs":{"a":{"required":[)" + names + R"(]}},"type":"object","allOf":[)" +
                    refs + "]}");
  (void)from_schema(R"({"type":[)" + types + R"(],"enum":[)" + values + "]}");
  (void)from_schema(R"({"type":"string","pattern":")" + classes + R"("})");
  // Unions of one long text, and of what begins with it.
  const std::string text(50'000, 'x');
  std::string unions;
  for (int i = 0; i < 5'000; ++i)
    unions += i ? R"(,{"$ref":"#/$defs/a"})" : R"({"$ref":"#/$defs/a"})";
  expect_matches(
      from_schema(R"({"$defs":{"a":{"const":")" + text + R"("}},"anyOf":[)" + unions + "]}"),
      {"\"" + text + "\""}, {"1"});
  unions.clear();
  for (int i = 0; i < 2'000; ++i) {
    unions += (i ? "," : "") +
              (R"({"type":"object","properties":{"a":{"$ref":"#/$defs/a"},"b":{"const":)" +
               std::to_string(i) + R"(}},"required":["a","b"]})");
  }
  (void)from_schema(R"({"$defs":{"a":{"const":")" + text + R"("}},"anyOf":[)" + unions + "]}");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
#ifndef HEADRACE_SANITIZED
  EXPECT_LT(took.count(), 10);  // they took 34, 38 and 2 s
#endif
  (void)took;
}

TEST(JsonSchemaGrammar, RefusesByPlaceAndName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties":{"a":{"type":"array","uniqueItems":true}}})",
       "#/properties/a: \"uniqueItems\" is not supported"},
      {R"({"type":"object","properties":{"a":{"not":{}}}})", "#/properties/a: \"not\" is not"},
      {R"({"anyOf":[{"patternProperties":{"a":{}}}]})", "#/anyOf/0: \"patternProperties\""},
      {R"({"multipleOf":3,"type":"integer"})", "\"multipleOf\""},
      {R"({"type":"text"})", "\"type\" is none of JSON's"},
      {R"({"$ref":"http://x/y"})", "must begin with #"},
      {R"({"$ref":"#/$defs/x"})", "leads to nothing"},
      {R"({"$ref":"#"})", "nothing can match"},
      {R"({"type":"string","format":"date","maxLength":3})", "beside \"minLength\""},
      {R"({"type":"string","format":"date","pattern":"a"})", "\"pattern\" beside \"format\""},
      {R"({"type":"integer","allOf":[{"minimum":3},{"maximum":5}]})", "of what are no objects"},
      {R"({"allOf":[{"minLength":3},{"maxLength":5}]})", "of what are no objects"},
      {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
       "beside other schemas of an \"allOf\""},
      {R"({"allOf":[{"properties":{"a":{}}},{"properties":{"b":{}}}],"unevaluatedProperties":false})",
       "\"unevaluatedProperties\" beside or in"},
      {R"({"type":"number","multipleOf":0.5})", "\"multipleOf\" but 1"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "use \"anyOf\""},
      {R"({"oneOf":[{"const":1},{"const":1.0}]})", "use \"anyOf\""},
      {R"({"oneOf":[{"type":"object","properties":{"a":{}}},{"type":"object","properties":{"b":{}}}]})",
       "use \"anyOf\""},
      {"{\"type\":\"string\",\"pattern\":\"(?=a)\"}", "pattern"},
      {R"({"type":"string","pattern":"a","maxLength":3})", "beside \"minLength\""},
      {R"({"type":"number","minimum":0.5})", "with a fraction"},
      {R"({"type":"integer","minimum":5,"maximum":1})", "nothing can match"},
      {R"({"required":["a"],"additionalProperties":false})", "required and not allowed"},
      {R"({"properties":[]})", "\"properties\" must be an object"},
      {R"({"enum":[]})", "has no value"},
      {R"({"anyOf":[{"type":"null"}],"properties":{}})", "keywords beside \"anyOf\""},
      {R"({"type":"string","maxLength":100000000})", "too large"},
      {R"({"allOf":[{"$ref":"#"},{"$ref":"#"}]})", "refers to itself"},
      {R"({"properties":{"a":3}})", "must be an object, true or false"},
      {R"({"minLength":-1})", "must be a count"},
  };
  for (const auto& [schema, message] : cases) {
    EXPECT_NE(schema_error(schema).find(message), std::string::npos)
        << schema << ": " << schema_error(schema);
  }
}

// --- whole answers

GrammarResult from_plan(AnswerPlan plan) { return answer_grammar(plan); }

OutputDialect hermes(bool thinks) {
  OutputDialect dialect;
  dialect.tools = *choose_tool_dialect("hermes", "");
  if (thinks) dialect.reasoning = *choose_reasoning_dialect("qwen3", "");
  return dialect;
}

AnswerPlan calls_plan(CallForm::Need need) {
  AnswerPlan plan;
  plan.dialect = hermes(false);
  plan.calls.need = need;
  plan.calls.tools = {
      {"f", *parse_json(R"({"properties":{"x":{"type":"integer"}},"required":["x"]})"), "t"},
      {"g", Json(), "t"}};
  return plan;
}

constexpr const char* kCallOfF =
    "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>";
constexpr const char* kBadCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

TEST(AnswerGrammar, CallsThatMustBe) {
  AnswerPlan plan = calls_plan(CallForm::Need::kMustCall);
  const std::string one = kCallOfF;
  const std::string g =
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"any\": [2]}}\n</tool_call>";
  expect_matches(from_plan(plan), {one, one + "\n" + g}, {"", "hi", kBadCall, one + "x"});
  plan.calls.one_call = true;
  expect_matches(from_plan(plan), {one}, {one + "\n" + one});
  // A mark may be a control token.
  std::string controls = one;
  controls.insert(0, "\xFF");
  controls.insert(controls.rfind("</tool_call>"), "\xFF");
  expect_matches(from_plan(plan), {controls}, {"\xFF" + std::string("x")});
}

TEST(AnswerGrammar, CallsThatMayBe) {
  const std::string one = kCallOfF;
  expect_matches(
      from_plan(calls_plan(CallForm::Need::kMayCall)),
      {"", "words", one, "Let me see. <tool_ca <<" + one + "\nmore " + one, "<tool_call"},
      {kBadCall, "<tool_call>", "x" + std::string(kBadCall), one + "\n" + kBadCall});
}

TEST(AnswerGrammar, ThoughtsAreFree) {
  AnswerPlan plan;
  plan.words.kind = AnswerForm::Kind::kChoice;
  plan.words.choices = {"yes", "no"};
  plan.dialect = hermes(true);
  expect_matches(from_plan(plan), {"yes", "<think>\nno? {</thin </think>\n\nyes"},
                 {"maybe", "<think>yes", "hm</think>yes", " yes"});
  plan.may_open_thought = false;  // it was switched off
  expect_matches(from_plan(plan), {"yes", "no"},
                 {"<think>\n</think>\n\nyes", "maybe", "</think>no"});
  const std::string key = plan.key();
  plan.may_open_thought = true;
  EXPECT_NE(plan.key(), key);
  plan.starts_in_reasoning = true;
  expect_matches(from_plan(plan), {"hm</think>yes", "</think>\n\nno", "<<</think>no"},
                 {"yes", "", "hm</think>maybe", "hm</think>"});
  plan.may_open_thought = false;  // the prompt has opened one, which has to end
  expect_matches(from_plan(plan), {"</think>\n\nno"}, {"yes", "no"});
}

TEST(AnswerGrammar, ErrorsNameTheField) {
  AnswerPlan plan;
  plan.words.kind = AnswerForm::Kind::kRegex;
  plan.words.pattern = "(";
  plan.words.field = "guided_regex";
  EXPECT_EQ(from_plan(plan).status().field(), "guided_regex");
  plan.dialect.tools = *choose_tool_dialect("openai", "");
  EXPECT_NE(from_plan(plan).status().message().find("channels"), std::string::npos);
  AnswerPlan calls = calls_plan(CallForm::Need::kMustCall);
  calls.calls.tools[0].parameters = *parse_json(R"({"not":{}})");
  EXPECT_EQ(from_plan(calls).status().field(), "t");
}

// --- bounds

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What a client can send costs a fraction of a second at most, and ends in a grammar or an error.
TEST(GrammarBounds, HostileFormsEndSoon) {
  std::string nested = "a";
  for (int i = 0; i < 90; ++i) nested = "(" + nested + ")*";
  std::string names = R"({"type":"object","properties":{)";
  for (int i = 0; i < 3000; ++i) names += (i ? ",\"p" : "\"p") + std::to_string(i) + "\":{}";
  names += "}}";
  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 3000; ++i) {
    chain +=
        "\"d" + std::to_string(i) + "\":{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"},";
  }
  chain += R"("d3000":{"type":"null"}}})";
  std::string fan = R"({"allOf":[{"$ref":"#/$defs/d0"},{"$ref":"#/$defs/d0"}],"$defs":{)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"}";
    fan += "\"d" + std::to_string(i) + "\":{\"allOf\":[" + next + "," + next + "]},";
  }
  fan += R"("d40":{"type":"object"}}})";
  const std::function<void()> cases[] = {
      [&] { EXPECT_TRUE(from_regex(nested).ok()); },
      [&] { EXPECT_FALSE(from_regex(std::string(5000, '(')).ok()); },
      [&] { EXPECT_FALSE(from_regex("(((a{1,200}){1,200}){1,200}b){99999}{9}").ok()); },
      [&] { EXPECT_FALSE(from_regex(std::string(400'000, 'a')).ok()); },
      [&] { EXPECT_TRUE(from_schema(names).ok()); },
      [&] { expect_matches(from_schema(chain), {"null"}, {"1"}); },
      [&] { EXPECT_FALSE(from_schema(fan).ok()); },
      [&] { EXPECT_FALSE(from_schema(R"({"type":"array","minItems":99999999})").ok()); },
      [&] { EXPECT_TRUE(from_gbnf("root ::= (\"a\"{1,9999}){1,9999}{1,9999} ").ok()); },
  };
  for (const auto& each : cases) EXPECT_LT(seconds_of(each), 20.0);  // under sanitizers too
}

// A text whose readings double with every byte is given up, not followed.
TEST(GrammarBounds, TooManyReadingsEndThePlace) {
  const auto grammar =
      from_gbnf("root ::= \"a\" root x | \"a\" root y | \"a\"\nx ::= \"b\"?\ny ::= \"c\"?");
  ASSERT_TRUE(grammar.ok());
  GrammarPlace place(std::make_shared<GrammarAutomaton>(*grammar));
  const double seconds = seconds_of([&] { EXPECT_FALSE(place.accept(std::string(500, 'a'))); });
  EXPECT_LT(seconds, 20.0);
  EXPECT_TRUE(place.dead());
}

// Deeper than stacks may be: the brackets that still may come are those that close.
TEST(GrammarBounds, NestingHasAnEnd) {
  const auto grammar = from_schema(R"({"type":"array"})");
  ASSERT_TRUE(grammar.ok());
  EXPECT_TRUE(matches(**grammar, std::string(60, '[') + std::string(60, ']')));
  EXPECT_FALSE(matches(**grammar, std::string(5000, '[') + std::string(5000, ']')));
}

// A generation of states is replaced when it is full: places move into the next.
TEST(GrammarBounds, StatesAreForgottenAndFoundAgain) {
  const auto grammar = from_regex("((a|b)(c|d){0,3000}e?){1,400}f");
  ASSERT_TRUE(grammar.ok());
  const auto automaton = std::make_shared<GrammarAutomaton>(*grammar);
  GrammarPlace first(automaton);
  EXPECT_TRUE(first.accept("ac"));
  for (int round = 0; round < 40; ++round) {
    GrammarPlace other(automaton);
    std::string text;
    for (int i = 0; i < 900; ++i) text += i % (round + 2) == 0 ? 'a' : 'c';
    other.accept(text);
  }
  EXPECT_TRUE(first.accept("d"));
  EXPECT_FALSE(first.can_end());
  EXPECT_TRUE(first.accept("ef"));
  EXPECT_TRUE(first.can_end());
}

}  // namespace
}  // namespace headrace::grammar_test
