// The body of the gated_activation kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/rows/activation_row.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

struct Silu {
  static Vec16 apply(Vec16 x) { return div(x, add(broadcast(1.0f), exp(sub(zero(), x)))); }
};

struct GeluTanh {
  static Vec16 apply(Vec16 x) {
    const Vec16 cubic = fma(mul(mul(x, x), x), broadcast(0.044715f), x);
    const Vec16 t = tanh(mul(cubic, broadcast(0.7978845608f)));  // sqrt(2 / pi)
    return mul(mul(x, broadcast(0.5f)), add(broadcast(1.0f), t));
  }
};

struct GeluErf {
  static Vec16 apply(Vec16 x) {
    const Vec16 e = erf(mul(x, broadcast(0.7071067812f)));  // 1 / sqrt(2)
    return mul(mul(x, broadcast(0.5f)), add(broadcast(1.0f), e));
  }
};

struct Relu {
  static Vec16 apply(Vec16 x) { return max(zero(), x); }  // NaN stays
};

struct ReluSquared {
  static Vec16 apply(Vec16 x) {
    const Vec16 positive = max(zero(), x);  // NaN stays
    return mul(positive, positive);
  }
};

struct Tanh {
  static Vec16 apply(Vec16 x) { return tanh(x); }
};

struct Sigmoid {
  static Vec16 apply(Vec16 x) {
    return div(broadcast(1.0f), add(broadcast(1.0f), exp(sub(zero(), x))));
  }
};

template <class Act>
void gate_row(const GatedActivationRow& row) {
  for (int64_t i = 0; i < row.features; i += 16) {
    const int64_t left = row.features - i;
    Vec16 value = Act::apply(load_up_to(row.gate + i, left, 0.0f));
    if (row.up != nullptr) {
      value = mul(value, load_up_to(row.up + i, left, 0.0f));
    }
    store_up_to(row.out + i, value, left);
  }
}

void xielu_row(const GatedActivationRow& row) {
  const Vec16 p = broadcast(row.xielu.p), n = broadcast(row.xielu.n), b = broadcast(row.xielu.b);
  for (int64_t i = 0; i < row.features; i += 16) {
    const int64_t left = row.features - i;
    const Vec16 x = load_up_to(row.gate + i, left, 0.0f);
    const Vec16 most = where_less(x, row.xielu.e, x, broadcast(row.xielu.e));
    const Vec16 bent = sub(sub(exp(most), broadcast(1.0f)), x);
    const Vec16 curve = where_greater(x, 0.0f, mul(p, mul(x, x)), mul(n, bent));
    store_up_to(row.out + i, fma(b, x, curve), left);
  }
}

Vec16 at_most(Vec16 x, float bound) { return where_greater(x, bound, broadcast(bound), x); }

// A row without ups has gates alone.
void clamped_swish_row(const GatedActivationRow& row) {
  const auto [slope, bound] = row.swish;
  for (int64_t i = 0; i < row.features; i += 16) {
    const int64_t left = row.features - i;
    const Vec16 gate = at_most(load_up_to(row.gate + i, left, 0.0f), bound);
    Vec16 value = div(gate, add(broadcast(1.0f), exp(mul(gate, broadcast(-slope)))));
    if (row.up != nullptr) {
      const Vec16 up = load_up_to(row.up + i, left, 0.0f);
      const Vec16 above = where_less(up, -bound, broadcast(-bound), up);
      value = mul(value, add(at_most(above, bound), broadcast(1.0f)));
    }
    store_up_to(row.out + i, value, left);
  }
}

void gated_activation_row(const GatedActivationRow& row) {
  switch (row.activation) {
    case Activation::kSilu:
      return gate_row<Silu>(row);
    case Activation::kGeluTanh:
      return gate_row<GeluTanh>(row);
    case Activation::kGeluErf:
      return gate_row<GeluErf>(row);
    case Activation::kRelu:
      return gate_row<Relu>(row);
    case Activation::kReluSquared:
      return gate_row<ReluSquared>(row);
    case Activation::kXielu:
      return xielu_row(row);
    case Activation::kTanh:
      return gate_row<Tanh>(row);
    case Activation::kSigmoid:
      return gate_row<Sigmoid>(row);
    case Activation::kClampedSwish:
      return clamped_swish_row(row);
  }
}

}  // namespace
}  // namespace headrace
