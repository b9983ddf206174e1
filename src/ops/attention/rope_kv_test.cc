#include "ops/attention/rope_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/op_fixture.h"
#include "ops/rows/rope_angles.h"

namespace headrace::rope_kv_test {
namespace {

struct Heads {
  int32_t query, kv, dim;
  int32_t v_dim = dim;
};

struct Case {
  Heads heads;
  int64_t tokens;
  int64_t rope_dim;
  RopeStyle style;
  KvFormat format;
  bool norms = false;  // of q and k heads
};

constexpr int64_t kBlocks = 7;

// The rows after the op, and the cache, of which every byte starts as 0x7f: NaN in each type.
struct Outcome {
  TestMatrix qkv;
  std::vector<std::byte> cache;
};

KvLayerView view_of(const Case& c, std::vector<std::byte>& cache) {
  KvLayerView kv{.k_format = c.format,
                 .v_format = c.format,
                 .kv_heads = c.heads.kv,
                 .k_dim = c.heads.dim,
                 .v_dim = c.heads.v_dim};
  kv.v_offset = k_part_bytes(kv);
  kv.block_stride = kv.v_offset + v_part_bytes(kv) + 64;  // other layers lie between
  cache.resize(static_cast<size_t>(kBlocks * kv.block_stride), std::byte{0x7f});
  kv.base = cache.data();
  return kv;
}

Outcome run(OpContext context, const Kernel<RopeKvArgs>& kernel, const Case& c) {
  Rng rng(5);
  const int64_t columns = (c.heads.query + c.heads.kv) * c.heads.dim + c.heads.kv * c.heads.v_dim;
  Outcome outcome{TestMatrix(rng, c.tokens, columns), {}};
  const KvLayerView kv = view_of(c, outcome.cache);
  std::vector<int64_t> slots;  // scattered and without repeats
  for (int64_t t = 0; t < c.tokens; ++t) slots.push_back((t * 37 + 11) % (kBlocks * 16));
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(static_cast<int32_t>(t * 13));
  std::vector<double> inv_freq;
  for (int64_t i = 0; i < c.rope_dim / 2; ++i) {
    inv_freq.push_back(
        std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(c.rope_dim)));
  }
  TestMatrix cos(c.tokens, c.rope_dim / 2), sin(c.tokens, c.rope_dim / 2);
  rope_angles(context,
              {.positions = positions, .inv_freq = inv_freq, .cos = cos.view(), .sin = sin.view()});
  const std::vector<float> q_norm = random_floats(rng, c.heads.dim),
                           k_norm = random_floats(rng, c.heads.dim);
  const RopeKvArgs args{.qkv = outcome.qkv.view(),
                        .cos = cos.view(),
                        .sin = sin.view(),
                        .style = c.style,
                        .query_heads = c.heads.query,
                        .kv = kv,
                        .slots = slots,
                        .q_norm = c.norms ? q_norm.data() : nullptr,
                        .k_norm = c.norms ? k_norm.data() : nullptr,
                        .norm_eps = 1e-6f};
  if (kernel.supports(context.device.traits(), args)) {
    kernel.run(context, args);
  } else {
    outcome.cache.clear();
  }
  return outcome;
}

// Rounding of k may differ in its last bit, or by a step of its integers; v and what was not
// written may not differ, but for subnormal F16 under qemu, whose conversions obey flush-to-zero.
void expect_same_cache(const Case& c, std::vector<std::byte> cache,
                       std::vector<std::byte> expected) {
  const KvLayerView a = view_of(c, cache), b = view_of(c, expected);
  const double tiny = c.format == KvFormat::kF16 ? 0x1p-14 : 1e-6;
  for (int64_t slot = 0; slot < kBlocks * 16; ++slot) {
    for (int32_t head = 0; head < c.heads.kv; ++head) {
      const KvHeadView keys = k_head(b, slot / 16, head);
      for (int32_t d = 0; d < c.heads.dim; ++d) {
        const float key = load_key(a, slot, head, d), as = load_key(b, slot, head, d);
        if (std::memcmp(&key, &as, 4) == 0) continue;
        const double step = has_scales(c.format)
                                ? 1.01 * std::abs(bfloat16_to_float(*keys.scale(slot % 16, d)))
                                : 0;
        ASSERT_NEAR(key, as, std::abs(as) * 0x1p-8 + tiny + step) << slot << " " << d;
      }
      for (int32_t d = 0; d < c.heads.v_dim; ++d) {
        const float value = load_value(a, slot, head, d), as = load_value(b, slot, head, d);
        if (std::memcmp(&value, &as, 4) == 0) continue;
        ASSERT_NEAR(value, as, tiny) << slot << " " << d;
      }
    }
  }
  // What lies between layers.
  const auto used = static_cast<size_t>(b.v_offset + v_part_bytes(b));
  for (size_t block = 0; block < size_t{kBlocks}; ++block) {
    const size_t first = block * static_cast<size_t>(b.block_stride) + used;
    for (size_t at = first; at < first + 64; ++at) ASSERT_EQ(cache[at], std::byte{0x7f});
  }
}

void expect_kernels_agree(TestDevice& device, const Case& c) {
  const Outcome expected = run(device.context(), rope_kv_kernels().all().back(), c);
  for (const auto& kernel : rope_kv_kernels().all()) {
    const Outcome outcome = run(device.context(), kernel, c);
    if (outcome.cache.empty()) continue;
    SCOPED_TRACE(kernel.name);
    EXPECT_TRUE(all_close(outcome.qkv, expected.qkv, 1e-6, 2e-6));
    EXPECT_TRUE(outcome.qkv.gaps_untouched());
    expect_same_cache(c, outcome.cache, expected.cache);
  }
}

// A page of 8-bit floats: each number has a byte of its own, 16 components of a token side by side.
TEST(RopeKv, NumbersIn8BitFloatsHaveEachTheirPlace) {
  for (const int32_t dim : {16, 64, 80, 100, 18, 256}) {
    KvLayerView kv = alike_kv(KvFormat::kFp8, KeyLayout::kRows, 2, dim);
    EXPECT_EQ(kv.v_offset, 2 * 16 * dim);
    EXPECT_EQ(unpacked_kv(kv, DType::kBF16).block_stride, 4 * kv.v_offset);
    std::vector<std::byte> memory(static_cast<size_t>(2 * kv.v_offset), std::byte{0xff});
    kv.base = memory.data();
    kv.block_stride = 2 * kv.v_offset;
    std::vector<float> numbers(static_cast<size_t>(dim));
    const auto number = [](int64_t token, int32_t head, int32_t d, bool is_key) {
      const auto bits =
          static_cast<uint8_t>((token * 7 + head * 3 + d * 5 + (is_key ? 1 : 0)) % 127);
      return e4m3_to_float(bits);
    };
    const auto each = [&](const auto& body) {
      for (int64_t token = 0; token < 16; ++token) {
        for (int32_t head = 0; head < 2; ++head) {
          for (const bool is_key : {false, true}) body(token, head, is_key);
        }
      }
    };
    each([&](int64_t token, int32_t head, bool is_key) {
      for (int32_t d = 0; d < dim; ++d) {
        numbers[static_cast<size_t>(d)] = number(token, head, d, is_key);
      }
      (is_key ? store_key : store_value)(kv, token, head, numbers.data());
    });
    EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{0xff}), 0) << dim;
    each([&](int64_t token, int32_t head, bool is_key) {
      for (int32_t d = 0; d < dim; ++d) {
        EXPECT_EQ((is_key ? load_key : load_value)(kv, token, head, d),
                  number(token, head, d, is_key));
      }
      const std::byte* at = is_key ? key_at(kv, token, head, 0) : value_at(kv, token, head, 0);
      EXPECT_EQ((is_key ? key_at : value_at)(kv, token, head, std::min(dim, 16) - 1),
                at + std::min(dim, 16) - 1);
    });
  }
}

