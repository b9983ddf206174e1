#include "apps/remote_chat.h"

#include <gtest/gtest.h>

namespace headrace::remote_chat_test {
namespace {

TEST(RefusalText, IsSafeToShow) {
  EXPECT_EQ(refusal_text("{\"error\":{\"message\":\"a\\u001b]52;c;aGk=\\u0007\\nb\"}}"),
            "a]52;c;aGk= b");
  EXPECT_EQ(refusal_text("raw \x1b[31mred\nsecond"), "raw [31mred");
}

TEST(RefusalText, IsCutBetweenCharacters) {
  std::string body;
  for (int i = 0; i < 300; ++i) body += "\u20ac";
  EXPECT_EQ(refusal_text(body), body.substr(0, 399));
  EXPECT_EQ(refusal_text("{\"detail\":\"" + body + "\"}"), body.substr(0, 399));
}

}  // namespace
}  // namespace headrace::remote_chat_test
