// Adds up what an OpProbe sees: one entry for a kernel, shape and number of rows.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "ops/op.h"

namespace headrace {

struct OpTotal {
  std::string kernel;
  OpCost cost;  // of one call
  int64_t calls = 0;
  int64_t nanoseconds = 0;  // of all calls
};

// Written by the engine thread, read by another: any thread.
class OpProfile final : public OpProbe {
 public:
  void ran(std::string_view kernel, const OpCost& cost, int64_t nanoseconds) override;
  // Longest first. Starts anew.
  std::vector<OpTotal> take();

 private:
  // Attention's calls differ in bytes from step to step: an entry has the mean of its calls.
  using Key = std::tuple<std::string, std::string, int64_t>;  // kernel, shape, rows
  std::mutex mutex_;
  std::map<Key, OpTotal> totals_;  // cost: bytes and flops of all calls
};

}  // namespace headrace
