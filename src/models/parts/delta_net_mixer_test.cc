#include "models/parts/delta_net_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace::delta_net_mixer_test {
namespace {

constexpr int64_t kHidden = 24;
constexpr int32_t kRows = 37;
constexpr DeltaNetSpec kSpec{
    .heads = {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12},
    .taps = 4,
    .norm_eps = 1e-6f};

// Of tensors that lie head by head, what separate ones would hold: rows of a matrix of `columns`.
std::vector<float> rows_of_heads(const std::vector<float>& all, int32_t of_head, int32_t first,
                                 int32_t count, int64_t columns) {
  std::vector<float> rows;
  for (int32_t head = 0; head < kSpec.heads.key_heads; ++head) {
    const auto at = all.begin() + (head * of_head + first) * columns;
    rows.insert(rows.end(), at, at + count * columns);
  }
  return rows;
}

std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Qwen3-Next's tensors and Qwen3.5's, of the same numbers.
TEST(DeltaNetMixer, TensorsByHeadAreTheSameAsSeparateOnes) {
  const DeltaHeads& heads = kSpec.heads;
  PartPass pass(kRows, kHidden, /*in_place=*/true);
  DeltaNetSpec by_head = kSpec;
  by_head.tensors = DeltaTensors::kByHead;
  MadeTensors fused(pass.device()), separate(pass.device());
  const auto first = make_part(by_head, kHidden), second = make_part(kSpec, kHidden);
  ASSERT_TRUE(first->load(fused).ok());
  const int32_t dk = heads.key_dim, values = 2 * heads.value_dim, of_head = 2 * dk + 2 * values;
  const auto rows = [&](int32_t from, int32_t count) {
    return rows_of_heads(fused.values("ssm_in.weight"), of_head, from, count, kHidden);
  };
  separate.set("attn_qkv.weight", joined({rows(0, dk), rows(dk, dk), rows(2 * dk, values)}));
  separate.set("attn_gate.weight", rows(2 * dk + values, values));
  separate.set("ssm_beta.weight", rows_of_heads(fused.values("ssm_ba.weight"), 4, 0, 2, kHidden));
  separate.set("ssm_alpha.weight", rows_of_heads(fused.values("ssm_ba.weight"), 4, 2, 2, kHidden));
  for (const char* name :
       {"ssm_conv1d.weight", "ssm_dt.bias", "ssm_a", "ssm_norm.weight", "ssm_out.weight"}) {
    separate.set(name, fused.values(name));
  }
  ASSERT_TRUE(second->load(separate).ok());
  Rng rng(5);
  const TestMatrix x(rng, kRows, kHidden);
  PartCache cache(pass.device(), *first, kRows), other(pass.device(), *second, kRows);
  EXPECT_TRUE(same_bits(pass.run(*first, cache, x, {}), pass.run(*second, other, x, {})));
}

// As ShortConvMixer's test of this name. (What it computes: ops/states/delta_rule_test.cc, and
// models/tiny_models_test.cc against transformers.)
TEST(DeltaNetMixer, RunsInADecoder) { expect_runs_in_a_decoder(kSpec); }

// And OLMo-Hybrid's, of which each thing has one.
TEST(DeltaNetMixer, TensorsApartAreTheSameAsJoinedOnes) {
  const DeltaHeads& heads = kSpec.heads;
  PartPass pass(kRows, kHidden, /*in_place=*/true);
  DeltaNetSpec in_parts = kSpec;
  in_parts.tensors = DeltaTensors::kApart;
  MadeTensors apart(pass.device()), together(pass.device());
  const auto first = make_part(in_parts, kHidden), second = make_part(kSpec, kHidden);
  ASSERT_TRUE(first->load(apart).ok());
  const auto all_of = [&](std::initializer_list<const char*> names) {
    std::vector<float> all;
    for (const char* name : names) {
      const std::vector<float>& values = apart.values(name);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  together.set("attn_qkv.weight", all_of({"attn_q.weight", "attn_k.weight", "attn_v.weight"}));
  together.set("ssm_conv1d.weight",
               all_of({"ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight"}));
  for (const char* name : {"attn_gate.weight", "ssm_beta.weight", "ssm_alpha.weight", "ssm_dt.bias",
                           "ssm_a", "ssm_norm.weight", "ssm_out.weight"}) {
    together.set(name, apart.values(name));
  }
  EXPECT_EQ(together.values("attn_qkv.weight").size(), static_cast<size_t>(heads.qkv() * kHidden));
  ASSERT_TRUE(second->load(together).ok());
  Rng rng(7);
  const TestMatrix x(rng, kRows, kHidden);
  PartCache cache(pass.device(), *first, kRows), other(pass.device(), *second, kRows);
  EXPECT_TRUE(same_bits(pass.run(*first, cache, x, {}), pass.run(*second, other, x, {})));
}

// GGUF files of Qwen3-Next have two of its tensors in the order of Qwen3.5's, and ssm_ba its own.
TEST(DeltaNetMixer, GatesByHeadAreTheSameAsSeparateOnes) {
  PartPass pass(kRows, kHidden, /*in_place=*/true);
  DeltaNetSpec by_head = kSpec;
  by_head.tensors = DeltaTensors::kGatesByHead;
  MadeTensors joined(pass.device()), separate(pass.device());
  const auto first = make_part(by_head, kHidden), second = make_part(kSpec, kHidden);
  ASSERT_TRUE(first->load(joined).ok());
  const std::vector<float>& gates = joined.values("ssm_ba.weight");
  separate.set("ssm_beta.weight", rows_of_heads(gates, 4, 0, 2, kHidden));
  separate.set("ssm_alpha.weight", rows_of_heads(gates, 4, 2, 2, kHidden));
  for (const char* name : {"attn_qkv.weight", "attn_gate.weight", "ssm_conv1d.weight",
                           "ssm_dt.bias", "ssm_a", "ssm_norm.weight", "ssm_out.weight"}) {
    separate.set(name, joined.values(name));
  }
  ASSERT_TRUE(second->load(separate).ok());
  Rng rng(9);
  const TestMatrix x(rng, kRows, kHidden);
  PartCache cache(pass.device(), *first, kRows), other(pass.device(), *second, kRows);
  EXPECT_TRUE(same_bits(pass.run(*first, cache, x, {}), pass.run(*second, other, x, {})));
}

// A rank's key heads would have value heads that lie apart.
TEST(DeltaNetMixer, EveryRankHasAllTiledHeads) {
  DeltaNetSpec tiled = kSpec;
  tiled.heads.tiled = true;
  const auto whole = make_part(tiled, kHidden), part = make_part(tiled, kHidden);
  ASSERT_TRUE(part->split({.rank = 1, .ranks = 2}).ok());
  EXPECT_EQ(part->state_bytes(), whole->state_bytes());
  const auto split = make_part(kSpec, kHidden);
  ASSERT_TRUE(split->split({.rank = 1, .ranks = 2}).ok());
  EXPECT_LT(split->state_bytes(), whole->state_bytes());
}

TEST(DeltaNetMixer, AGpuTakesNegativeEigenvalues) {
  if (!built_with_cuda()) GTEST_SKIP() << "not run: this build has no kernels of a GPU";
  DeltaNetSpec spec = kSpec;
  spec.beta_scale = 2;
  EXPECT_TRUE(
      make_part(spec, kHidden)->check_device({.kind = DeviceKind::kCuda}, DType::kBF16).ok());
}

}  // namespace
}  // namespace headrace::delta_net_mixer_test
