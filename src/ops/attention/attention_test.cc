#include "ops/attention/attention.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ops/attention/attention_fixture.h"
#include "ops/attention/kv_numbers.h"
#include "ops/attention/panels.h"
#include "ops/op_fixture.h"
#include "tensor/half.h"

namespace headrace::attention_test {
namespace {

using namespace attention_fixture;

class AttentionSweep : public testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Attention, AttentionSweep, testing::ValuesIn(cases()), name_of);

// A prompt, a chunk in the middle of another, two decode rows, all in one batch.
TEST_P(AttentionSweep, EveryKernelAgreesWithTheReference) {
  const AttentionCase& c = GetParam();
  Setting setting(c.heads, c.formats, {37, 300, 1, 530});
  const std::vector<Piece> batch = {{0, 0, 37}, {1, 285, 300}, {2, 0, 1}, {3, 529, 530}};
  TestDevice one = TestDevice::cpu(1), two = TestDevice::cpu(2);
  setting.write(1, 0, 285);
  setting.write(3, 0, 529);
  std::vector<TestMatrix> expected = no_results(setting);
  ASSERT_TRUE(run_step(two.context(), reference(), setting, c.options, batch, expected));
  for (const auto& kernel : attention_kernels().all()) {
    for (TestDevice* device : {&one, &two}) {
      std::vector<TestMatrix> results = no_results(setting);
      if (!run_step(device->context(), kernel, setting, c.options, batch, results)) continue;
      for (const Piece& piece : batch) {
        for (int32_t t = piece.first; t < piece.last; ++t) {
          for (int64_t i = 0; i < results[0].columns(); ++i) {
            ASSERT_NEAR(results[piece.sequence].at(t, i), expected[piece.sequence].at(t, i), 3e-6)
                << kernel.name << " sequence " << piece.sequence << " row " << t << " column " << i;
          }
        }
      }
    }
  }
}

// The whole prompt at once, chunks of random sizes beside other sequences, and token by token.
TEST_P(AttentionSweep, ARowHasTheSameBitsHoweverItIsBatched) {
  const AttentionCase& c = GetParam();
  TestDevice one = TestDevice::cpu(1), two = TestDevice::cpu(2), three = TestDevice::cpu(3);
  Setting setting(c.heads, c.formats, {330, 21});
  for (const auto& kernel : attention_kernels().all()) {
    if (&kernel == &reference() && c.heads.dim != 24) continue;  // slow, and plainly row by row
    SCOPED_TRACE(kernel.name);
    setting.forget();
    std::vector<TestMatrix> whole = no_results(setting);
    if (!run_step(two.context(), kernel, setting, c.options, {{0, 0, 330}}, whole)) continue;
    ASSERT_TRUE(run_step(two.context(), kernel, setting, c.options, {{1, 0, 21}}, whole));

    Rng rng(3);
    setting.forget();
    std::vector<TestMatrix> chunked = no_results(setting);
    for (int32_t first = 0, other = 0; first < 330;) {
      const int32_t last = std::min<int32_t>(330, first + static_cast<int32_t>(rng.between(1, 40)));
      std::vector<Piece> batch = {{0, first, last}};
      if (other < 21) batch.insert(batch.begin(), {1, other, other + 1});
      ++other;
      ASSERT_TRUE(run_step(three.context(), kernel, setting, c.options, batch, chunked));
      first = last;
    }
    EXPECT_TRUE(same_bits(chunked[0], whole[0]));

    setting.forget();
    std::vector<TestMatrix> single = no_results(setting);
    for (int32_t t = 0; t < 330; ++t) {
      TestDevice& device = t % 2 ? one : two;
      ASSERT_TRUE(run_step(device.context(), kernel, setting, c.options, {{0, t, t + 1}}, single));
    }
    EXPECT_TRUE(same_bits(single[0], whole[0]));
  }
}

// --- kernels that multiply in BF16 (panel.h) ---

void run_amx_emulated(OpContext& context, const AttentionArgs& args) {
  run_attention_panels(context, args, attend_panel_amx_emulated, attend_split_avx512);
}
bool has_emulation(const DeviceTraits& traits, const AttentionArgs& args) {
  return traits.cpu.avx512_bf16 && fits_attention_panels(args);
}
std::vector<Kernel<AttentionArgs>> panel_kernels() {
  std::vector<Kernel<AttentionArgs>> kernels{
      {"attention/cpu/amx_emulated", has_emulation, run_amx_emulated}};
  for (const auto& kernel : attention_kernels().all()) {
    if (kernel.name == "attention/cpu/amx" || kernel.name == "attention/cpu/avx512_bf16") {
      kernels.push_back(kernel);
    }
  }
  return kernels;
}
TestDevice every_kernel(int threads) {
  constexpr bool kBatchInvariant = false;
  flush_denormals_on_this_thread();
  return TestDevice(
      create_cpu_device(threads, CpuFeatures::detect(), CpuBinding::kAuto, kBatchInvariant));
}
// A weight of the softmax is rounded to 8 bits; values are at most about 4.
constexpr double kPanelError = 4.0 / 256;

class PanelSweep : public testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Attention, PanelSweep, testing::ValuesIn(cases()), name_of);

