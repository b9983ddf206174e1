#include "base/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace headrace::json_test {
namespace {

TEST(Json, NothingIsNoJson) {
  EXPECT_FALSE(parse_json(std::string_view()).ok());
  EXPECT_FALSE(parse_json("").ok());
}

TEST(Json, RoundTrips) {
  const std::string text =
      R"({"a":[1,-2.5,true,null,"x\ny \u00e9"],"b":{},"big":9223372036854775807})";
  const auto value = parse_json(text);
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(write_json(*value),
            "{\"a\":[1,-2.5,true,null,\"x\\ny \xc3\xa9\"],\"b\":{},\"big\":9223372036854775807}");
  EXPECT_EQ(value->find("a")->as_array()[0].as_int(), 1);
  EXPECT_EQ(value->find("zz"), nullptr);
}

TEST(Json, RefusesWhatAStrictReaderRefuses) {
  for (const char* text : {"", "{", "[1,]", "NaN", "1e999", "{\"a\":1,\"a\":2}", "\"\\ud800\"",
                           "01", "\"\xff\"", "1 2", "'a'"}) {
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
}

// Python writes integers of any length, as Hugging Face's "no bound": int(1e30).
TEST(Json, IntegersBeyond64BitsAreDoubles) {
  const auto value = parse_json(
      R"({"a \"1000000000000000000000":"12345678901234567890123","model_max_length":)"
      R"(1000000000000000019884624838656,"list":[-9223372036854775809, 9223372036854775808,)"
      R"(18446744073709551616 ,9223372036854775807,-9223372036854775808,1e-12345678901234567890]})");
  ASSERT_TRUE(value.ok()) << value.status().message();
  EXPECT_EQ(value->find("a \"1000000000000000000000")->as_string(), "12345678901234567890123");
  const Json& longest = *value->find("model_max_length");
  EXPECT_TRUE(longest.is_double());
  EXPECT_FALSE(longest.is_int());
  EXPECT_EQ(longest.as_double(), 1e30);
  const Json::Array& list = value->find("list")->as_array();
  EXPECT_EQ(list[0], Json(-9223372036854775808.0));
  EXPECT_EQ(list[1], Json(9223372036854775808.0));
  EXPECT_EQ(list[2], Json(18446744073709551616.0));
  EXPECT_EQ(list[3], Json(INT64_MAX));
  EXPECT_EQ(list[4], Json(INT64_MIN));
  EXPECT_EQ(list[5], Json(0.0));
  EXPECT_EQ(parse_json("123456789012345678901234567890")->as_double(),
            123456789012345678901234567890.0);
}

TEST(Json, LongIntegersMakeNothingOfWhatIsNoJson) {
  const std::string digits(40, '7');
  for (const std::string& text :
       {std::string(400, '7'), "[" + digits, "[" + digits + ",]", "0" + digits, digits + "x",
        "[" + digits + " " + digits + "]", "+" + digits, "-" + digits + "-", "[\"" + digits + "]",
        "[" + digits + ",1e999]", digits + "\"", "[" + digits + ",\"\xff\"]"}) {
    const auto value = parse_json(text);
    EXPECT_EQ(value.status().code(), StatusCode::kInvalidArgument) << text;
  }
  const std::string deep = std::string(80, '[') + digits + std::string(80, ']');
  EXPECT_EQ(parse_json(deep).status().code(), StatusCode::kExhausted);
}

TEST(Json, HoldsItsLimits) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(64)).ok());
  EXPECT_FALSE(parse_json(nested(66)).ok());
  EXPECT_FALSE(parse_json(nested(100'000)).ok());
  EXPECT_FALSE(parse_json("{\"a\":1,\"b\":2}", {.depth_max = 4, .key_count_max = 1}).ok());
  EXPECT_TRUE(parse_json("{\"a\":1,\"b\":{\"c\":2}}", {.object_keys_max = 2}).ok());
  EXPECT_FALSE(parse_json("{\"a\":1,\"b\":2,\"c\":2}", {.object_keys_max = 2}).ok());
}

// Elements are counted over all arrays of a document, at any depth.
TEST(Json, CountsElementsOfAllArraysTogether) {
  const JsonLimits limits{.key_count_max = 2, .element_count_max = 6};
  EXPECT_TRUE(parse_json("[1,2,[3,4,5]]", limits).ok());
  EXPECT_FALSE(parse_json("[1,2,[3,4,5,6]]", limits).ok());
  EXPECT_TRUE(parse_json(R"({"a":[1,2,3],"b":[4,5,6]})", limits).ok());
  EXPECT_FALSE(parse_json(R"({"a":[1,2,3],"b":[4,5,6,7]})", limits).ok());
  // Commas of a text are none of the document's.
  EXPECT_TRUE(parse_json("[\"" + std::string(100, ',') + "\\\",,,,,,,,,,,,,,,\"]", limits).ok());
}

// What is refused for its size costs nothing but reading it: no tape, no values.
TEST(Json, ACrowdIsRefusedBeforeItIsParsed) {
  std::string zeros = "[0";
  while (zeros.size() < (size_t{8} << 20)) zeros += ",0";
  const JsonLimits limits{.element_count_max = 1000};
  const Status refused =
      parse_json(zeros, limits).status();  // not closed: the parser was not asked
  EXPECT_EQ(refused.code(), StatusCode::kExhausted);
  EXPECT_NE(refused.message().find("more than 1000 elements"), std::string::npos);
}

TEST(Json, TextsShareAnAllowance) {
  JsonLimits left{.key_count_max = 3, .element_count_max = 5};
  ASSERT_TRUE(parse_json_within(R"({"a":[1,2,3]})", left).ok());
  EXPECT_EQ(left.key_count_max, 2u);
  EXPECT_EQ(left.element_count_max, 2u);
  EXPECT_FALSE(parse_json_within("[1,2,3]", left).ok());
  EXPECT_TRUE(parse_json_within(R"({"a":[1],"b":[2]})", left).ok());
  EXPECT_FALSE(parse_json_within("[1]", left).ok());
}

TEST(Json, MergeReplacesAndAppends) {
  Json json = Json::object().set("a", 1).set("b", 2).set("c", 3);
  json.merge({{"d", 4}, {"b", 5}});
  EXPECT_EQ(write_json(json), R"({"a":1,"c":3,"d":4,"b":5})");
}

// With set() in a loop, or names compared with each other, 400,000 members take minutes.
TEST(Json, ObjectsOfAnySizeAreReadAndMergedInTime) {
  std::string text = "{";
  for (int i = 0; i < 400'000; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  const auto start = std::chrono::steady_clock::now();
  Json json = parse_json(text + "}", {.key_count_max = 1'000'000}).value();
  json.merge(json.as_object());
  EXPECT_EQ(json.as_object().size(), 400'000u);
  EXPECT_FALSE(parse_json(text + ",\"7\":0}", {.key_count_max = 1'000'000}).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Json, WritesBadBytesAsReplacementAndDoublesAsDoubles) {
  EXPECT_EQ(write_json(Json(std::string("a\xff") + "b\x01")),
            "\"a\xef\xbf\xbd"
            "b\\u0001\"");
  EXPECT_EQ(write_json(Json(1.0)), "1.0");
  EXPECT_EQ(write_json(Json(0.1)), "0.1");
}

}  // namespace
}  // namespace headrace::json_test
