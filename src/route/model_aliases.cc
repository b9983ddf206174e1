#include "route/model_aliases.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/json.h"

namespace headrace {

Status ModelAliases::add_alias(std::string_view text) {
  const size_t equals = text.find('=');
  std::vector<std::string> models;
  std::string_view rest = equals == text.npos ? std::string_view() : text.substr(equals + 1);
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (comma > 0) models.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (equals == 0 || models.empty()) {
    return invalid_argument(fmt::format("--alias {}: must be NAME=MODEL,MODEL", text), "alias");
  }
  if (!aliases_.emplace(text.substr(0, equals), std::move(models)).second) {
    return invalid_argument(fmt::format("--alias {}: the name is there already", text), "alias");
  }
  return ok_status();
}

Status ModelAliases::add_cost(std::string_view text) {
  const size_t equals = text.rfind('=');
  const size_t comma = text.find(',', equals == text.npos ? 0 : equals);
  const auto wrong = invalid_argument(
      fmt::format("--cost {}: must be MODEL=INPUT,OUTPUT, for a million tokens", text), "cost");
  if (equals == text.npos || equals == 0 || comma == text.npos) return wrong;
  const auto number = [](std::string_view digits) {
    const std::string copy(digits);
    char* end = nullptr;
    const double value = std::strtod(copy.c_str(), &end);
    return !copy.empty() && *end == '\0' && value >= 0 ? value : -1;
  };
  const ModelCost cost{number(text.substr(equals + 1, comma - equals - 1)),
                       number(text.substr(comma + 1))};
  if (cost.input < 0 || cost.output < 0) return wrong;
  costs_[std::string(text.substr(0, equals))] = cost;
  return ok_status();
}

Status ModelAliases::add_difficulty(std::string_view text) {
  const size_t equals = text.rfind('=');
  const std::string digits(equals == text.npos ? std::string_view() : text.substr(equals + 1));
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (equals == 0 || digits.empty() || *end != '\0' || !(value >= 0 && value <= 1)) {
    return invalid_argument(
        fmt::format("--difficulty {}: must be MODEL=NUMBER of 0 to 1: the hardest it gets", text),
        "difficulty");
  }
  difficulties_[std::string(text.substr(0, equals))] = value;
  return ok_status();
}

double ModelAliases::difficulty_max(std::string_view model) const {
  const auto found = difficulties_.find(model);
  return found == difficulties_.end() ? 1 : found->second;
}

std::vector<std::string> ModelAliases::models_for(
    const RequestFacts& request,
    const std::function<int64_t(std::string_view model)>& context_of) const {
  const auto alias = aliases_.find(request.model);
  if (alias == aliases_.end()) return {};
  struct Offer {
    std::string name;
    double cost;
    double too_difficult;  // by so much
  };
  std::vector<Offer> offers;
  for (const std::string& model : alias->second) {
    const int64_t context = context_of(model);
    if (context > 0 && context < request.prompt_tokens + request.output_tokens) continue;
    const ModelCost* cost = cost_of(model);
    const double price = cost ? cost->input * static_cast<double>(request.prompt_tokens) +
                                    cost->output * static_cast<double>(request.output_tokens)
                              : std::numeric_limits<double>::infinity();
    offers.push_back({model, price, std::max(0.0, request.difficulty - difficulty_max(model))});
  }
  std::stable_sort(offers.begin(), offers.end(), [](const Offer& a, const Offer& b) {
    return std::pair(a.too_difficult, a.cost) < std::pair(b.too_difficult, b.cost);
  });
  std::vector<std::string> names;
  for (Offer& offer : offers) names.push_back(std::move(offer.name));
  return names;
}

std::vector<std::string> ModelAliases::names() const {
  std::vector<std::string> all;
  for (const auto& [name, models] : aliases_) all.push_back(name);
  return all;
}

const ModelCost* ModelAliases::cost_of(std::string_view model) const {
  const auto found = costs_.find(model);
  return found == costs_.end() ? nullptr : &found->second;
}

std::string with_model(std::string_view body, const RequestFacts& request, std::string_view model) {
  std::string out(body.substr(0, request.model_begin));
  append_json_string(out, model);
  out += body.substr(request.model_begin + request.model_bytes);
  return out;
}

}  // namespace headrace