// A prompt, the rest of another, a row, rows that cross two splits, all in one batch.
TEST_P(PanelSweep, AgreesWithTheReference) {
  const AttentionCase& c = GetParam();
  Setting setting(c.heads, c.formats, {37, 300, 1, 530});
  setting.round_inputs_to_bfloat16();
  const std::vector<Piece> batch = {{0, 0, 37}, {1, 255, 300}, {2, 0, 1}, {3, 401, 530}};
  TestDevice one = every_kernel(1), two = every_kernel(2);
  setting.write(1, 0, 255);
  setting.write(3, 0, 401);
  std::vector<TestMatrix> expected = no_results(setting);
  ASSERT_TRUE(run_step(two.context(), reference(), setting, c.options, batch, expected));
  for (const auto& kernel : panel_kernels()) {
    for (TestDevice* device : {&one, &two}) {
      std::vector<TestMatrix> results = no_results(setting);
      if (!run_step(device->context(), kernel, setting, c.options, batch, results)) continue;
      for (const Piece& piece : batch) {
        for (int32_t t = piece.first; t < piece.last; ++t) {
          for (int64_t i = 0; i < results[0].columns(); ++i) {
            ASSERT_NEAR(results[piece.sequence].at(t, i), expected[piece.sequence].at(t, i),
                        kPanelError)
                << kernel.name << " sequence " << piece.sequence << " row " << t << " column " << i;
          }
        }
      }
    }
  }
}

// However rows are cut into panels and steps, and whatever shares them: only rows that are too few
// for a panel have other bits.
TEST_P(PanelSweep, ARowOfAPanelHasTheSameBits) {
  const AttentionCase& c = GetParam();
  Setting setting(c.heads, c.formats, {330, 21});
  TestDevice one = every_kernel(1), three = every_kernel(3);
  for (const auto& kernel : panel_kernels()) {
    setting.forget();
    std::vector<TestMatrix> whole = no_results(setting), chunked = no_results(setting);
    if (!run_step(one.context(), kernel, setting, c.options, {{0, 0, 330}}, whole)) continue;
    setting.forget();
    for (const auto& [first, last] : {std::pair{0, 17}, {17, 100}, {100, 259}, {259, 330}}) {
      const std::vector<Piece> batch = {{1, first / 20, first / 20 + 1}, {0, first, last}};
      ASSERT_TRUE(run_step(three.context(), kernel, setting, c.options, batch, chunked));
    }
    EXPECT_TRUE(same_bits(chunked[0], whole[0])) << kernel.name;
  }
}

// On a machine with AMX: what the tests of all others are worth.
TEST(AttentionPanels, TilesGiveTheBitsOfTheirEmulation) {
  TestDevice device = every_kernel(2);
  if (!device.device().traits().cpu.amx_bf16) GTEST_SKIP() << "no AMX";
  for (const Heads heads : {Heads{9, 3, 64}, Heads{4, 4, 80}, Heads{2, 2, 256}}) {
    Setting setting(heads, {KvFormat::kF16}, {333});
    std::vector<std::vector<TestMatrix>> all;
    for (const auto& kernel : panel_kernels()) {
      if (kernel.name == "attention/cpu/avx512_bf16") continue;
      std::vector<TestMatrix>& results = all.emplace_back(no_results(setting));
      ASSERT_TRUE(run_step(device.context(), kernel, setting, {}, {{0, 0, 333}}, results));
    }
    ASSERT_EQ(all.size(), 2u);
    EXPECT_TRUE(same_bits(all[1][0], all[0][0]));
  }
}

