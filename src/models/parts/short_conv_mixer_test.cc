#include "models/parts/short_conv_mixer.h"

#include <gtest/gtest.h>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace::short_conv_mixer_test {
namespace {

constexpr size_t kHidden = 24;
constexpr int32_t kRows = 37;
constexpr ShortConvSpec kSpec{.taps = 3};

// x + out(C * conv(B x)) of every row.
Rows expected_rows(const MadeTensors& tensors, const Rows& rows) {
  const std::vector<float>& taps = tensors.values("shortconv.conv.weight");
  Rows kept, mixed;
  for (const Row& row : rows) {
    const Row bcx = times(tensors.values("shortconv.in_proj.weight"), row);
    Row& bx = kept.emplace_back(kHidden);
    Row y(kHidden);
    for (size_t d = 0; d < kHidden; ++d) {
      bx[d] = bcx[d] * bcx[2 * kHidden + d];
      for (size_t j = 0; j < 3 && j < kept.size(); ++j) {
        y[d] += taps[3 * d + 2 - j] * kept[kept.size() - 1 - j][d];
      }
      y[d] *= bcx[kHidden + d];
    }
    Row& out = mixed.emplace_back(times(tensors.values("shortconv.out_proj.weight"), y));
    for (size_t d = 0; d < kHidden; ++d) out[d] += row[d];
  }
  return mixed;
}

TEST(ShortConvMixer, EqualsPlainLoops) {
  PartPass pass(kRows, kHidden, /*in_place=*/true);
  MadeTensors tensors(pass.device());
  const auto part = make_part(kSpec, kHidden);
  ASSERT_TRUE(part->load(tensors).ok());
  PartCache cache(pass.device(), *part, kRows);
  Rng rng(5);
  const TestMatrix x(rng, kRows, kHidden);
  const Rows expected = expected_rows(tensors, rows_of(x));
  EXPECT_TRUE(rows_close(pass.run(*part, cache, x, {}), expected));
}

// In a model, as the last layer and between others: its bits do not depend on how a text is cut
// into steps, nor on which rows are read.
TEST(ShortConvMixer, RunsInADecoder) { expect_runs_in_a_decoder(kSpec); }

// Of a build without CUDA no number of taps fits.
TEST(ShortConvMixer, MoreTapsThanAGpuTakesAreRefused) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  EXPECT_EQ(make_part(kSpec, kHidden)->check_device(gpu, DType::kBF16).ok(), built_with_cuda());
  ShortConvSpec long_one = kSpec;
  long_one.taps = 9;
  const Status refused = make_part(long_one, kHidden)->check_device(gpu, DType::kBF16);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_TRUE(refused.message().starts_with("convolutions of 9 taps are larger than"))
      << refused.message();
  EXPECT_TRUE(make_part(long_one, kHidden)->check_device({}, DType::kF32).ok());
}

}  // namespace
}  // namespace headrace::short_conv_mixer_test