// Pages of integers with a scale a head or a group: each has its place, scales lie behind them; a
// number is off by half a step (of 4 bits the largest of the other sign by one), and one that is
// not finite makes what shares its scale NaN.
struct IntegerCase {
  KvFormat format;
  int32_t dim;
  KeyLayout keys;
  int64_t bytes;  // of a token and head
};
class RopeKvIntegers : public testing::TestWithParam<IntegerCase> {};
INSTANTIATE_TEST_SUITE_P(
    Formats, RopeKvIntegers,
    testing::Values(IntegerCase{KvFormat::kInt8Head, 16, KeyLayout::kRows, 18},
                    IntegerCase{KvFormat::kInt8Head, 80, KeyLayout::kRows, 82},
                    IntegerCase{KvFormat::kInt8Head, 18, KeyLayout::kRows, 20},
                    IntegerCase{KvFormat::kInt8Head, 256, KeyLayout::kRows, 258},
                    IntegerCase{KvFormat::kInt4Head, 64, KeyLayout::kRows, 34},
                    IntegerCase{KvFormat::kInt4Head, 80, KeyLayout::kRows, 50},
                    IntegerCase{KvFormat::kInt4Head, 256, KeyLayout::kRows, 130},
                    IntegerCase{KvFormat::kInt4, 64, KeyLayout::kTransposed, 36},
                    IntegerCase{KvFormat::kInt4, 80, KeyLayout::kTransposed, 46},
                    IntegerCase{KvFormat::kInt4, 24, KeyLayout::kTransposed, 18}),
    [](const auto& of) { return "Case" + std::to_string(of.index); });
