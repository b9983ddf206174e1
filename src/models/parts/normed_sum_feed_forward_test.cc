#include "models/parts/normed_sum_feed_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "models/parts/part_fixture.h"

namespace headrace::normed_sum_feed_forward_test {
namespace {

constexpr int64_t kHidden = 24;
constexpr float kEps = 1e-5f;
constexpr int32_t kExperts = 7, kUsed = 3, kExpertWidth = 12, kWidth = 20;

NormedSumSpec spec_of(bool fused) {
  return {.network = {.width = kWidth, .activation = Activation::kRelu},
          .mixture = {.router = {.experts = kExperts, .used = kUsed, .normalised = true},
                      .width = kExpertWidth,
                      .activation = Activation::kRelu,
                      .fused = fused,
                      .scaled = true},
          .norm_eps = kEps};
}

Row normed(const MadeTensors& tensors, const std::string& name, const Row& row,
           double scale = 1.0) {
  Row made = rms_normed(row, tensors.values(name), kEps);
  for (double& value : made) value *= scale;
  return made;
}

Row network(const std::vector<float>& gate, const std::vector<float>& up,
            const std::vector<float>& down, const Row& x) {
  Row inner = times(gate, x);
  const Row by = times(up, x);
  for (size_t i = 0; i < inner.size(); ++i) inner[i] = std::max(inner[i], 0.0) * by[i];
  return times(down, inner);
}

// Some rows of a matrix of a stack of matrices [rows_of_matrix, kHidden].
std::vector<float> part_of(const std::vector<float>& stack, int32_t expert, int64_t rows_of_matrix,
                           int64_t first, int64_t rows) {
  const auto begin = stack.begin() + (expert * rows_of_matrix + first) * kHidden;
  return {begin, begin + rows * kHidden};
}

Row mixture(const MadeTensors& tensors, bool fused, const Row& x, const Row& router_input) {
  const Row logits = times(tensors.values("ffn_gate_inp.weight"), router_input);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  order.resize(kUsed);
  double sum = 0;
  for (const int32_t e : order) sum += std::exp(logits[static_cast<size_t>(e)]);
  Row y(static_cast<size_t>(kHidden), 0.0);
  for (const int32_t e : order) {
    const auto matrix = [&](const char* name, bool second) {
      if (!fused) return part_of(tensors.values(name), e, kExpertWidth, 0, kExpertWidth);
      return part_of(tensors.values("ffn_gate_up_exps.weight"), e, 2 * kExpertWidth,
                     second ? kExpertWidth : 0, kExpertWidth);
    };
    const Row out = network(
        matrix("ffn_gate_exps.weight", false), matrix("ffn_up_exps.weight", true),
        part_of(tensors.values("ffn_down_exps.weight"), e, kExpertWidth, 0, kExpertWidth), x);
    const double weight = std::exp(logits[static_cast<size_t>(e)]) / sum *
                          tensors.values("ffn_down_exps.scale")[static_cast<size_t>(e)];
    for (size_t i = 0; i < y.size(); ++i) y[i] += weight * out[i];
  }
  return y;
}

// x + the part of x.
Row expected_row(const MadeTensors& tensors, bool fused, Row x) {
  const Row of_network =
      normed(tensors, "post_ffw_norm_1.weight",
             network(tensors.values("ffn_gate.weight"), tensors.values("ffn_up.weight"),
                     tensors.values("ffn_down.weight"), normed(tensors, "ffn_norm.weight", x)));
  const double root = 1 / std::sqrt(static_cast<double>(kHidden));
  const Row of_mixture = normed(tensors, "post_ffw_norm_2.weight",
                                mixture(tensors, fused, normed(tensors, "pre_ffw_norm_2.weight", x),
                                        normed(tensors, "ffn_gate_inp.scale", x, root)));
  for (size_t i = 0; i < x.size(); ++i) x[i] += of_network[i] + of_mixture[i];
  return x;
}

// As a CPU has it, and with the ops that a GPU runs, by their references.
TEST(NormedSumFeedForward, EqualsPlainLoops) {
  for (const bool as_on_gpu : {false, true}) {
    for (const bool fused : {false, true}) {
      for (const int64_t count : {1, 9, 200}) {
        SCOPED_TRACE(testing::Message() << as_on_gpu << " " << fused << " " << count);
        PartPass pass(count, kHidden, /*in_place=*/!as_on_gpu);
        MadeTensors tensors(pass.device());
        if (as_on_gpu) tensors.pose_as_gpu();
        const auto part = make_part(spec_of(fused), kHidden);
        ASSERT_TRUE(part->load(tensors).ok());
        EXPECT_LE(std::ssize(part->scratch_columns(!as_on_gpu)), kPartAreasMax);
        Rng rng(3);
        TestMatrix x(rng, count, kHidden);
        Rows expected = rows_of(x);
        for (Row& row : expected) row = expected_row(tensors, fused, row);
        pass.run(*part, x);
        EXPECT_TRUE(rows_close(x, expected));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::normed_sum_feed_forward_test
