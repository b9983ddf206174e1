#include "cli/speculative_config.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "sched/token_tree.h"

namespace headrace {
namespace {

Status read_method(const Json& value, ProposalOptions& options) {
  const std::string name = value.is_string() ? value.as_string() : std::string(value.type_name());
  const auto method = value_named(kProposalMethods, name);
  if (!value.is_string() || !method) {
    return invalid_argument(
        fmt::format("method {} is not supported: there are none, ngram, draft_model, "
                    "eagle, eagle3 and medusa",
                    name));
  }
  options.method = *method;
  return ok_status();
}

Status read_model(const Json& value, std::string& draft_model) {
  if (!value.is_string() || value.as_string().empty()) {
    return invalid_argument("model is not the path of a draft model");
  }
  draft_model = value.as_string();
  return ok_status();
}

Status read_count(const Json::Member& member, int32_t most, int32_t& out) {
  if (!member.second.is_int() || member.second.as_int() < 1 || member.second.as_int() > most) {
    return invalid_argument(
        fmt::format("{} is not a whole number between 1 and {}", member.first, most));
  }
  out = static_cast<int32_t>(member.second.as_int());
  return ok_status();
}

Status read_rate(const Json::Member& member, double& out) {
  if (!member.second.is_number() || member.second.as_double() < 0 ||
      member.second.as_double() > 1) {
    return invalid_argument(fmt::format("{} is not a number between 0 and 1", member.first));
  }
  out = member.second.as_double();
  return ok_status();
}

// vLLM's: for each token of a tree its rank behind the one before it, and the ranks of all that it
// stands behind, as a list of tuples in Python's spelling, or of lists.
Status read_tree(const Json::Member& member, ProposalOptions& options) {
  const auto refuse = [&](std::string_view why) {
    return invalid_argument(fmt::format(
        "{}: {}: it is a list as \"[(0,), (1,), (0, 0)]\", each token behind one that is listed",
        member.first, why));
  };
  Json list = member.second;
  if (list.is_string()) {
    std::string text = list.as_string();
    std::erase(text, ' ');
    for (char& c : text) c = c == '(' ? '[' : c == ')' ? ']' : c;
    for (size_t at; (at = text.find(",]")) != std::string::npos;) text.erase(at, 1);
    const Result<Json> read = parse_json(text);
    if (!read.ok()) return refuse("cannot be read");
    list = *read;
  }
  if (!list.is_array() || list.as_array().empty()) return refuse("is no list of tuples");
  std::vector<std::vector<int32_t>> paths;
  for (const Json& tuple : list.as_array()) {
    if (!tuple.is_array() || tuple.as_array().empty()) return refuse("is no list of tuples");
    std::vector<int32_t>& path = paths.emplace_back();
    for (const Json& rank : tuple.as_array()) {
      if (!rank.is_int() || rank.as_int() < 0 || rank.as_int() >= kTreeWidthMax) {
        return refuse(fmt::format("a rank is not between 0 and {}", kTreeWidthMax - 1));
      }
      path.push_back(static_cast<int32_t>(rank.as_int()));
    }
  }
  if (std::ssize(paths) > TokenTree::kTokensMax) {
    return refuse(fmt::format("more than {} tokens", TokenTree::kTokensMax));
  }
  std::ranges::sort(paths, [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  if (paths.back().size() > kProposedTokensMax) {
    return refuse(fmt::format("more than {} tokens behind each other", kProposedTokensMax));
  }
  TokenTree tree;
  int32_t width = 1;
  for (const std::vector<int32_t>& path : paths) {
    int32_t parent = TokenTree::kBeforeAll;
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      parent = tree.child(parent, path[i]);
      if (parent == TokenTree::kBeforeAll) break;
    }
    const bool stands = path.size() == 1 || parent != TokenTree::kBeforeAll;
    if (!stands || path.back() != tree.child_count(parent)) {
      return refuse(fmt::format("({}) stands alone or twice", fmt::join(path, ", ")));
    }
    tree.tokens.push_back(path.back());
    tree.parents.push_back(parent);
    width = std::max(width, path.back() + 1);
  }
  options.tokens_max = static_cast<int32_t>(paths.back().size());
  options.tree_width = width;
  options.tree_tokens = tree.size();
  options.tree = width == 1 ? TokenTree() : std::move(tree);  // a chain
  return ok_status();
}

// What a tree says itself. vLLM counts its tokens as num_speculative_tokens.
Status check_beside_tree(const Json& config, const ProposalOptions& options) {
  for (const char* const name : {"tree_width", "tree_tokens"}) {
    if (config.find(name) == nullptr) continue;
    return invalid_argument(fmt::format(
        "{} does not go with speculative_token_tree, which says it: leave one out", name));
  }
  const Json* const count = config.find("num_speculative_tokens");
  const int32_t size = options.tree.empty() ? options.tokens_max : options.tree.size();
  if (count == nullptr || (count->is_int() && count->as_int() == size)) return ok_status();
  return invalid_argument(fmt::format(
      "num_speculative_tokens is not the {} tokens of speculative_token_tree: leave it out", size));
}

Status read_member(const Json::Member& member, ProposalOptions& options, std::string& draft_model) {
  const std::string& name = member.first;
  if (name == "method") return read_method(member.second, options);
  if (name == "num_speculative_tokens") {
    return read_count(member, kProposedTokensMax, options.tokens_max);
  }
  if (name == "prompt_lookup_min") return read_count(member, kLookupTokensMax, options.lookup_min);
  if (name == "prompt_lookup_max") return read_count(member, kLookupTokensMax, options.lookup_max);
  if (name == "tree_width") return read_count(member, kTreeWidthMax, options.tree_width);
  if (name == "tree_tokens") return read_count(member, TokenTree::kTokensMax, options.tree_tokens);
  if (name == "speculative_token_tree") return read_tree(member, options);
  if (name == "synthetic_acceptance_rate") return read_rate(member, options.synthetic_acceptance);
  if (name == "model") return read_model(member.second, draft_model);
  if (name == "draft_tensor_parallel_size") {
    int32_t ranks = 1;
    return read_count(member, 1, ranks);
  }
  return invalid_argument(
      fmt::format("{} is not a field: there are method, model, num_speculative_tokens, "
                  "prompt_lookup_min, prompt_lookup_max, tree_width, tree_tokens, "
                  "speculative_token_tree and synthetic_acceptance_rate",
                  name));
}

}  // namespace

Status read_speculative_config(std::string_view json, ProposalOptions& options,
                               std::string& draft_model) {
  HR_ASSIGN_OR_RETURN(const Json config, parse_json(json));
  if (!config.is_object()) return invalid_argument("is not a JSON object");
  const Json* const tree = config.find("speculative_token_tree");
  for (const Json::Member& member : config.as_object()) {
    const bool counts_tree = tree != nullptr && member.first == "num_speculative_tokens";
    if (!counts_tree) HR_RETURN_IF_ERROR(read_member(member, options, draft_model));
  }
  if (tree != nullptr) HR_RETURN_IF_ERROR(check_beside_tree(config, options));
  // One without the other moves the other's default.
  if (config.find("prompt_lookup_max") == nullptr) {
    options.lookup_max = std::max(options.lookup_max, options.lookup_min);
  } else if (config.find("prompt_lookup_min") == nullptr) {
    options.lookup_min = std::min(options.lookup_min, options.lookup_max);
  }
  if (options.lookup_min > options.lookup_max) {
    return invalid_argument(fmt::format("prompt_lookup_min {} is above prompt_lookup_max {}",
                                        options.lookup_min, options.lookup_max));
  }
  return ok_status();
}

}  // namespace headrace
