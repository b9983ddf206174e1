#include "server/thought_fields.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/field_schemas.h"

namespace headrace {
namespace {

using Context = FieldContext;

constexpr double kTokensMax = std::numeric_limits<int32_t>::max();
constexpr FieldRange kThoughtTokens{-1, kTokensMax};

bool is_given(const Json* value) { return value && !value->is_null(); }

#define HR_BUDGET(name)                                       \
  {                                                           \
    name, FieldType::kInteger, kThoughtTokens,                \
        [](const Json& v, const Context& c, ChatRequest& r) { \
          return read_thought_tokens(name, v, c, r);          \
        }                                                     \
  }

constexpr std::string_view kUnknownThoughts =
    "how this model writes its thoughts is not known from its chat template, and no "
    "--reasoning-parser says it";

// A wish for thoughts of a model that has none would be followed in silence by nothing.
Status check_thinks(std::string_view name, const Context& context) {
  if (context.reads_reasoning) return ok_status();
  return invalid_argument(fmt::format("{} is not supported: {}", name, kUnknownThoughts),
                          root_field(name));
}

Status read_reasoning_object(const Json& reasoning, const Context& context, ChatRequest& request) {
  if (!reasoning.is_object()) return field_error("reasoning", "an object", reasoning);
  if (const Json* effort = reasoning.find("effort"); is_given(effort)) {
    HR_RETURN_IF_ERROR(read_effort("reasoning.effort", *effort, request));
  }
  if (const Json* tokens = reasoning.find("max_tokens"); is_given(tokens)) {
    HR_RETURN_IF_ERROR(read_thought_tokens("reasoning.max_tokens", *tokens, context, request));
  }
  for (std::string_view key : {"exclude", "enabled"}) {
    const Json* value = reasoning.find(key);
    if (!is_given(value) || value->is_bool()) continue;
    const std::string name = fmt::format("reasoning.{}", key);
    return in_field("reasoning", field_error(name, "true or false", *value));
  }
  if (const Json* enabled = reasoning.find("enabled"); is_given(enabled)) {
    if (enabled->as_bool()) HR_RETURN_IF_ERROR(check_thinks("reasoning.enabled", context));
    switch_thoughts(enabled->as_bool(), request);
  }
  if (const Json* exclude = reasoning.find("exclude"); exclude && *exclude == Json(true)) {
    request.reasoning = ReasoningForm::kHidden;
  }
  return ok_status();
}

Status read_thinking_switch(const Json& thinking, const Context& context, ChatRequest& request) {
  static constexpr std::array<std::string_view, 3> kTypes = {"enabled", "disabled", "adaptive"};
  const Json* type = thinking.find("type");
  const bool known = type && type->is_string() && is_named(kTypes, type->as_string());
  if (!known)
    return in_field("thinking", choice_error("thinking.type", kTypes, type ? *type : Json()));
  if (*type == Json("enabled")) HR_RETURN_IF_ERROR(check_thinks("thinking.type", context));
  const bool on = *type != Json("disabled");
  switch_thoughts(on, request);
  if (!on) request.reasoning = ReasoningForm::kHidden;
  const Json* tokens = thinking.find("budget_tokens");
  if (!is_given(tokens)) return ok_status();
  return read_thought_tokens("thinking.budget_tokens", *tokens, context, request);
}

constexpr Field<ChatRequest> kThoughtFields[] = {
    HR_BUDGET("thinking_token_budget"),
    HR_BUDGET("thinking_budget_tokens"),
    HR_BUDGET("thinking_budget"),
    HR_BUDGET("reasoning_budget"),
    {"reasoning", FieldType::kAny, {}, read_reasoning_object, kReasoningSchema},
    {"thinking", FieldType::kAny, {}, read_thinking_switch, kThinkingSchema},
};
#undef HR_BUDGET

// Why this model's thoughts have no bound; empty: they may have one.
std::string_view no_bound(const Context& context) {
  if (context.bounds_thoughts) return "";
  if (!context.takes_forms) return "this model's engine does not bound the length of thoughts";
  if (context.reads_reasoning) return "this model writes its thoughts in channels";
  return kUnknownThoughts;
}

}  // namespace

std::span<const Field<ChatRequest>> thought_fields() { return kThoughtFields; }

Status read_thought_tokens(std::string_view name, const Json& value, const FieldContext& context,
                           ChatRequest& request) {
  const std::string root = root_field(name);
  HR_RETURN_IF_ERROR(
      in_field(root, check_field(name, FieldType::kInteger, kThoughtTokens, value, context)));
  if (integer_of(value) < 0) return ok_status();
  if (const std::string_view why = no_bound(context); !why.empty()) {
    return invalid_argument(fmt::format("{} is not supported: {}", name, why), root);
  }
  const auto tokens = static_cast<int32_t>(integer_of(value));
  if (request.thought_tokens.value_or(tokens) != tokens) {
    return invalid_argument(
        fmt::format("{} and another field bound the thoughts differently: send one of them", name),
        root);
  }
  request.thought_tokens = tokens;
  return ok_status();
}

Status read_effort(std::string_view name, const Json& value, ChatRequest& request) {
  static constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                               "high", "xhigh",   "max"};
  const bool known = value.is_string() && is_named(kEfforts, value.as_string());
  if (!known) return in_field(root_field(name), choice_error(name, kEfforts, value));
  request.reasoning_effort = value.as_string();
  return ok_status();
}

void switch_thoughts(bool on, ChatRequest& request) {
  Json& variables = request.template_variables;
  if (variables.is_null()) variables = Json::object();
  for (std::string_view name : {"enable_thinking", "thinking"}) {
    if (!variables.find(name)) variables.set(name, on);
  }
}

}  // namespace headrace
