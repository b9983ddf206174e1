// Names that stand for several models: the cheapest that takes the request, by its length and by
// how difficult it says that it is, answers it.
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
  // "MODEL=0.4": behind an alias it gets requests up to this difficulty, of 0 to 1.
  Status add_difficulty(std::string_view text);

  // The models that a name stands for, the first of each in the order of preference: those that
  // hold prompt and answer (`context_of`: tokens, 0: nobody says) and take what is so difficult, by
  // what the request would cost, equals as they were named. Where it is too difficult for all, the
  // one that takes the most. Empty: it is no alias, or none holds it.
  std::vector<std::string> models_for(
      const RequestFacts& request,
      const std::function<int64_t(std::string_view model)>& context_of) const;
  std::vector<std::string> names() const;
  // nullptr: not configured.
  const ModelCost* cost_of(std::string_view model) const;

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> aliases_;
  double difficulty_max(std::string_view model) const;

  std::map<std::string, ModelCost, std::less<>> costs_;
  std::map<std::string, double, std::less<>> difficulties_;
};

// The body with another model's name.
std::string with_model(std::string_view body, const RequestFacts& request, std::string_view model);

}  // namespace headrace
