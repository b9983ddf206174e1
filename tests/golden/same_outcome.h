// Two outcomes of a request are the same, bit for bit.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model_under_test.h"

namespace headrace {

inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline void expect_same_logprobs(const TokenLogprobs& a, const TokenLogprobs& b,
                                 const std::string& where) {
  EXPECT_EQ(a.token, b.token) << where;
  EXPECT_TRUE(same_bits(a.logprob, b.logprob)) << where << ": " << a.logprob << " " << b.logprob;
  ASSERT_EQ(a.top.size(), b.top.size()) << where;
  for (size_t k = 0; k < a.top.size(); ++k) {
    EXPECT_EQ(a.top[k].first, b.top[k].first) << where << " top " << k;
    EXPECT_TRUE(same_bits(a.top[k].second, b.top[k].second)) << where << " top " << k;
  }
}

inline void expect_same_lists(const std::vector<TokenLogprobs>& a,
                              const std::vector<TokenLogprobs>& b, const std::string& where) {
  ASSERT_EQ(a.size(), b.size()) << where;
  for (size_t i = 0; i < a.size(); ++i) {
    expect_same_logprobs(a[i], b[i], where + " position " + std::to_string(i));
  }
}

inline void expect_same(const Outcome& a, const Outcome& b, const std::string& where) {
  EXPECT_EQ(a.tokens, b.tokens) << where;
  EXPECT_EQ(a.finish, b.finish) << where;
  expect_same_lists(a.logprobs, b.logprobs, where);
  expect_same_lists(a.prompt_logprobs, b.prompt_logprobs, where + " prompt");
}

}  // namespace headrace
