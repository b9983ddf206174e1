#include "cli/speculative_config.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

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
  if (name == "speculative_token_tree") {
    return invalid_argument(
        "speculative_token_tree: no tree has a fixed form here, it has what is likely: use "
        "tree_width and tree_tokens");
  }
  if (name == "synthetic_acceptance_rate") return read_rate(member, options.synthetic_acceptance);
  if (name == "model") return read_model(member.second, draft_model);
  if (name == "draft_tensor_parallel_size") {
    int32_t ranks = 1;
    return read_count(member, 1, ranks);
  }
  return invalid_argument(
      fmt::format("{} is not a field: there are method, model, num_speculative_tokens, "
                  "prompt_lookup_min, prompt_lookup_max, tree_width, tree_tokens and "
                  "synthetic_acceptance_rate",
                  name));
}

}  // namespace

Status read_speculative_config(std::string_view json, ProposalOptions& options,
                               std::string& draft_model) {
  HR_ASSIGN_OR_RETURN(const Json config, parse_json(json));
  if (!config.is_object()) return invalid_argument("is not a JSON object");
  for (const Json::Member& member : config.as_object()) {
    HR_RETURN_IF_ERROR(read_member(member, options, draft_model));
  }
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
