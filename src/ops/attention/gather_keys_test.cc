#include "ops/attention/gather_keys.h"

#include <gtest/gtest.h>

#include <numeric>

#include "ops/attention/attention_fixture.h"

namespace headrace::gather_keys_test {
namespace {

using attention_fixture::Setting;

constexpr attention_fixture::Heads kHeads{.query = 4, .kv = 1, .dim = 32, .v_dim = 16};
constexpr int32_t kTokens = 70;

// Blocks of f32 for `rows` rows of `keys` keys.
class GatheredPages {
 public:
  GatheredPages(int32_t rows, int32_t keys, bool aliased = true) : blocks_of_row((keys + 15) / 16) {
    view = {.k_format = KvFormat::kF32,
            .v_format = KvFormat::kF32,
            .v_aliases_k = aliased,
            .kv_heads = 1,
            .k_dim = kHeads.dim,
            .v_dim = kHeads.v_dim};
    view.v_offset = k_part_bytes(view);
    view.block_stride = layer_part_bytes(view);
    memory_.resize(static_cast<size_t>(rows * blocks_of_row * view.block_stride), std::byte{0xff});
    view.base = memory_.data();
    for (int32_t b = 0; b < rows * blocks_of_row; ++b) table.push_back(b);
  }
  const int32_t blocks_of_row;
  KvLayerView view;
  std::vector<int32_t> table;

 private:
  std::vector<std::byte> memory_;
};

// Of all keys of a row, in their order, attention has the bits that it has of the cache itself, in
// whatever format that keeps them; of some it is attention of these.
TEST(GatherKeys, AttentionOfWhatIsGatheredHasTheBitsOfTheCache) {
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4}) {
    SCOPED_TRACE(static_cast<int>(format));
    Setting setting(kHeads, {format}, {33, kTokens});
    setting.alias_values(true);
    setting.write(0, 0, 33);
    setting.write(1, 0, kTokens);
    TestDevice device = TestDevice::cpu(2);
    OpContext context = device.context();
    const std::vector<int32_t>& blocks = setting.sequence(1).blocks;
    std::vector<int32_t> all, some;
    for (int32_t place = 0; place < kTokens; ++place) {
      all.push_back(place);
      if (place % 3 != 1) some.push_back(place);
    }
    GatheredPages pages(2, kTokens);
    const GatheredRow rows[] = {
        {.places = all.data(), .count = kTokens, .block_table = blocks.data()},
        {.places = some.data(),
         .count = static_cast<int32_t>(some.size()),
         .block_table = blocks.data(),
         .first_block = pages.blocks_of_row}};
    gather_keys(context, {.from = setting.kv(), .rows = rows, .to = pages.view});
    for (size_t k = 0; k < some.size(); ++k) {
      const auto place = static_cast<size_t>(some[k]);
      const int64_t from = int64_t{blocks[place / 16]} * 16 + static_cast<int64_t>(place % 16);
      const int64_t to = int64_t{pages.blocks_of_row} * 16 + static_cast<int64_t>(k);
      for (int32_t d = 0; d < kHeads.dim; ++d) {
        ASSERT_EQ(load_key(pages.view, to, 0, d), load_key(setting.kv(), from, 0, d));
      }
    }

    TestMatrix q = setting.sequence(1).q;
    const auto last = q.view().row_range(kTokens - 1, 1);
    TestMatrix of_cache(1, kHeads.query * kHeads.v_dim), of_gathered = of_cache;
    const auto attend = [&](const KvLayerView& kv, const int32_t* table, TestMatrix& out) {
      const AttentionSequence sequence{.row_count = 1, .kv_length = kTokens, .block_table = table};
      attention(context, {.q = last,
                          .kv = kv,
                          .sequences = {&sequence, 1},
                          .scale = 0.2f,
                          .f32_products = true,
                          .out = out.view()});
    };
    attend(setting.kv(), blocks.data(), of_cache);
    attend(pages.view, pages.table.data(), of_gathered);
    EXPECT_TRUE(same_bits(of_gathered, of_cache));
  }
}