TEST_P(RopeKvIntegers, AreWithinHalfAStep) {
  const IntegerCase& c = GetParam();
  const int32_t dim = c.dim;
  const float steps = has_4_bits(c.format) ? 1.04f : 0.5f;  // the scale is rounded
  for (const bool is_key : {true, false}) {
    KvLayerView kv = alike_kv(c.format, c.keys, 2, dim);
    EXPECT_EQ(kv.v_offset, 2 * 16 * c.bytes);
    const auto head_of = [&](int32_t head) {
      return is_key ? k_head(kv, 0, head) : v_head(kv, 0, head);
    };
    std::vector<std::byte> memory(static_cast<size_t>(2 * kv.v_offset), std::byte{0x7f});
    kv.base = memory.data();
    kv.block_stride = 2 * kv.v_offset;
    Rng rng(static_cast<uint64_t>(dim));
    std::vector<std::vector<float>> kept;
    for (int64_t token = 0; token < 16; ++token) {
      for (int32_t head = 0; head < 2; ++head) {
        kept.push_back(random_floats(rng, dim, 3.0f));
        if (token == 5 && head == 1) kept.back()[static_cast<size_t>(dim) - 1] = INFINITY;
        store_numbers(head_of(head), token, kept.back().data());
      }
    }
    for (int64_t token = 0; token < 16; ++token) {
      for (int32_t head = 0; head < 2; ++head) {
        const auto& numbers = kept[static_cast<size_t>(token * 2 + head)];
        for (int32_t d = 0; d < dim; ++d) {
          const uint16_t* scale = head_of(head).scale(token, d);
          const float step = std::abs(bfloat16_to_float(*scale));
          const float number = load_number(head_of(head), token, d);
          if (token == 5 && head == 1 && scale == head_of(head).scale(token, dim - 1)) {
            EXPECT_TRUE(std::isnan(number));
          } else {
            EXPECT_NEAR(number, numbers[static_cast<size_t>(d)], 1.001f * steps * step) << d;
          }
        }
      }
    }
    EXPECT_EQ(reinterpret_cast<std::byte*>(head_of(1).scale(15, dim - 1) + 1),
              memory.data() + (is_key ? 1 : 2) * kv.v_offset);
    const auto others = memory.begin() + (is_key ? kv.v_offset : 0);
    EXPECT_EQ(std::count(others, others + kv.v_offset, std::byte{0x7f}), kv.v_offset);
  }
}

