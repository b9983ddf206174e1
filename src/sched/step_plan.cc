#include "sched/step_plan.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace headrace {
namespace {

void append_blocks(std::string& out, const std::vector<GroupBlocks>& groups) {
  for (const GroupBlocks& group : groups) {
    fmt::format_to(std::back_inserter(out), " g{}[{}]=", group.group, group.first_index);
    for (size_t i = 0; i < group.blocks.size(); ++i) {
      fmt::format_to(std::back_inserter(out), "{}{}", i == 0 ? "" : ",", group.blocks[i].value);
    }
  }
}

std::string_view rows_name(LogitRows rows) {
  switch (rows) {
    case LogitRows::kNone:
      return "none";
    case LogitRows::kLast:
      return "last";
    case LogitRows::kAll:
      return "all";
    case LogitRows::kVerify:
      return "verify";
  }
  return "?";
}

}  // namespace

std::string StepPlan::to_string() const {
  std::string out = fmt::format("step {} ({} tokens)\n", step, token_count);
  const auto line = [&]<class... Args>(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
  };
  for (const ReleasedSlot& slot : released) {
    line("  release seq {} slot {}\n", slot.sequence.value, slot.slot.value);
  }
  for (const Admission& a : admitted) {
    line("  admit seq {} slot {} request {} choice {} tokens {}", a.sequence.value, a.slot.value,
         a.request->id.value, a.choice, a.tokens.size());
    append_blocks(out, a.blocks);
    if (a.checkpoint) line(" state {}", a.checkpoint->value);
    out += '\n';
  }
  const auto moves = [&](std::string_view name, const std::vector<PageMove>& list) {
    for (const PageMove& move : list) {
      line("  {} g{} {}:{} -> {}:{}\n", name, move.group, move.from.tier, move.from.page,
           move.to.tier, move.to.page);
    }
  };
  moves("store", stores);
  moves("store ahead", stores_ahead);
  moves("load", loads);
  for (const BlockCopy& copy : copies) {
    line("  copy g{} {} -> {}\n", copy.group, copy.from.value, copy.to.value);
  }
  for (const Work& w : work) {
    line("  work seq {} slot {} [{}, {}) rows {}{}", w.sequence.value, w.slot.value, w.first,
         w.first + w.count, rows_name(w.rows), w.samples ? " samples" : "");
    if (!w.proposed.is_chain()) line(" tree {}", fmt::join(w.proposed.parents, ","));
    if (w.drafted > 0 && !w.form.is_chain()) {
      line(" drafted {}, {} deep, {} wide", w.drafted, w.form.depth, w.form.width);
      if (!w.form.ranks.empty()) line(" tree {}", fmt::join(w.form.ranks.parents, ","));
    }
    for (const SampleTarget& target : w.also_sample) line(" +seq {}", target.sequence.value);
    append_blocks(out, w.new_blocks);
    for (const StateSave& save : w.saves) line(" save [{}]={}", save.tokens, save.checkpoint.value);
    out += '\n';
  }
  return out;
}

}  // namespace headrace
