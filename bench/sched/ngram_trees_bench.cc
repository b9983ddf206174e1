// ngram_trees_bench: how many tokens of a text a verification brings where chains or trees are
// proposed by n-grams and rows cost nothing.
//
//   ngram_trees_bench [--depth N] < ids
//
// The text is token ids; its first half is the prompt, its second is what the model says. One JSON
// line for each width and size of trees.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>
#include <vector>

#include "sched/ngram_source.h"

namespace headrace {
namespace {

void measure(const std::vector<TokenId>& text, int32_t width, const ProposalBounds& bounds) {
  auto request = std::make_shared<Request>();
  const auto half = static_cast<std::ptrdiff_t>(text.size() / 2);
  request->prompt.assign(text.begin(), text.begin() + half);
  Sequence sequence{.id = SequenceId(1), .request = request, .blocks = SequenceBlocks({})};
  NgramSource source(2, 8, width);
  int64_t steps = 0, proposed = 0;
  for (auto next = static_cast<size_t>(half); next < text.size(); ++steps) {
    TokenTree tree;
    source.propose(sequence, bounds, tree);
    proposed += tree.size();
    for (int32_t at = TokenTree::kBeforeAll; next < text.size();) {
      sequence.output.push_back(text[next]);
      at = tree.child(at, text[next++]);
      if (at == TokenTree::kBeforeAll) break;
    }
  }
  const auto tokens = static_cast<double>(sequence.output.size());
  fmt::print(
      R"({{"width": {}, "tokens_max": {}, "depth": {}, "tokens_a_step": {:.3f}, "proposed_a_step": {:.2f}}})"
      "\n",
      width, bounds.tokens, bounds.depth, tokens / static_cast<double>(steps),
      static_cast<double>(proposed) / static_cast<double>(steps));
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  int32_t depth = 5;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--depth") depth = std::atoi(argv[i + 1]);
  }
  std::vector<headrace::TokenId> text;
  for (headrace::TokenId token; std::cin >> token;) text.push_back(token);
  if (text.size() < 4) {
    std::cerr << "ngram_trees_bench: no token ids on the standard input\n";
    return 1;
  }
  headrace::measure(text, 1, {.depth = depth, .tokens = depth});
  for (const int32_t width : {2, 3, 4}) {
    for (const int32_t tokens : {8, 16, 24, 64}) {
      headrace::measure(text, width, {.depth = depth, .tokens = tokens});
    }
  }
  return 0;
}
