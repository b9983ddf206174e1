#include "text/output/dialect.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "text/output/dialect_table.h"

namespace headrace {
namespace {

std::unique_ptr<CallReader> read_json_calls(const ToolList& tools, bool bare) {
  return make_json_call_reader(bare ? &tools : nullptr);
}

constexpr std::string_view kHermesOpen[] = {"<tool_call>"};
constexpr std::string_view kHermesLayout[] = {"</tool_call>"};

// Templates of several forms hold signs of others: the first row that fits is taken.
constexpr ToolDialect kToolDialects[] = {
    {"hermes,qwen,qwen25,granite4", kHermesOpen, kHermesOpen, kHermesLayout, 0, read_json_calls},
};

constexpr ReasoningDialect kReasoningDialects[] = {
    {"qwen3,qwen3-thinking,deepseek_r1,deepseek-r1", "<think>", "<think>", "</think>"},
};

std::string_view first_name(std::string_view names) { return names.substr(0, names.find(',')); }

bool has_name(std::string_view names, std::string_view name) {
  return !name.empty() &&
         fmt::format(",{},", names).find(fmt::format(",{},", name)) != std::string::npos;
}

template <class Row, class Fits>
Result<const Row*> choose(std::span<const Row> rows, std::string_view flag, std::string_view name,
                          const Fits& fits) {
  if (name == "none" || name.empty()) return static_cast<const Row*>(nullptr);
  std::string known = "auto, none";
  for (const Row& row : rows) {
    if (name == "auto" ? fits(row) : has_name(row.names, name)) return &row;
    known += fmt::format(", {}", first_name(row.names));
  }
  if (name == "auto") return static_cast<const Row*>(nullptr);
  return invalid_argument(fmt::format("{}: {} is not known; there are {}", flag, name, known),
                          std::string(flag));
}

}  // namespace

std::span<const ToolDialect> tool_dialects() { return kToolDialects; }
std::span<const ReasoningDialect> reasoning_dialects() { return kReasoningDialects; }

Result<const ToolDialect*> choose_tool_dialect(std::string_view name,
                                               std::string_view chat_template) {
  const auto fits = [&](const ToolDialect& row) {
    return !row.template_signs.empty() &&
           std::all_of(row.template_signs.begin(), row.template_signs.end(), [&](auto sign) {
             return chat_template.find(sign) != std::string_view::npos;
           });
  };
  return choose<ToolDialect>(kToolDialects, "--tool-call-parser", name, fits);
}

Result<const ReasoningDialect*> choose_reasoning_dialect(std::string_view name,
                                                         std::string_view chat_template) {
  const auto fits = [&](const ReasoningDialect& row) {
    return chat_template.find(row.template_sign) != std::string_view::npos;
  };
  return choose<ReasoningDialect>(kReasoningDialects, "--reasoning-parser", name, fits);
}

std::string_view OutputDialect::tools_name() const {
  return tools ? first_name(tools->names) : "none";
}

std::string_view OutputDialect::reasoning_name() const {
  return reasoning ? first_name(reasoning->names) : "none";
}

std::vector<std::string_view> OutputDialect::marks() const {
  std::vector<std::string_view> marks;
  if (tools) {
    marks.insert(marks.end(), tools->opens.begin(), tools->opens.end());
    marks.insert(marks.end(), tools->layout.begin(), tools->layout.end());
  }
  if (reasoning) marks.insert(marks.end(), {reasoning->open, reasoning->close});
  return marks;
}

bool OutputDialect::opens_reasoning(std::string_view prompt_end) const {
  if (!reasoning) return false;
  while (!prompt_end.empty() && is_layout_space(prompt_end.back())) prompt_end.remove_suffix(1);
  return prompt_end.ends_with(reasoning->open);
}

CallIdStyle call_id_style(const ToolDialect* dialect) {
  return dialect ? dialect->ids : CallIdStyle::kCall;
}

}  // namespace headrace
