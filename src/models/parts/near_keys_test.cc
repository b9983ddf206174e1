#include "models/parts/near_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/made_model_fixture.h"
#include "models/parts/part_fixture.h"

namespace headrace::near_keys_test {
namespace {

constexpr int64_t kHidden = 24;
constexpr int32_t kRows = 37, kHeads = 6, kKeyHeads = 2;
constexpr size_t kDim = 8, kTaps = 3, kProfiles = 5;

AttentionSpec near_keys(int32_t window, int32_t extent) {
  return {.heads = kHeads,
          .kv_heads = kKeyHeads,
          .head_dim = kDim,
          .window = window,
          .scale = 1.0f / kDim,
          .qk_norm = QkNorm::kHead,
          .qk_norm_eps = 1e-5f,
          .near = {.taps = kTaps, .profiles = kProfiles, .extent = extent}};
}

// The last of `made`, convolved over those before it and added to itself. Taps: [channels, kTaps].
Row convolved(const Rows& made, const std::vector<float>& taps) {
  Row y = made.back();
  for (size_t c = 0; c < y.size(); ++c) {
    for (size_t j = 0; j < kTaps && j < made.size(); ++j) {
      y[c] += double{taps[kTaps * c + kTaps - 1 - j]} * made[made.size() - 1 - j][c];
    }
  }
  return y;
}

Row head_of(const Row& row, size_t head) {
  return {row.begin() + static_cast<int64_t>(head * kDim),
          row.begin() + static_cast<int64_t>((head + 1) * kDim)};
}

// x + attention(x) of every row.
Rows expected_rows(const AttentionSpec& spec, const MadeTensors& tensors, const Rows& rows) {
  const auto made = [&](const std::string& name, const Row& x) {
    return times(tensors.values(name + ".weight"), x);
  };
  const auto normed = [&](const Row& head, const std::string& name) {
    return rms_normed(head, tensors.values(name + ".weight"), double{spec.qk_norm_eps});
  };
  const std::vector<float>& profiles = tensors.values("attn_rel_profiles.weight");
  const auto extent = static_cast<size_t>(spec.near.extent);
  Rows made_keys, made_values, keys, values, mixed;
  for (const Row& row : rows) {
    made_keys.push_back(made("attn_k", row));
    made_values.push_back(made("attn_v", row));
    keys.push_back(convolved(made_keys, tensors.values("attn_k_conv.weight")));
    values.push_back(convolved(made_values, tensors.values("attn_v_conv.weight")));
    const Row queries = made("attn_q", row), numbers = made("attn_rel", row);
    const size_t count = keys.size();
    const size_t first =
        spec.window > 0 && count > static_cast<size_t>(spec.window) ? count - spec.window : 0;
    Row seen(kHeads * kDim, 0.0);
    for (size_t h = 0; h < kHeads; ++h) {
      const size_t key_head = h / (kHeads / kKeyHeads);
      const Row q = normed(head_of(queries, h), "attn_q_norm");
      Row weights;
      double total = 0;
      for (size_t t = first; t < count; ++t) {
        const Row k = normed(head_of(keys[t], key_head), "attn_k_norm");
        double score = 0;
        for (size_t d = 0; d < kDim; ++d) score += q[d] * k[d] * double{spec.scale};
        const size_t distance = count - 1 - t;
        for (size_t i = 0; distance < extent && i < kProfiles; ++i) {
          score += numbers[h * kProfiles + i] * profiles[i * extent + distance];
        }
        weights.push_back(std::exp(score));
        total += weights.back();
      }
      for (size_t t = first; t < count; ++t) {
        const Row v = head_of(values[t], key_head);
        for (size_t d = 0; d < kDim; ++d) seen[h * kDim + d] += weights[t - first] / total * v[d];
      }
    }
    mixed.push_back(made("attn_output", seen));
    for (size_t i = 0; i < row.size(); ++i) mixed.back()[i] += row[i];
  }
  return mixed;
}

TEST(NearKeys, EqualsPlainLoops) {
  for (const auto& [window, extent] : {std::pair(0, 9), {0, 100}, {12, 12}, {12, 5}}) {
    SCOPED_TRACE(testing::Message() << window << " " << extent);
    const AttentionSpec spec = near_keys(window, extent);
    PartPass pass(kRows, kHidden, /*in_place=*/true);
    MadeTensors tensors(pass.device());
    const auto part = make_part(spec, kHidden);
    ASSERT_TRUE(part->load(tensors).ok());
    PartCache cache(pass.device(), *part, kRows);
    Rng rng(5);
    const TestMatrix x(rng, kRows, kHidden);
    const RopeAngles none{TensorView(nullptr, DType::kF32, Shape{kRows, 0}),
                          TensorView(nullptr, DType::kF32, Shape{kRows, 0})};
    const Rows expected = expected_rows(spec, tensors, rows_of(x));
    EXPECT_TRUE(rows_close(pass.run(*part, cache, x, {.angles = {&none, 1}}), expected));
  }
}

DecoderSpec convolved_decoder(int32_t branch_taps) {
  DecoderSpec spec = uniform_decoder(tiny_config());
  spec.ropes = {{}};
  for_each_layer(spec, [&](DecoderLayerSpec& layer, int32_t i) {
    AttentionSpec& attention = layer.attention();
    attention.qk_norm = QkNorm::kHead;
    attention.near = {.taps = 4, .profiles = 3, .extent = 11};
    if (i == 0) attention.temperature = {.scale = 0.4f, .step = 8, .offset = 1, .smooth = true};
    layer.branch_taps = branch_taps;
  });
  return spec;
}

// Whole, in pieces, and with few rows read behind the last layer, whose network keeps a state.
TEST(NearKeys, BitsInADecoderDoNotDependOnSteps) {
  const SequenceValues plain = expect_bits_of_steps(convolved_decoder(0));
  const SequenceValues convolved = expect_bits_of_steps(convolved_decoder(3));
  EXPECT_NE(plain.logits, convolved.logits);
  const auto device = create_cpu_device(1);
  const auto bytes_of = [&](int32_t taps) {
    return state_entry_bytes(MadeModel(convolved_decoder(taps), *device).model().spec());
  };
  EXPECT_GT(bytes_of(0), 0);
  EXPECT_GT(bytes_of(3), bytes_of(0));
}

TEST(NearKeys, AreRefusedOnAGpu) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  const Status refused = make_part(near_keys(0, 9), kHidden)->check_device(gpu, DType::kBF16);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_NE(refused.message().find("no kernels on a GPU yet: use --device cpu"), std::string::npos);
  EXPECT_TRUE(make_part(near_keys(0, 9), kHidden)->check_device({}, DType::kF32).ok());
}

}  // namespace
}  // namespace headrace::near_keys_test
