#include "engine/verification.h"

#include <algorithm>
#include <optional>
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

// The row of the proposal that stands behind row `at` and is what that row sampled, which is the
// last of `sampled` tokens; rule may say otherwise of a chain.
std::optional<size_t> next_on_path(std::span<const LogitRow> rows, size_t at, StepResult::Row& row,
                                   size_t sampled, AcceptanceRule& rule) {
  TokenId& token = row.accepted[sampled - 1];
  for (size_t i = at + 1; i < rows.size(); ++i) {
    if (rows[i].behind != static_cast<int32_t>(at)) continue;
    token = rule.decide(rows[i].proposed, token);
    if (token == rows[i].proposed) return i;
  }
  return std::nullopt;
}

}  // namespace

std::vector<PathMove> cut_rejected(std::span<const LogitRow> rows, AcceptanceRule& rule,
                                   StepResult& result) {
  std::vector<PathMove> moves;
  for_each_sequence(rows, result.rows, [&](std::span<const LogitRow> own, StepResult::Row& row) {
    if (row.accepted.empty()) return;
    const auto sampling = own.last(row.accepted.size());  // behind those that are scored
    size_t sampled = 0;  // rows of the path, up to the first behind which nothing is accepted
    for (std::optional<size_t> at = 0; at; at = next_on_path(sampling, *at, row, sampled, rule)) {
      if (*at != sampled) {
        row.accepted[sampled] = row.accepted[*at];
        if (!row.logprobs.empty()) row.logprobs[sampled] = std::move(row.logprobs[*at]);
        moves.push_back(
            {own.front().slot, static_cast<int32_t>(*at) - 1, static_cast<int32_t>(sampled) - 1});
      }
      ++sampled;
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
  return moves;
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
