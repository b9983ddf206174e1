#include "base/json.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

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

TEST(Json, HoldsItsLimits) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_TRUE(parse_json(nested(64)).ok());
  EXPECT_FALSE(parse_json(nested(66)).ok());
  EXPECT_FALSE(parse_json(nested(100'000)).ok());
  EXPECT_FALSE(parse_json("{\"a\":1,\"b\":2}", {.depth_max = 4, .key_count_max = 1}).ok());
}

TEST(Json, WritesBadBytesAsReplacementAndDoublesAsDoubles) {
  EXPECT_EQ(write_json(Json(std::string("a\xff") + "b\x01")),
            "\"a\xef\xbf\xbd"
            "b\\u0001\"");
  EXPECT_EQ(write_json(Json(1.0)), "1.0");
  EXPECT_EQ(write_json(Json(0.1)), "0.1");
}

}  // namespace
}  // namespace headrace
