// The filters, tests, methods and functions that templates may use: explicit tables.
#pragma once

#include <array>
#include <string_view>

#include "text/template/template_context.h"
#include "text/template/template_value.h"

namespace headrace {

struct TemplateFilter {
  std::string_view name;
  Value (*run)(TemplateContext&, const Value& input, const Arguments&);
};
struct TemplateTest {
  std::string_view name;
  bool (*run)(TemplateContext&, const Value& input, const Arguments&);
};
struct TemplateMethod {
  enum class Receiver { kString, kList, kDict, kLoop };
  Receiver receiver;
  std::string_view name;
  Value (*run)(TemplateContext&, const Value& self, const Arguments&);
};
struct TemplateFunction {
  std::string_view name;
  Value (*run)(TemplateContext&,
               const Arguments&);  // null for namespace(), which the evaluator makes
};

// nullptr where there is none.
const TemplateFilter* find_template_filter(std::string_view name);
const TemplateTest* find_template_test(std::string_view name);
const TemplateMethod* find_template_method(const Value& receiver, std::string_view name);
const TemplateFunction* find_template_function(std::string_view name);

// object.name and object[key]; Undefined where there is no such member. Fails on Undefined objects.
Value get_attribute(TemplateContext& context, const Value& object, std::string_view name);
Value get_item(TemplateContext& context, const Value& object, const Value& key);

// Arguments by parameter: bound[i] is that of names[i], or nullptr. Fails for too many and for
// unknown names. `function` is for messages.
template <size_t N>
std::array<const Value*, N> bind_arguments(TemplateContext& context, std::string_view function,
                                           const Arguments& arguments,
                                           const std::array<std::string_view, N>& names) {
  std::array<const Value*, N> bound{};
  if (arguments.positional.size() > N) {
    context.fail(std::string(function) + "() has too many arguments");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    size_t i = 0;
    while (i < N && names[i] != name) ++i;
    if (i == N || bound[i] != nullptr) {
      context.fail(std::string(function) + "() has no argument '" + std::string(name) + "' here");
    }
    bound[i] = &value;
  }
  return bound;
}

// Arguments of one type, with a default where there is none.
int64_t integer_argument(TemplateContext& context, std::string_view name, const Value* argument,
                         int64_t otherwise);
std::string_view string_argument(TemplateContext& context, std::string_view name,
                                 const Value* argument, std::string_view otherwise);
bool truth_argument(const Value* argument, bool otherwise);

}  // namespace headrace
