#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "ops/states/state_heads.h"
#include "ops/states/wkv7.h"
#include "ops/states/wkv7_head.h"

namespace headrace {
namespace {

Wkv7Head head_of(const Wkv7Args& args, const StateSequence& sequence, int64_t head,
                 const std::vector<StateAfterRow>& saves) {
  const int64_t dim = args.heads.head_dim, first = head * dim;
  const auto at = [&](const ConstTensorView& rows) {
    return rows.data == nullptr ? nullptr : f32_row(rows, sequence.row_first) + first;
  };
  const bool mixed = args.v_first.data != nullptr;
  return {.r = at(args.r),
          .w = at(args.w),
          .k = at(args.k),
          .v = at(args.v),
          .a = at(args.a),
          .g = at(args.g),
          .v_first = at(args.v_first),
          .v_gate = at(args.v_gate),
          .w0 = args.w0 + first,
          .a0 = args.a0 + first,
          .v0 = mixed ? args.v0 + first : nullptr,
          .k_k = args.k_k + first,
          .k_a = args.k_a + first,
          .r_k = args.r_k + first,
          .norm = args.norm + first,
          .norm_bias = args.norm_bias + first,
          .state = args.states.at(sequence.entry) + head * dim * dim,
          .out = f32_row(args.out, sequence.row_first) + first,
          .saves = saves.data(),
          .save_count = static_cast<int64_t>(saves.size()),
          .r_stride = args.r.row_stride / 4,
          .w_stride = args.w.row_stride / 4,
          .k_stride = args.k.row_stride / 4,
          .v_stride = args.v.row_stride / 4,
          .a_stride = args.a.row_stride / 4,
          .g_stride = args.g.row_stride / 4,
          .v_first_stride = mixed ? args.v_first.row_stride / 4 : 0,
          .v_gate_stride = mixed ? args.v_gate.row_stride / 4 : 0,
          .out_stride = args.out.row_stride / 4,
          .rows = sequence.row_count,
          .dim = dim,
          .norm_eps = args.norm_eps,
          .begins = sequence.position == 0};
}

template <void (*kHead)(const Wkv7Head&)>
void run_heads(OpContext& context, const Wkv7Args& args) {
  for_each_head(
      context, args.states, args.heads.heads, int64_t{args.heads.head_dim} * args.heads.head_dim,
      [&](const StateSequence& sequence, int64_t head, const std::vector<StateAfterRow>& saves) {
        kHead(head_of(args, sequence, head, saves));
      });
}

// Where the state has S[j][i], key j and value i.
int64_t wkv7_place(int64_t dim, int64_t j, int64_t i) {
  const int64_t column = i / kWkv7Columns * kWkv7Columns;
  const int64_t width = std::min(kWkv7Columns, dim - column);
  return column * dim + j * width + (i - column);
}

double wkv7_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

using Wkv7Column = std::vector<double>;  // [dim]

// Of one row: what its state is changed by.
struct Wkv7ReferenceRow {
  Wkv7Column decay, kk, back, key, value;
  double bonus = 0;

  Wkv7ReferenceRow(const Wkv7Head& h, int64_t t) {
    double squares = 0;
    for (int64_t i = 0; i < h.dim; ++i) {
      const double raw = h.k[t * h.k_stride + i];
      const double a = wkv7_sigmoid(double{h.a0[i]} + h.a[t * h.a_stride + i]);
      decay.push_back(
          std::exp(-std::exp(-0.5) * wkv7_sigmoid(double{h.w0[i]} + h.w[t * h.w_stride + i])));
      kk.push_back(raw * h.k_k[i]);
      squares += kk.back() * kk.back();
      back.push_back(a);
      key.push_back(raw * (1.0 + (a - 1.0) * h.k_a[i]));
      bonus += h.r[t * h.r_stride + i] * key.back() * h.r_k[i];
      double v = h.v[t * h.v_stride + i];
      if (h.v_first != nullptr) {
        const double gate = wkv7_sigmoid(double{h.v0[i]} + h.v_gate[t * h.v_gate_stride + i]);
        v += (h.v_first[t * h.v_first_stride + i] - v) * gate;
      }
      value.push_back(v);
    }
    for (double& each : kk) each /= std::max(std::sqrt(squares), 1e-12);
    for (size_t i = 0; i < kk.size(); ++i) back[i] *= kk[i];
  }
};

void end_reference_row(const Wkv7Head& h, int64_t t, const Wkv7ReferenceRow& row,
                       const Wkv7Column& y) {
  double mean = 0, variance = 0;
  const auto count = static_cast<double>(h.dim);
  for (const double each : y) mean += each / count;
  for (const double each : y) variance += (each - mean) * (each - mean) / count;
  const double root = std::sqrt(variance + double{h.norm_eps});
  for (int64_t i = 0; i < h.dim; ++i) {
    const auto at = static_cast<size_t>(i);
    const double normed = (y[at] - mean) / root * h.norm[i] + h.norm_bias[i];
    h.out[t * h.out_stride + i] =
        static_cast<float>((normed + row.bonus * row.value[at]) * h.g[t * h.g_stride + i]);
  }
}

// As it is written.
void reference_head(const Wkv7Head& h) {
  const int64_t numbers = h.dim * h.dim;
  if (h.begins) std::fill_n(h.state, numbers, 0.0f);
  int64_t saved = 0;
  for (int64_t t = 0; t < h.rows; ++t) {
    const Wkv7ReferenceRow row(h, t);
    Wkv7Column y;
    for (int64_t i = 0; i < h.dim; ++i) {
      double removed = 0, sum = 0;
      for (int64_t j = 0; j < h.dim; ++j) {
        removed -= row.kk[static_cast<size_t>(j)] * h.state[wkv7_place(h.dim, j, i)];
      }
      for (int64_t j = 0; j < h.dim; ++j) {
        const auto at = static_cast<size_t>(j);
        float& s = h.state[wkv7_place(h.dim, j, i)];
        const double changed = row.decay[at] * s + row.back[at] * removed +
                               row.key[at] * row.value[static_cast<size_t>(i)];
        sum += changed * h.r[t * h.r_stride + j];
        s = static_cast<float>(changed);
      }
      y.push_back(sum);
    }
    end_reference_row(h, t, row, y);
    while (saved < h.save_count && h.saves[saved].row == t) {
      std::copy_n(h.state, numbers, h.saves[saved++].state);
    }
  }
}

bool any_cpu(const DeviceTraits& traits, const Wkv7Args&) {
  return traits.kind == DeviceKind::kCpu;
}
bool of_known_size(const DeviceTraits& traits, const Wkv7Args& args) {
  return any_cpu(traits, args) && args.heads.head_dim <= kWkv7HeadDimMax;
}
bool avx512(const DeviceTraits& traits, const Wkv7Args& args) {
  return of_known_size(traits, args) && traits.cpu.avx512;
}
bool avx2(const DeviceTraits& traits, const Wkv7Args& args) {
  return of_known_size(traits, args) && traits.cpu.avx2;
}

constexpr std::array kWkv7Kernels = {
    Kernel<Wkv7Args>{"wkv7/cpu/avx512", avx512, run_heads<wkv7_head_avx512>},
    Kernel<Wkv7Args>{"wkv7/cpu/avx2", avx2, run_heads<wkv7_head_avx2>},
    Kernel<Wkv7Args>{"wkv7/cpu/reference", any_cpu, run_heads<reference_head>},
};

}  // namespace

KernelTable<Wkv7Args> wkv7_cpu_kernels() { return kWkv7Kernels; }

}  // namespace headrace
