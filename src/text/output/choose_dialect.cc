// Which rows of the tables a name or a chat template means, and what a pair of them needs.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "text/output/dialect.h"
#include "text/output/dialect_table.h"

namespace headrace {
namespace {

std::string_view first_name(std::string_view names) { return names.substr(0, names.find(',')); }

bool has_name(std::string_view names, std::string_view name) {
  return !name.empty() &&
         fmt::format(",{},", names).find(fmt::format(",{},", name)) != std::string::npos;
}

// Of rows that have the name, the first that fits the template, else the first.
template <class Row, class Fits>
Result<const Row*> choose(std::span<const Row> rows, std::string_view flag, std::string_view name,
                          const Fits& fits) {
  const Row* named = nullptr;
  if (name == "none" || name.empty()) return named;
  std::string known = "auto, none";
  for (const Row& row : rows) {
    known += fmt::format(", {}", first_name(row.names));
    if (name != "auto" && !has_name(row.names, name)) continue;
    if (fits(row)) return &row;
    if (name != "auto" && !named) named = &row;
  }
  if (name == "auto" || named) return named;
  return invalid_argument(fmt::format("{}: {} is not known; there are {}", flag, name, known),
                          std::string(flag));
}

std::string_view without_layout_behind(std::string_view text) {
  while (!text.empty() && is_layout_space(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

Result<const ToolDialect*> choose_tool_dialect(std::string_view name,
                                               std::string_view chat_template) {
  const auto fits = [&](const ToolDialect& row) {
    const bool lacks = row.template_lacks.empty() ||
                       chat_template.find(row.template_lacks) == std::string_view::npos;
    return !row.template_signs.empty() && lacks &&
           std::all_of(row.template_signs.begin(), row.template_signs.end(), [&](auto sign) {
             return chat_template.find(sign) != std::string_view::npos;
           });
  };
  return choose<ToolDialect>(tool_dialects(), "--tool-call-parser", name, fits);
}

Result<const ReasoningDialect*> choose_reasoning_dialect(std::string_view name,
                                                         std::string_view chat_template) {
  const auto fits = [&](const ReasoningDialect& row) {
    return !row.template_sign.empty() &&
           chat_template.find(row.template_sign) != std::string_view::npos;
  };
  return choose<ReasoningDialect>(reasoning_dialects(), "--reasoning-parser", name, fits);
}

std::vector<std::string_view> tool_marks(const ToolDialect& dialect) {
  std::vector<std::string_view> marks(dialect.opens.begin(), dialect.opens.end());
  marks.insert(marks.end(), dialect.layout.begin(), dialect.layout.end());
  marks.insert(marks.end(), dialect.inner.begin(), dialect.inner.end());
  return marks;
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
    marks = tool_marks(*tools);
    marks.insert(marks.end(), tools->answer_closes.begin(), tools->answer_closes.end());
  }
  if (!reasoning) return marks;
  if (!reasoning->harmony) marks.insert(marks.end(), {reasoning->open, reasoning->close});
  for (const auto& more : {reasoning->inner, reasoning->answer_opens, reasoning->answer_closes}) {
    marks.insert(marks.end(), more.begin(), more.end());
  }
  return marks;
}

bool OutputDialect::opens_reasoning(std::string_view prompt_end) const {
  if (!reasoning || reasoning->harmony) return false;
  return without_layout_behind(prompt_end).ends_with(reasoning->open);
}

bool OutputDialect::closes_reasoning(std::string_view prompt_end) const {
  if (!reasoning || reasoning->harmony) return false;
  return without_layout_behind(prompt_end).ends_with(reasoning->close);
}

bool enforces_calls(const ToolDialect* dialect) {
  return dialect && (dialect->harmony || !dialect->spellings.empty());
}

bool enforces_bare_calls(const ToolDialect* dialect) { return dialect && dialect->enforces_bare; }

StopShield call_shield(const ToolDialect& dialect) {
  if (dialect.harmony) return {.opens = {" to=functions."}, .close = "<|call|>"};
  return {.opens = {dialect.opens.begin(), dialect.opens.end()},
          .close = std::string(dialect.spellings.front().close),
          .bare_open = dialect.enforces_bare ? dialect.bare_open : '\0'};
}

bool bounds_thoughts(const ReasoningDialect* dialect) {
  return dialect && !dialect->harmony && !dialect->in_content;
}

CallIdStyle call_id_style(const ToolDialect* dialect) {
  return dialect ? dialect->ids : CallIdStyle::kCall;
}

}  // namespace headrace
