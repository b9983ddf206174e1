// How often what a draft proposes is right, by its place in a tree, as measured; and the tree that
// is likeliest to be right, of so many tokens (the sparse trees of Medusa, Cai et al. 2024, which
// are made of such measurements once, before a server starts).
//
// Of the tokens behind one that is right the first (rank 0) is right with a chance that depends on
// its depth; where all before it are wrong, each of the others with one of its own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sched/proposal_options.h"
#include "sched/token_tree.h"

namespace headrace {

// A mean of the last so many, with what it was made of.
struct MeasuredShare {
  double mean = 0, weight = 0;
  void note(double right, double memory);
};

// One thread, the scheduler's.
class DraftChances {
 public:
  DraftChances();

  // Of `children` tokens that stood at a depth (0: the first) behind what was right, that of rank
  // `right` was it; below 0: none of them.
  void note(int32_t depth, int32_t children, int32_t right);
  // How often each rank is right at a depth where what it stands behind is, [kTreeWidthMax]. Ranks
  // are no likelier than those before them. `shift`: by so much more often than usual a first token
  // of this sequence is right.
  std::array<double, kTreeWidthMax> at(int32_t depth, double shift) const;

  struct Grown {
    TokenTree ranks;              // as DraftForm::ranks; of its tokens the first n are the best n
    std::vector<double> chances;  // [ranks] that a token and all it stands behind are right
  };
  struct Bounds {
    int32_t depth = 0, width = 0, tokens = 0;
    const TokenTree* within = nullptr;  // not null: of this tree (DraftForm::ranks), some
  };
  Grown grow(const Bounds& bounds, double shift) const;

 private:
  static constexpr double kMemory = 512, kPriorWeight = 4;
  // Before anything is known of a depth and rank.
  static constexpr double kFirst = 0.7, kSecond = 0.3, kLater = 0.15;

  // [depth][rank] right where what they stand behind is and those of lower ranks are not
  std::array<std::array<MeasuredShare, kTreeWidthMax>, kProposedTokensMax> share_;
};

}  // namespace headrace
