#include <algorithm>
#include <array>
#include <vector>

#include "ops/states/token_shift.h"

namespace headrace {
namespace {

// Row r of a sequence's in the step; -1: the one before them, null where there is none.
const float* shifted_row(const TokenShiftArgs& args, const StateSequence& sequence, int32_t r) {
  if (r >= 0) return f32_row(args.x, sequence.row_first + r);
  return sequence.position > 0 ? args.states.at(sequence.entry) : nullptr;
}

void reference(OpContext&, const TokenShiftArgs& args) {
  const int64_t columns = args.x.columns();
  for (const StateSequence& sequence : args.states.sequences) {
    for (int32_t r = 0; r < sequence.row_count; ++r) {
      const float* x = shifted_row(args, sequence, r);           // [D]
      const float* before = shifted_row(args, sequence, r - 1);  // [D]
      float* out = f32_row(args.out, sequence.row_first + r);
      for (int64_t i = 0; i < args.mixes * columns; ++i) {
        const int64_t c = i % columns;
        const double difference = (before == nullptr ? 0.0 : before[c]) - double{x[c]};
        out[i] = static_cast<float>(x[c] + difference * args.mix[i]);
      }
    }
    for (const StateCopy& save : sequence.saves) {
      std::copy_n(shifted_row(args, sequence, save.tokens - sequence.position - 1), columns,
                  args.states.at(save.entry));
    }
    std::copy_n(shifted_row(args, sequence, sequence.row_count - 1), columns,
                args.states.at(sequence.entry));
  }
}

void mix_row(const float* x, const float* before, const float* mix, float* out, int64_t columns) {
  for (int64_t c = 0; c < columns; ++c) out[c] = x[c] + (before[c] - x[c]) * mix[c];
}

// Rows are read until all are mixed: states are written behind that.
void shift_rows(OpContext& context, const TokenShiftArgs& args) {
  const int64_t columns = args.x.columns();
  const std::vector<float> nothing(static_cast<size_t>(columns), 0.0f);
  for (const StateSequence& sequence : args.states.sequences) {
    context.device.pool().parallel_rows(sequence.row_count, 8, [&](int64_t first, int64_t last) {
      for (auto r = static_cast<int32_t>(first); r < last; ++r) {
        const float* before = shifted_row(args, sequence, r - 1);
        if (before == nullptr) before = nothing.data();
        float* const out = f32_row(args.out, sequence.row_first + r);
        for (int32_t m = 0; m < args.mixes; ++m) {
          mix_row(shifted_row(args, sequence, r), before, args.mix + m * columns, out + m * columns,
                  columns);
        }
      }
    });
    for (const StateCopy& save : sequence.saves) {
      std::copy_n(shifted_row(args, sequence, save.tokens - sequence.position - 1), columns,
                  args.states.at(save.entry));
    }
    std::copy_n(shifted_row(args, sequence, sequence.row_count - 1), columns,
                args.states.at(sequence.entry));
  }
}

bool any_cpu(const DeviceTraits& traits, const TokenShiftArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kTokenShiftKernels = {
    Kernel<TokenShiftArgs>{"token_shift/cpu/rows", any_cpu, shift_rows},
    Kernel<TokenShiftArgs>{"token_shift/cpu/reference", any_cpu, reference},
};

}  // namespace

KernelTable<TokenShiftArgs> token_shift_cpu_kernels() { return kTokenShiftKernels; }

}  // namespace headrace
