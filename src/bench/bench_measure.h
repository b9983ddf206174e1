// Times prefill and decode through an Engine: random ids, greedy, ends ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stack/model_stack.h"

namespace headrace {

// What llama-bench calls a test.
//   prompt only ("pp512")          submission to the first token
//   generation only ("tg128")      that many steps, from a prompt of one token
//   both ("pp512+tg128")           submission to the last token
//   streams ("tg128 @ d128 x8")    that many sequences with `depth` tokens of prompt each; timed
//                                  from when all have their first token to when all are done
struct BenchTest {
  int32_t prompt = 0;
  int32_t generate = 0;
  int32_t depth = 0;    // streams only
  int32_t streams = 0;  // 0: one of the first three

  std::string name() const;
  int32_t context() const { return depth + prompt + generate + 1; }  // tokens of one sequence
};

struct BenchResult {
  BenchTest test;
  int64_t test_time_unix_s = 0;
  std::vector<int64_t> samples_ns;
  std::vector<double> samples_ts;  // tokens a second

  double average_ns() const;
  double stddev_ns() const;
  double average_ts() const;
  double stddev_ts() const;  // of a sample, as the others
};

struct BenchPlan {
  int32_t repetitions = 5;
  bool warm_up = true;  // one run that is not counted
  // Called between runs, with how many are done of how many.
  std::function<void(int32_t done, int32_t runs)> on_run = nullptr;
};

// The engine must hold test.streams sequences of test.context() tokens and be idle.
Result<BenchResult> measure(ModelStack& stack, const BenchTest& test, const BenchPlan& plan);

}  // namespace headrace
