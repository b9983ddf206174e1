// Names that stand for several models: the cheapest that takes the request answers it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "route/request_facts.h"

namespace headrace {

// Money for a million tokens.
struct ModelCost {
  double input = 0, output = 0;
};

// Any thread, once it is made.
class ModelAliases {
 public:
  // "NAME=model-a,model-b", "MODEL=0.15,0.60". kInvalidArgument names what is wrong.
  Status add_alias(std::string_view text);
  Status add_cost(std::string_view text);

  // The models that a name stands for, the first of each in the order of preference: those that
  // hold prompt and answer (`context_of`: tokens, 0: nobody says), by what the request would cost,
  // equals as they were named. Empty: it is no alias, or none holds it.
  std::vector<std::string> models_for(
      const RequestFacts& request,
      const std::function<int64_t(std::string_view model)>& context_of) const;
  std::vector<std::string> names() const;
  // nullptr: not configured.
  const ModelCost* cost_of(std::string_view model) const;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> aliases_;
  std::map<std::string, ModelCost, std::less<>> costs_;
};

// The body with another model's name.
std::string with_model(std::string_view body, const RequestFacts& request, std::string_view model);

}  // namespace headrace
