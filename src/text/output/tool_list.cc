#include "text/output/tool_list.h"

#include <algorithm>

namespace headrace {
namespace {

bool names_type(const Json& type, std::string_view name) {
  if (type.is_string()) return type.as_string() == name;
  if (!type.is_array()) return false;
  const Json::Array& types = type.as_array();
  return std::any_of(types.begin(), types.end(),
                     [&](const Json& each) { return names_type(each, name); });
}

}  // namespace

ArgumentKind argument_kind(const Json& schema) {
  const Json* type = schema.find("type");
  if (!type)
    return schema.is_object() && schema.find("enum") ? ArgumentKind::kText : ArgumentKind::kOther;
  if (names_type(*type, "string")) return ArgumentKind::kText;
  return names_type(*type, "boolean") ? ArgumentKind::kBoolean : ArgumentKind::kOther;
}

ToolList::ToolList(const Json& tools) {
  if (!tools.is_array()) return;
  for (const Json& tool : tools.as_array()) {
    const Json* function = tool.find("function");
    const Json* name = function ? function->find("name") : nullptr;
    if (!name || !name->is_string()) continue;
    Function& known = functions_[name->as_string()];
    const Json* parameters = function->find("parameters");
    if (parameters) known.parameters = *parameters;
    const Json* properties = parameters ? parameters->find("properties") : nullptr;
    if (!properties || !properties->is_object()) continue;
    for (const auto& [argument, schema] : properties->as_object()) {
      known.arguments.emplace(argument, argument_kind(schema));
    }
  }
}

ArgumentKind ToolList::kind_of(std::string_view function, std::string_view argument) const {
  const auto found = functions_.find(function);
  if (found == functions_.end()) return ArgumentKind::kText;
  const auto& arguments = found->second.arguments;
  const auto kind = arguments.find(argument);
  return kind == arguments.end() ? ArgumentKind::kText : kind->second;
}

const Json* ToolList::parameters(std::string_view function) const {
  const auto found = functions_.find(function);
  if (found == functions_.end() || found->second.parameters.is_null()) return nullptr;
  return &found->second.parameters;
}

}  // namespace headrace
