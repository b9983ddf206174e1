// Rows of a tree of proposals: each has the bits that it has at the end of a chain of its path.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ops/attention/attention_fixture.h"

namespace headrace::attention_tree_test {
namespace {

using namespace attention_fixture;

// Of `rows` rows, which stand behind any before them or begin anew.
std::vector<uint64_t> random_paths(Rng& rng, int32_t rows) {
  std::vector<uint64_t> paths;
  for (int32_t i = 0; i < rows; ++i) {
    const auto parent = static_cast<int32_t>(rng.between(-1, i - 1));
    paths.push_back((parent < 0 ? 0 : paths[static_cast<size_t>(parent)]) | uint64_t{1} << i);
  }
  return paths;
}

// A tree in sequence 0, each row of which is computed in sequence 1 at the end of a chain, and once
// more alone behind the rows of the tree that lie there.
void expect_bits_of_chains(const Kernel<AttentionArgs>& kernel, const AttentionCase& c,
                           TestDevice& device, int32_t tree_first,
                           const std::vector<uint64_t>& paths) {
  const auto rows = static_cast<int32_t>(paths.size());
  const int32_t length = tree_first + rows;
  Setting setting(c.heads, c.formats, {length, length});
  setting.alias_values(c.options.values_in_keys);
  for (int32_t t = 0; t < tree_first; ++t) setting.copy_token(0, t, 1, t);
  setting.write(0, 0, tree_first - 1);
  std::vector<TestMatrix> results = no_results(setting);
  if (!run_step(device.context(), kernel, setting, c.options, {{0, tree_first - 1, length, paths}},
                results)) {
    return;
  }
  setting.write(1, 0, tree_first - 1);
  ASSERT_TRUE(run_step(device.context(), kernel, setting, c.options,
                       {{1, tree_first - 1, tree_first}}, results));
  const auto same_row = [&](int32_t place, int32_t position) {
    return std::memcmp(&results[0].at(place, 0), &results[1].at(position, 0),
                       static_cast<size_t>(results[0].columns()) * 4) == 0;
  };
  EXPECT_TRUE(same_row(tree_first - 1, tree_first - 1));
  for (int32_t i = 0; i < rows; ++i) {
    const int32_t place = tree_first + i;
    TestMatrix together = results[0];
    std::memset(&results[0].at(place, 0), 0, static_cast<size_t>(together.columns()) * 4);
    const std::vector<uint64_t> so_far(paths.begin(), paths.begin() + i + 1);
    ASSERT_TRUE(run_step(device.context(), kernel, setting, c.options,
                         {{0, place, place + 1, so_far}}, results));
    EXPECT_EQ(std::memcmp(&results[0].at(place, 0), &together.at(place, 0),
                          static_cast<size_t>(together.columns()) * 4),
              0)
        << "row " << i << " alone";
  }
  for (int32_t i = 0; i < rows; ++i) {
    int32_t position = tree_first;
    for_each_of_path(paths[static_cast<size_t>(i)], tree_first, [&](int32_t at, int32_t place) {
      setting.copy_token(0, place, 1, at);
      setting.write(1, at, at + 1);
      position = at;
    });
    ASSERT_TRUE(run_step(device.context(), kernel, setting, c.options,
                         {{1, position, position + 1}}, results));
    EXPECT_TRUE(same_row(tree_first + i, position)) << "row " << i << " at " << position;
  }
}

class AttentionTreeSweep : public testing::TestWithParam<AttentionCase> {};
INSTANTIATE_TEST_SUITE_P(Attention, AttentionTreeSweep, testing::ValuesIn(cases()), name_of);

// Trees that begin behind a block, at the end of a split and behind one.
TEST_P(AttentionTreeSweep, ARowOfATreeHasTheBitsOfItsPath) {
  const AttentionCase& c = GetParam();
  TestDevice one = TestDevice::cpu(1), two = TestDevice::cpu(2);
  Rng rng(5);
  for (const auto& kernel : attention_kernels().all()) {
    for (const auto& [tree_first, rows] : {std::pair{16, 5}, {250, 12}, {300, 4}}) {
      const bool slow =
          &kernel == &reference() ? tree_first > 16 : tree_first > 256 && c.heads.dim > 80;
      if (slow) continue;
      SCOPED_TRACE(std::string(kernel.name) + " " + std::to_string(rows) + " rows behind " +
                   std::to_string(tree_first));
      expect_bits_of_chains(kernel, c, rows == 12 ? two : one, tree_first, random_paths(rng, rows));
    }
  }
}

// Over five blocks, the last of them of the next split.
TEST(AttentionTree, OfTheMostRows) {
  TestDevice device = TestDevice::cpu(2);
  Rng rng(7);
  for (const AttentionCase& c : {AttentionCase{{9, 3, 64}, {KvFormat::kF16}, {}},
                                 AttentionCase{{8, 1, 96}, {KvFormat::kInt8}, {.window = 30}}}) {
    for (const auto& kernel : attention_kernels().all()) {
      if (&kernel == &reference()) continue;
      SCOPED_TRACE(kernel.name);
      expect_bits_of_chains(kernel, c, device, 207, random_paths(rng, kTreeRowsMax));
    }
  }
}

TEST(AttentionTree, ValuesMayBePartOfKeys) {
  TestDevice device = TestDevice::cpu(2);
  Rng rng(6);
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4}) {
    for (const auto& kernel : attention_kernels().all()) {
      SCOPED_TRACE(kernel.name);
      const AttentionCase latent{{4, 1, 80, 64}, {format}, {.values_in_keys = true}};
      expect_bits_of_chains(kernel, latent, device, 249, random_paths(rng, 24));
    }
  }
}

TEST(Attention, ANanOfABranchIsSeenOnItsPathAlone) {
  TestDevice device = TestDevice::cpu(2);
  constexpr int32_t kFirst = 250, kRows = 40;
  for (const auto& [value, faulty] : {std::pair{false, 3}, {true, 3}, {true, 8}, {true, 13}}) {
    Setting setting({4, 2, 64}, {KvFormat::kF16}, {kFirst + kRows});
    Sequence& sequence = setting.sequence(0);
    (value ? sequence.v : sequence.k)[(kFirst + faulty) * 2 * 64] = std::nanf("");
    setting.write(0, 0, kFirst - 1);
    Rng rng(4);
    const std::vector<uint64_t> paths = random_paths(rng, kRows);
    for (const auto& kernel : attention_kernels().all()) {
      std::vector<TestMatrix> results = no_results(setting);
      const std::vector<Piece> batch = {{0, kFirst - 1, kFirst + kRows, paths}};
      if (!run_step(device.context(), kernel, setting, {}, batch, results)) continue;
      EXPECT_FALSE(std::isnan(results[0].at(kFirst - 1, 0))) << kernel.name;
      for (int32_t i = 0; i < kRows; ++i) {
        const bool on_path = (paths[static_cast<size_t>(i)] >> faulty & 1) != 0;
        EXPECT_EQ(std::isnan(results[0].at(kFirst + i, 0)), on_path) << kernel.name << " row " << i;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::attention_tree_test
