#include "engine/verification.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

// Calls take(rows of a sequence, its row of the result) for each sequence. The rows of one stand
// together, in the order of the result's.
template <class Rows, class Take>
void for_each_sequence(std::span<const LogitRow> rows, Rows& results, Take take) {
  for (size_t first = 0, at = 0; first < rows.size(); ++at) {
    size_t last = first + 1;
    while (last < rows.size() && rows[last].sequence == rows[first].sequence) ++last;
    take(rows.subspan(first, last - first), results[at]);
    first = last;
  }
}

}  // namespace

void cut_rejected(std::span<const LogitRow> rows, AcceptanceRule& rule, StepResult& result) {
  for_each_sequence(rows, result.rows, [&](std::span<const LogitRow> own, StepResult::Row& row) {
    size_t sampled = 0;  // rows that sample, up to the first whose proposal is rejected
    for (const LogitRow& each : own) {
      if (!each.samples) continue;
      TokenId& token = row.accepted[sampled++];
      if (each.proposed < 0) continue;
      token = rule.decide(each.proposed, token);
      if (token != each.proposed) break;
    }
    // A dead end behind tokens that came is met again, behind them.
    if (row.dead_end && sampled > 1 && row.accepted[sampled - 1] < 0) --sampled;
    if (sampled == row.accepted.size()) return;
    row.accepted.cut(sampled);
    if (row.logprobs.size() > sampled) row.logprobs.resize(sampled);
    // A faulty row has no token; one that is void is nobody's fault.
    const bool dead_end = std::exchange(row.dead_end, false);
    row.fault = std::any_of(row.accepted.begin(), row.accepted.end(),
                            [](TokenId token) { return token < 0; });
    if (dead_end) std::swap(row.fault, row.dead_end);
  });
}

void append_accepted(std::span<const LogitRow> rows, const StepResult& result, SlotTable& slots) {
  for_each_sequence(rows, result.rows,
                    [&](std::span<const LogitRow> own, const StepResult::Row& row) {
                      // A faulty row has no token; its sequence ends, what it would read next does
                      // not matter.
                      for (const TokenId token : row.accepted) {
                        slots.append(own.front().slot, std::max(token, TokenId{0}));
                      }
                    });
}

void note_ended_forms(std::span<const LogitRow> rows, std::span<const TokenId> end_ids,
                      const SlotTable& slots, StepResult& result) {
  for_each_sequence(rows, result.rows, [&](std::span<const LogitRow> own, StepResult::Row& row) {
    const auto& matcher = slots[own.front().slot].matcher;
    if (matcher == nullptr || row.accepted.empty()) return;
    const bool end =
        std::find(end_ids.begin(), end_ids.end(), row.accepted.back()) != end_ids.end();
    row.form_ended = end && matcher->only_ends();
  });
}

}  // namespace headrace