// What a sequence has not written yet, and NaN among the keys and values of later rows.
TEST(AttentionPanels, ANanIsSeenByRowsBehindItAlone) {
  TestDevice device = every_kernel(2);
  for (const bool value : {false, true}) {
    Setting setting({4, 2, 64}, {KvFormat::kF16}, {70, 70});
    Sequence& other = setting.sequence(1);
    (value ? other.v : other.k)[40 * 2 * 64] = std::nanf("");
    for (const auto& kernel : panel_kernels()) {
      std::vector<TestMatrix> results = no_results(setting);
      if (!run_step(device.context(), kernel, setting, {}, {{0, 0, 70}, {1, 0, 70}}, results)) {
        continue;
      }
      for (int32_t t = 0; t < 70; ++t) {
        EXPECT_FALSE(std::isnan(results[0].at(t, 0))) << kernel.name;
        EXPECT_EQ(std::isnan(results[1].at(t, 0)), t >= 40) << kernel.name << " row " << t;
      }
    }
  }
}

// Of one key, a sink leaves the value its share of two exponentials.
TEST(Attention, ASinkTakesItsShare) {
  TestDevice device = TestDevice::cpu(1);
  Setting setting({4, 2, 64}, {KvFormat::kF32}, {1});
  const Sequence& s = setting.sequence(0);
  for (const auto& kernel : attention_kernels().all()) {
    std::vector<TestMatrix> results = no_results(setting);
    if (!run_step(device.context(), kernel, setting, {.sinks = true}, {{0, 0, 1}}, results))
      continue;
    for (int32_t h = 0; h < 4; ++h) {
      double score = 0;
      for (int32_t d = 0; d < 64; ++d) {
        score += double{s.q.at(0, h * 64 + d)} * s.k[static_cast<size_t>(h / 2 * 64 + d)];
      }
      const double weight = std::exp(score / 8),
                   sink = std::exp(double{sinks_of(4)[static_cast<size_t>(h)]});
      for (int32_t d = 0; d < 64; ++d) {
        EXPECT_NEAR(results[0].at(0, h * 64 + d),
                    s.v[static_cast<size_t>(h / 2 * 64 + d)] * weight / (weight + sink), 1e-5)
            << kernel.name;
      }
    }
  }
}

// An integer times its scale is exact in f32.
class AttentionIntegers : public testing::TestWithParam<KvFormat> {};
INSTANTIATE_TEST_SUITE_P(Formats, AttentionIntegers,
                         testing::Values(KvFormat::kInt8, KvFormat::kInt4), [](const auto& of) {
                           return std::string(of.param == KvFormat::kInt8 ? "int8" : "int4");
                         });
TEST_P(AttentionIntegers, GiveTheBitsOfWhatTheyStandFor) {
  for (const Heads heads : {Heads{9, 3, 64}, Heads{4, 4, 80}, Heads{6, 1, 192, 128}}) {
    TestDevice device = TestDevice::cpu(2);
    Setting integers(heads, {GetParam()}, {300, 40}), floats(heads, {KvFormat::kF32}, {300, 40});
    for (const size_t index : {0, 1}) integers.write(index, 0, integers.sequence(index).length);
    floats.copy_meaning(integers);
    for (const auto& kernel : attention_kernels().all()) {
      std::vector<TestMatrix> of_integers = no_results(integers), of_floats = no_results(floats);
      const std::vector<Piece> batch = {{0, 290, 300}, {1, 39, 40}};
      if (!run_step(device.context(), kernel, integers, {}, batch, of_integers)) continue;
      floats.write(0, 0, 290), floats.write(1, 0, 39);
      ASSERT_TRUE(run_step(device.context(), kernel, floats, {}, batch, of_floats)) << kernel.name;
      for (const size_t index : {0, 1}) {
        EXPECT_TRUE(same_bits(of_integers[index], of_floats[index])) << kernel.name;
      }
    }
  }
}