// Mixed twice a head is what it was, and products of mixed heads are those of the heads.
TEST(RopeKv, MixedHeadsHaveTheSameProducts) {
  for (const int32_t dim : {16, 64, 80, 96, 128, 256}) {
    Rng rng(static_cast<uint64_t>(dim));
    const std::vector<float> a = random_floats(rng, dim), b = random_floats(rng, dim);
    std::vector<float> mixed_a = a, mixed_b = b;
    mix_head(mixed_a.data(), dim);
    mix_head(mixed_b.data(), dim);
    double product = 0, mixed_product = 0;
    for (size_t d = 0; d < a.size(); ++d) {
      product += double{a[d]} * b[d];
      mixed_product += double{mixed_a[d]} * mixed_b[d];
    }
    EXPECT_NEAR(mixed_product, product, 1e-4) << dim;
    EXPECT_GT(std::abs(mixed_a[1] - a[1]), 1e-6f) << dim;
    mix_head(mixed_a.data(), dim);
    for (size_t d = 0; d < a.size(); ++d) EXPECT_NEAR(mixed_a[d], a[d], 1e-5) << dim;
  }
}

TEST(RopeKv, EveryKernelAgreesWithTheReference) {
  TestDevice device = TestDevice::cpu(2);
  const Heads heads[] = {{9, 3, 64},  {4, 4, 80}, {8, 1, 128},     {2, 1, 96},
                         {2, 2, 256}, {1, 1, 24}, {4, 2, 192, 128}};
  bool norms = false;  // in every second case, of each format in every second style
  for (const Heads& h : heads) {
    for (const int64_t tokens : {1, 37}) {
      for (const int64_t rope_dim : {h.dim, h.dim / 2, 0}) {
        for (const auto style : {RopeStyle::kHalf, RopeStyle::kInterleaved}) {
          for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16,
                                        KvFormat::kInt8, KvFormat::kInt4}) {
            expect_kernels_agree(device, {h, tokens, rope_dim, style, format, norms});
            norms = !norms;
          }
          norms = !norms;  // the next style's formats get the others
        }
      }
    }
  }
}

// A head that was normalised has the weights' length, whatever it was before.
TEST(RopeKv, NormsComeBeforeTheRotation) {
  TestDevice device = TestDevice::cpu(1);
  const Case plain{{2, 1, 32}, 3, 32, RopeStyle::kHalf, KvFormat::kF32, false};
  Case normed = plain;
  normed.norms = true;
  Rng rng(5);
  const TestMatrix rows(rng, 3, 4 * 32);  // as run() makes them
  const std::vector<float> q_norm = random_floats(rng, 32);
  const Outcome outcome = run(device.context(), rope_kv_kernels().all().back(), normed);
  for (int64_t head = 0; head < 2; ++head) {
    double squares = 0, expected = 0, actual = 0;
    for (int64_t d = 0; d < 32; ++d) squares += std::pow(rows.at(2, head * 32 + d), 2);
    for (int64_t d = 0; d < 32; ++d) {
      const double x = rows.at(2, head * 32 + d) / std::sqrt(squares / 32 + 1e-6);
      expected += std::pow(x * q_norm[static_cast<size_t>(d)], 2);
      actual += std::pow(outcome.qkv.at(2, head * 32 + d), 2);  // a rotation keeps the length
    }
    EXPECT_NEAR(actual, expected, 1e-4 * expected);
  }
}