// The same of a head of several, whose values are no part of its keys.
TEST(GatherKeys, AHeadsKeysAndValuesHaveTheBitsOfTheCache) {
  constexpr attention_fixture::Heads kTwo{.query = 4, .kv = 2, .dim = 32, .v_dim = 16};
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4}) {
    SCOPED_TRACE(static_cast<int>(format));
    Setting setting(kTwo, {format}, {33, kTokens});
    setting.write(0, 0, 33);
    setting.write(1, 0, kTokens);
    TestDevice device = TestDevice::cpu(2);
    OpContext context = device.context();
    const std::vector<int32_t>& blocks = setting.sequence(1).blocks;
    std::vector<int32_t> all(kTokens);
    std::iota(all.begin(), all.end(), 0);
    TestMatrix q = setting.sequence(1).q;
    const auto last = q.view().row_range(kTokens - 1, 1);
    TestMatrix of_cache(1, kTwo.query * kTwo.v_dim), of_gathered = of_cache;
    const auto attend = [&](const KvLayerView& kv, const int32_t* table,
                            const ConstTensorView& rows, const TensorView& out) {
      const AttentionSequence sequence{.row_count = 1, .kv_length = kTokens, .block_table = table};
      attention(context, {.q = rows,
                          .kv = kv,
                          .sequences = {&sequence, 1},
                          .scale = 0.2f,
                          .f32_products = true,
                          .out = out});
    };
    attend(setting.kv(), blocks.data(), last, of_cache.view());
    for (int32_t head = 0; head < kTwo.kv; ++head) {
      GatheredPages pages(1, kTokens, /*aliased=*/false);
      const GatheredRow row{
          .places = all.data(), .count = kTokens, .block_table = blocks.data(), .head = head};
      gather_keys(context, {.from = setting.kv(), .rows = {&row, 1}, .to = pages.view});
      const int64_t q_width = 2 * kTwo.dim, out_width = 2 * kTwo.v_dim;
      const TensorView out = of_gathered.view();
      attend(pages.view, pages.table.data(),
             {last.data + head * q_width * 4, DType::kF32, Shape{1, q_width}, last.row_stride},
             {out.data + head * out_width * 4, DType::kF32, Shape{1, out_width}, out.row_stride});
    }
    EXPECT_TRUE(same_bits(of_gathered, of_cache));
  }
}

// In two goes, the second behind what the first has left, keys lie as in one.
TEST(GatherKeys, KeysBehindOthersLeaveTheseAsTheyAre) {
  Setting setting(kHeads, {KvFormat::kF16}, {kTokens});
  setting.alias_values(true);
  setting.write(0, 0, kTokens);
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  std::vector<int32_t> places(kTokens);
  std::iota(places.begin(), places.end(), 0);
  const GatheredRow row{
      .places = places.data(), .count = kTokens, .block_table = setting.sequence(0).blocks.data()};
  GatheredPages whole(1, kTokens);
  gather_keys(context, {.from = setting.kv(), .rows = {&row, 1}, .to = whole.view});
  for (const int32_t before : {0, 5, 16, 37, kTokens}) {
    GatheredPages pages(1, kTokens);
    GatheredRow part = row;
    part.count = before;
    gather_keys(context, {.from = setting.kv(), .rows = {&part, 1}, .to = pages.view});
    part.places = places.data() + before;
    part.count = kTokens - before;
    part.before = before;
    gather_keys(context, {.from = setting.kv(), .rows = {&part, 1}, .to = pages.view});
    for (int32_t place = 0; place < kTokens; ++place) {
      for (int32_t d = 0; d < kHeads.dim; ++d) {
        ASSERT_EQ(load_key(pages.view, place, 0, d), load_key(whole.view, place, 0, d)) << before;
      }
    }
  }
}

// The place of a key that several tokens share is that of the last of them.
TEST(GatherKeys, KeysThatTokensShareAreFoundByTheirLastToken) {
  for (const int32_t rate : {3, 4, 20}) {
    Rng rng(static_cast<uint64_t>(rate));
    KvLayerView kv = GatheredPages(1, kTokens).view;
    kv.rate = rate;
    kv.v_offset = k_part_bytes(kv);
    kv.block_stride = layer_part_bytes(kv);
    std::vector<std::byte> memory(static_cast<size_t>(5 * kv.block_stride), std::byte{0xff});
    kv.base = memory.data();
    const std::vector<int32_t> table = {3, 1, 4, 0, 2};
    std::vector<int32_t> places;
    std::vector<std::vector<float>> keys;
    for (int32_t place = rate - 1; place < kTokens; place += rate) {
      places.push_back(place);
      keys.push_back(random_floats(rng, kHeads.dim));
      store_numbers(k_head(kv, table[static_cast<size_t>(place / 16)], 0), place % 16 / rate,
                    keys.back().data());
    }
    TestDevice device = TestDevice::cpu(2);
    OpContext context = device.context();
    GatheredPages pages(1, kTokens);
    const GatheredRow row{.places = places.data(),
                          .count = static_cast<int32_t>(places.size()),
                          .block_table = table.data()};
    gather_keys(context, {.from = kv, .rows = {&row, 1}, .to = pages.view});
    for (size_t k = 0; k < keys.size(); ++k) {
      for (int32_t d = 0; d < kHeads.dim; ++d) {
        ASSERT_EQ(load_key(pages.view, static_cast<int64_t>(k), 0, d),
                  keys[k][static_cast<size_t>(d)])
            << rate;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::gather_keys_test
