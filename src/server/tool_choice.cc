#include "server/tool_choice.h"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

using Choice = ToolChoice::Kind;
using Need = CallForm::Need;

Status refuse_unread(bool chosen) {
  return invalid_argument(
      fmt::format(
          "{}: calls are not parsed out of this model's answers, as its chat template shows no "
          "form "
          "of them that is known and no --tool-call-parser names one; with \"none\" the template "
          "gets the tools, and an answer is the model's text",
          chosen ? "tool_choice \"auto\" is not supported" : "tools need tool_choice \"none\""),
      chosen ? "tool_choice" : "tools");
}

// Why the form of calls cannot be enforced.
std::string_view no_enforcement(const FieldContext& context) {
  return context.takes_forms ? "the form of calls that this model writes is not enforced here"
                             : "the form of calls is not enforced here: this model's engine takes "
                               "no structured output";
}

bool is_strict(const Json& function) {
  const Json* strict = function.find("strict");
  return strict && !strict->is_null() && *strict != Json(false);
}

// `formed`: whether its arguments are of their schema, or any object.
CallForm::Tool tool_of(const Json& function, size_t index, bool formed) {
  CallForm::Tool tool;
  tool.name = function.find("name")->as_string();
  tool.field = fmt::format("tools[{}].function.parameters", index);
  if (const Json* parameters = function.find("parameters"); parameters && formed) {
    tool.parameters = *parameters;
  }
  return tool;
}

Status force_calls(const ToolChoice& choice, const FieldContext& context, const Json& tools,
                   ChatRequest& request) {
  if (!context.enforces_calls) {
    return invalid_argument(fmt::format("tool_choice is not supported: only \"none\" and \"auto\" "
                                        "are: a tool cannot be forced here; {}",
                                        no_enforcement(context)),
                            "tool_choice");
  }
  request.calls.need = Need::kMustCall;
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const Json& function = *tools.as_array()[i].find("function");
    const bool wanted =
        choice.kind == Choice::kRequired || *function.find("name") == Json(choice.name);
    if (!wanted) continue;
    request.calls.tools.push_back(tool_of(function, i, true));
    request.calls.tools.back().strict = is_strict(function);
  }
  if (!request.calls.tools.empty()) return ok_status();
  return invalid_argument("tool_choice names a function that is not among the tools",
                          "tool_choice");
}

Status enforce_strict(const FieldContext& context, const Json& tools, ChatRequest& request) {
  bool any = false;
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const Json& function = *tools.as_array()[i].find("function");
    const bool strict = is_strict(function);
    if (strict && !context.enforces_calls) {
      return invalid_argument(fmt::format("tools[{}].function.strict is not supported: {}; leave "
                                          "it out",
                                          i, no_enforcement(context)),
                              "tools");
    }
    any = any || strict;
    request.calls.tools.push_back(tool_of(function, i, strict));
  }
  // An answer of some form, too, may be calls instead.
  const bool formed = request.settings.form.kind != AnswerForm::Kind::kFree;
  if (formed && !context.enforces_calls) {
    return invalid_argument(
        fmt::format("{} does not go with tools for this model: {}; tool_choice \"none\" leaves "
                    "only the answer",
                    request.settings.form.field, no_enforcement(context)),
        "tools");
  }
  if (any || formed) request.calls.need = Need::kMayCall;
  return ok_status();
}

}  // namespace

Result<ToolChoice> read_openai_tool_choice(const Json& body) {
  static constexpr std::array<std::string_view, 4> kWords = {"auto", "none", "required",
                                                             "a function"};
  const Json* choice = body.find("tool_choice");
  if (!choice || choice->is_null()) return ToolChoice{};
  if (*choice == Json("auto")) return ToolChoice{Choice::kAuto, {}};
  if (*choice == Json("none")) return ToolChoice{Choice::kNone, {}};
  // "any" is Mistral's word.
  if (*choice == Json("required") || *choice == Json("any")) {
    return ToolChoice{Choice::kRequired, {}};
  }
  const Json* type = choice->find("type");
  const Json* function = choice->find("function");
  const Json* name = function ? function->find("name") : choice->find("name");
  if (type && *type == Json("function") && name && name->is_string()) {
    return ToolChoice{Choice::kNamed, name->as_string()};
  }
  return choice_error("tool_choice", kWords, *choice);
}

Status choose_calls(const ToolChoice& choice, const FieldContext& context, ChatRequest& request) {
  const Json* tools = request.template_variables.find("tools");
  const bool forced = choice.kind == Choice::kRequired || choice.kind == Choice::kNamed;
  if (!tools && forced) return invalid_argument("tool_choice needs tools", "tool_choice");
  if (!tools || choice.kind == Choice::kNone) return ok_status();
  if (!context.reads_calls && !forced) return refuse_unread(choice.kind == Choice::kAuto);
  request.reads_calls = true;
  request.calls.one_call = !request.parallel_tool_calls || choice.kind == Choice::kNamed;
  return forced ? force_calls(choice, context, *tools, request)
                : enforce_strict(context, *tools, request);
}

}  // namespace headrace