// No number is further from what is kept of it than half a step; groups of zeros, of tiny and of
// huge numbers are numbers; one that is not finite makes its group NaN, and no other.
TEST(RopeKv, IntegersAreWithinHalfAStep) {
  TestDevice device = TestDevice::cpu(1);
  constexpr int32_t kDim = 176;  // five groups and a half
  const float specials[] = {1.0f, 0.0f, 3e38f, 1e-38f, std::nanf(""), HUGE_VALF};
  for (const auto& kernel : rope_kv_kernels().all()) {
    Rng rng(7);
    TestMatrix qkv(rng, 1, 3 * kDim);
    for (int32_t d = 0; d < kDim; ++d) {
      float& v = qkv.at(0, 2 * kDim + d);
      const float special = specials[d / kKvGroup];
      v = std::isfinite(special) ? std::clamp(v, -0.99f, 0.99f) * special : v;
      if (!std::isfinite(special) && d % kKvGroup == 9) v = special;
    }
    std::vector<std::byte> cache;
    const Case c{{1, 1, kDim}, 1, 0, RopeStyle::kHalf, KvFormat::kInt8};
    const KvLayerView kv = view_of(c, cache);
    const std::vector<int64_t> slots = {21};
    TestMatrix angles(1, 0);
    const RopeKvArgs args{.qkv = qkv.view(),
                          .cos = angles.view(),
                          .sin = angles.view(),
                          .query_heads = 1,
                          .kv = kv,
                          .slots = slots};
    if (!kernel.supports(device.device().traits(), args)) continue;
    OpContext context = device.context();
    kernel.run(context, args);
    for (const bool keys : {true, false}) {
      for (int32_t d = 0; d < kDim; ++d) {
        const float number = qkv.at(0, (keys ? 1 : 2) * kDim + d);
        const float kept = keys ? load_key(kv, 21, 0, d) : load_value(kv, 21, 0, d);
        const KvHeadView head = keys ? k_head(kv, 1, 0) : v_head(kv, 1, 0);
        const double step = bfloat16_to_float(*head.scale(5, d));
        const bool finite = keys || std::isfinite(specials[d / kKvGroup]);
        ASSERT_EQ(std::isnan(kept), !finite) << kernel.name << " " << d;
        if (finite) {
          ASSERT_NEAR(kept, number, 0.5001 * step + 1e-30) << kernel.name << " " << d;
        }
      }
    }
  }
}

TEST(RopeKv, PutsKeysAndValuesWhereTheLayoutSays) {
  TestDevice device = TestDevice::cpu(1);
  const Case c{{2, 1, 16}, 3, 16, RopeStyle::kHalf, KvFormat::kF32};
  for (const auto& kernel : rope_kv_kernels().all()) {
    Outcome outcome = run(device.context(), kernel, c);
    if (outcome.cache.empty()) continue;
    KvLayerView kv = view_of(c, outcome.cache);
    for (int64_t t = 0; t < 3; ++t) {
      const int64_t slot = (t * 37 + 11) % (kBlocks * 16);
      for (int32_t d = 0; d < 16; ++d) {
        EXPECT_EQ(load_kv(DType::kF32, key_at(kv, slot, 0, d)), outcome.qkv.at(t, 32 + d));
        EXPECT_EQ(load_kv(DType::kF32, value_at(kv, slot, 0, d)), outcome.qkv.at(t, 48 + d));
      }
    }
  }
}

// The score of two rotated vectors depends on the distance of their positions alone.
TEST(RopeKv, RotationKeepsRelativePositions) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  const std::vector<double> inv_freq = {1.0, 0.1, 0.01, 0.001};
  const auto rotated_dot = [&](int32_t p, int32_t q) {
    TestMatrix cos(2, 4), sin(2, 4);
    rope_angles(context, {.positions = std::vector<int32_t>{p, q},
                          .inv_freq = inv_freq,
                          .cos = cos.view(),
                          .sin = sin.view()});
    double dot = 0;
    for (int64_t i = 0; i < 4; ++i) {  // (1, 0) rotated by both angles
      dot += cos.at(0, i) * cos.at(1, i) + sin.at(0, i) * sin.at(1, i);
    }
    return dot;
  };
  EXPECT_NEAR(rotated_dot(7, 3), rotated_dot(1007, 1003), 1e-6);
}

}  // namespace
}  // namespace headrace::rope_kv_test
