// How a model is split over ranks (tensor parallelism; Megatron-LM, Shoeybi et al., 2019): each
// rank has some heads of every attention, some columns between the two products of a feed-forward
// network, some rows of the output matrix, and all of the hidden rows. Of a mixture it may have
// some of the experts instead of columns of each (expert parallelism; GShard, Lepikhin et al.,
// 2020).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace headrace {

// What the ranks make of the product at the end of a branch, whose input they share.
enum class ShardSums : uint8_t {
  kGather,  // each gathers the whole input and computes some of the outputs: every output has the
            // order of arithmetic that it has on one rank, and so its bits
  kReduce,  // each multiplies its part of the input, and the results are added up in the order of
            // the ranks: half as many rows travel, and bits depend on how many ranks there are
};

struct ShardSpec {
  int32_t rank = 0;
  int32_t ranks = 1;
  ShardSums sums = ShardSums::kGather;
  bool whole_experts = false;  // a rank has experts, not columns of every one
  // Of kReduce, for tests: one rank has all parts and adds up the same sums in the same order.
  bool all_on_one = false;
  bool is_split() const { return ranks > 1; }
};

// Neighbouring ranges of `total` things, one a rank.
class Shares {
 public:
  Shares() = default;
  // As equal as whole units allow; units of one where there are too few.
  Shares(int64_t total, int32_t ranks, int64_t unit) {
    starts_.clear();
    const int64_t units = total / unit;
    const bool fits = total % unit == 0 && units >= ranks;
    for (int32_t r = 0; r <= ranks; ++r) {
      starts_.push_back(fits ? units * r / ranks * unit : total * r / ranks);
    }
  }
  // Their starts, and the end of the last.
  explicit Shares(std::vector<int64_t> starts) : starts_(std::move(starts)) {}

  int64_t first(int32_t rank) const { return starts_[static_cast<size_t>(rank)]; }
  int64_t count(int32_t rank) const { return first(rank + 1) - first(rank); }
  int64_t total() const { return starts_.back(); }
  // Of what may not be shared out: every rank has all of that.
  bool is_shared_out() const { return ranks() > 1; }
  int64_t first_of(int32_t rank) const { return is_shared_out() ? first(rank) : 0; }
  int64_t count_of(int32_t rank) const { return is_shared_out() ? count(rank) : total(); }
  int32_t ranks() const { return static_cast<int32_t>(starts_.size()) - 1; }
  std::span<const int64_t> starts() const { return starts_; }
  // Of what each of these things has so many of: columns of heads.
  Shares times(int64_t each) const {
    std::vector<int64_t> starts = starts_;
    for (int64_t& start : starts) start *= each;
    return Shares(std::move(starts));
  }

 private:
  std::vector<int64_t> starts_ = {0, 0};
};

// Of the columns between two products, cut at whole blocks of any type where they can be.
inline Shares inner_shares(int64_t width, int32_t ranks) {
  constexpr int64_t kWideUnit = 256, kBlockUnit = 32;
  const bool wide = width % kWideUnit == 0 && width / kWideUnit >= ranks;
  return {width, ranks, wide ? kWideUnit : kBlockUnit};
}

}  // namespace headrace
