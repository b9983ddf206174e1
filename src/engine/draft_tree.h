// DraftTree: what a draft proposes for one sequence in one step, as it grows: tokens that may
// follow, each with the chance that it and all it stands behind are right, and of these those that
// the draft has computed itself. A chain is a tree of width 1.
//
// It grows as EAGLE-2's trees do (Li et al. 2024): of the tokens of the last depth the likeliest
// are computed together, what may follow each becomes the next depth, and of all in the end the
// likeliest are proposed. A token is no likelier than the one that it stands behind, so these are a
// tree. Where the scheduler says which branches there are (DraftForm::ranks) it has these.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/draft_form.h"

namespace headrace {

class DraftTree {
 public:
  static constexpr int32_t kBeforeAll = TokenTree::kBeforeAll;

  // `tokens_max`: that are proposed, and that the draft computes. `chance_min`: of the likeliest
  // branch, for the draft to go on.
  DraftTree(DraftForm form, int32_t tokens_max, double chance_min)
      : form_(std::move(form)), tokens_max_(tokens_max), chance_min_(chance_min) {}

  struct Candidate {
    TokenId token = -1;
    double chance = 0;  // that it is right where what it stands behind is
    bool ends = false;  // behind it nothing follows
  };
  // How many candidates are of use behind a token (kBeforeAll: behind what is known).
  int32_t wanted(int32_t before) const;
  // What may follow a token, no token twice, the likeliest first.
  void add(int32_t before, std::span<const Candidate> candidates);
  // The tokens of the last depth that are to be gone on from, the likeliest first; they count as
  // computed. None: it has ended.
  std::span<const int32_t> go_on();

  // Of a token: how many stand before it, the token as a span that is valid until add(), and its
  // place among those that were computed, -1: it was not.
  int32_t depth(int32_t at) const { return node(at).depth; }
  TokenSpan token(int32_t at) const { return {&node(at).token, 1}; }
  int32_t parent(int32_t at) const { return node(at).parent; }
  int32_t computed(int32_t at) const { return node(at).computed; }
  // Of the computed tokens up to the one at place `at` among them, the paths, as
  // AttentionSequence::paths has them; empty: they are a chain. Valid until go_on().
  std::span<const uint64_t> paths(int32_t at) const;

  // Ends it: what is proposed, at most tokens_max. A chain where no token has two behind it.
  const TokenTree& propose();
  const TokenTree& proposed() const { return proposed_; }
  // Whether a proposed token is the first candidate of its place.
  bool is_first(int32_t proposed) const {
    return node(node_of_[static_cast<size_t>(proposed)]).rank == 0;
  }
  // Of the path of proposed tokens that were accepted, in their order, the places where the draft
  // has computed them, up to the first that it has not.
  std::vector<int32_t> computed_path(std::span<const TokenId> accepted) const;

 private:
  struct Node {
    TokenId token = -1;
    int32_t parent = kBeforeAll;
    int32_t depth = 0, rank = 0;
    int32_t computed = -1;
    int32_t in_form = kBeforeAll;  // its place in form_.ranks
    double chance = 0;             // of its path
    bool ends = false;
  };
  const Node& node(int32_t at) const { return nodes_[static_cast<size_t>(at)]; }
  std::vector<int32_t> best(int32_t count) const;

  DraftForm form_;
  int32_t tokens_max_;
  double chance_min_;
  std::vector<Node> nodes_;      // each behind its parent
  size_t last_depth_ = 0;        // the first of the last depth
  std::vector<int32_t> going_;   // of go_on()
  std::vector<uint64_t> paths_;  // [computed]
  bool branches_ = false;        // what was computed is no chain
  TokenTree proposed_;
  std::vector<int32_t> node_of_;  // [proposed_]
};

}  // namespace headrace