// The latent of multi-head latent attention, absorbed: one key head, of which a value is a part. A
// kernel gives the bits that it gives where the same values lie apart.
TEST(Attention, ValuesMayBePartOfKeys) {
  TestDevice device = TestDevice::cpu(2);
  constexpr int32_t kLength = 300;
  for (const Heads& heads : {Heads{4, 1, 80, 64}, Heads{2, 1, 576, 512}}) {
    for (const KvFormat format :
         {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4}) {
      Setting setting(heads, {format}, {kLength});
      Sequence& s = setting.sequence(0);
      for (std::ptrdiff_t t = 0; t < kLength; ++t) {
        std::copy_n(s.k.begin() + t * heads.dim, heads.v_dim, s.v.begin() + t * heads.v_dim);
      }
      int32_t count = 0;
      for (const auto& kernel : attention_kernels().all()) {
        SCOPED_TRACE(kernel.name);
        std::vector<TestMatrix> expected = no_results(setting), results = no_results(setting);
        const auto run = [&](bool alias, std::vector<TestMatrix>& to) {
          setting.forget();
          setting.alias_values(alias);
          return run_step(device.context(), kernel, setting, {}, {{0, 0, 21}}, to) &&
                 run_step(device.context(), kernel, setting, {}, {{0, 21, kLength}}, to);
        };
        if (!run(true, results)) continue;
        ASSERT_TRUE(run(false, expected));
        EXPECT_TRUE(same_bits(results[0], expected[0]));
        ++count;
      }
      EXPECT_GT(count, device.device().traits().cpu.avx2 ? 1 : 0);
    }
  }
}

// Few rows over many keys run split by split on several threads.
TEST(Attention, ParallelSplitsGiveTheBitsOfOneThread) {
  const Heads heads{9, 3, 64};
  Setting setting(heads, {KvFormat::kF16}, {3000});
  setting.write(0, 0, 2999);
  TestDevice one = TestDevice::cpu(1), four = TestDevice::cpu(4);
  for (const auto& kernel : attention_kernels().all()) {
    std::vector<TestMatrix> alone = no_results(setting), shared = no_results(setting);
    const std::vector<Piece> batch = {{0, 2999, 3000}};
    if (!run_step(one.context(), kernel, setting, {}, batch, alone)) continue;
    ASSERT_TRUE(run_step(four.context(), kernel, setting, {}, batch, shared));
    EXPECT_TRUE(same_bits(&alone[0].at(2999, 0), &shared[0].at(2999, 0), 9 * 64)) << kernel.name;
  }
  EXPECT_LE(four.context().workspace.high_water(), attention_workspace_bytes(4, 64, 3000));
}

// vec16_avx2.h and vec16_avx512.h do the same operations in the same order.
TEST(Attention, InstructionSetsGiveTheSameBits) {
  TestDevice device = TestDevice::cpu(1);
  Setting setting({9, 3, 64}, {KvFormat::kF16}, {300});
  std::vector<std::vector<TestMatrix>> all;
  for (const auto& kernel : attention_kernels().all()) {
    if (&kernel == &reference() || kernel.name.ends_with("materialised")) continue;
    std::vector<TestMatrix> results = no_results(setting);
    if (run_step(device.context(), kernel, setting, {}, {{0, 0, 300}}, results))
      all.push_back(results);
  }
  for (size_t i = 1; i < all.size(); ++i) EXPECT_TRUE(same_bits(all[i][0], all[0][0]));
}

// One sequence's NaN is its own.
TEST(Attention, ANanStaysInItsSequenceAndBehindIt) {
  TestDevice device = TestDevice::cpu(2);
  for (const bool value : {false, true}) {
    Setting setting({4, 2, 64}, {KvFormat::kF32}, {40, 40});
    Sequence& other = setting.sequence(1);
    (value ? other.v : other.k)[20 * 2 * 64] = std::nanf("");
    for (const auto& kernel : attention_kernels().all()) {
      std::vector<TestMatrix> results = no_results(setting);
      if (!run_step(device.context(), kernel, setting, {}, {{0, 0, 40}, {1, 0, 40}}, results)) {
        continue;
      }
      for (int32_t t = 0; t < 40; ++t) {
        EXPECT_FALSE(std::isnan(results[0].at(t, 0)));
        EXPECT_EQ(std::isnan(results[1].at(t, 0)), t >= 20) << kernel.name << " row " << t;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::attention_test
