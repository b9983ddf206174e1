#include "engine/kv_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "engine/kv_storage.h"
#include "kv/kv_demand.h"
#include "sched/scheduler.h"
#include "tensor/device.h"

namespace headrace::kv_plan_test {
namespace {

// `full` of a model's layers, spread evenly, attend to everything, the others slide.
ModelSpec spec_of(int32_t layers, int32_t full, LayerKv kv, int32_t context) {
  ModelSpec spec{.layer_count = layers, .context_length = context};
  const int32_t window = kv.window;
  for (int32_t i = 0; i < layers; ++i) {
    kv.window = (i + 1) * full / layers > i * full / layers ? 0 : window;
    spec.kv.push_back(kv);
  }
  return spec;
}

struct Shape {
  const char* name;
  ModelSpec spec;
  size_t groups;
  int32_t page_layers;
};

std::vector<Shape> shapes() {
  constexpr int32_t k32 = 32768, k128 = 131072;
  return {
      {"Gemma-3-270M", spec_of(18, 3, {1, 256, 256, 512}, k32), 6, 3},
      {"Gemma-3-1B", spec_of(26, 4, {1, 256, 256, 512}, k32), 7, 4},
      {"Gemma-3-4B", spec_of(34, 5, {4, 256, 256, 1024}, k128), 7, 5},
      {"Gemma-3-12B", spec_of(48, 8, {8, 256, 256, 1024}, k128), 6, 8},
      {"Gemma-3-27B", spec_of(62, 10, {16, 128, 128, 1024}, k128), 7, 10},
      {"Gemma-2-2B", spec_of(26, 13, {4, 256, 256, 4096}, 8192), 2, 13},
      {"Gemma-2-9B", spec_of(42, 21, {8, 256, 256, 4096}, 8192), 2, 21},
      {"gpt-oss-20b", spec_of(24, 12, {8, 64, 64, 128}, k128), 2, 12},
      {"OLMo-3-7B", spec_of(32, 8, {32, 128, 128, 4096}, 65536), 4, 8},
      {"7 full, 29 sliding", spec_of(36, 7, {8, 128, 128, 1024}, k128), 6, 7},
      {"13 full, 1 sliding", spec_of(14, 13, {8, 128, 128, 1024}, k128), 2, 13},
      {"Llama-3-8B", spec_of(32, 32, {8, 128, 128, 0}, k128), 1, 32},
  };
}

// Every token of a page's cycle: a window may begin anywhere in a page.
double held_share_max(const KvPlan& plan, int64_t tokens) {
  double most = 0;
  for (int64_t n = tokens - plan.block_tokens + 1; n <= tokens; ++n) {
    most = std::max(
        most, static_cast<double>(plan.held_bytes(n)) / static_cast<double>(plan.seen_bytes(n)));
  }
  return most;
}

// Pages are whole and the token that is computed counts on both sides.
TEST(KvPlan, ASequenceHoldsLittleMoreThanItAttendsTo) {
  for (const Shape& shape : shapes()) {
    const KvPlan plan = plan_kv(shape.spec, {KvFormat::kF16}, 16);
    const int64_t tokens = std::min(32768, shape.spec.context_length);
    const double share = held_share_max(plan, tokens);
    std::printf("%-18s %zu groups, pages of %4ld KiB, %.4f of what %ld tokens attend to\n",
                shape.name, plan.groups.size(), plan.page_bytes >> 10, share, tokens);
    EXPECT_LE(share, 1.03) << shape.name;
    EXPECT_EQ(plan.groups.size(), shape.groups) << shape.name;
    EXPECT_EQ(plan.page_bytes, shape.page_layers * plan.kinds.front().layer_bytes) << shape.name;
  }
}

// Short of any window a slot in every group is held for each token: what bytes_per_token() says.
TEST(KvPlan, AShortSequenceHoldsASlotInEveryGroup) {
  for (const Shape& shape : shapes()) {
    const KvPlan plan = plan_kv(shape.spec, {KvFormat::kF16}, 16);
    EXPECT_EQ(plan.held_bytes(64), 64 * plan.bytes_per_token()) << shape.name;
    EXPECT_GE(plan.held_bytes(64), plan.seen_bytes(64)) << shape.name;
  }
}

// Each layer has a place of its own in the pages of a group of its kind.
void expect_places(const ModelSpec& spec, const KvPlan& plan) {
  std::set<std::pair<int32_t, int64_t>> places;
  ASSERT_EQ(plan.layer_group.size(), spec.kv.size());
  for (size_t layer = 0; layer < spec.kv.size(); ++layer) {
    const int32_t group = plan.layer_group[layer];
    const KvLayerKind& kind = *std::find_if(plan.kinds.begin(), plan.kinds.end(),
                                            [&](const auto& of) { return group < of.group_end(); });
    EXPECT_EQ(kind.kv, spec.kv[layer]);
    EXPECT_GE(group, kind.group_first);
    EXPECT_LT(group, kind.group_end());
    EXPECT_EQ(plan.groups[static_cast<size_t>(group)].window, spec.kv[layer].window);
    EXPECT_EQ(plan.layer_offset[layer] % kind.layer_bytes, 0);
    EXPECT_LE(plan.layer_offset[layer] + kind.layer_bytes, plan.page_bytes);
    EXPECT_TRUE(places.emplace(group, plan.layer_offset[layer]).second);
  }
  size_t layers = 0;
  for (const KvGroupSpec& group : plan.groups) {
    EXPECT_FALSE(group.layers.empty());
    layers += group.layers.size();
  }
  EXPECT_EQ(layers, spec.kv.size());
}

TEST(KvPlan, EveryLayerHasAPlaceOfItsOwn) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    expect_places(shape.spec, plan_kv(shape.spec, {KvFormat::kF16}, 16));
  }
}

// As it was before layers were split: one group, every layer behind the one before it.
TEST(KvPlan, AModelThatKeepsNothingOfATokenHasPlaces) {
  ModelSpec spec{.layer_count = 4, .context_length = 1024};
  spec.kv.resize(4);
  const KvPlan plan = plan_kv(spec, {KvFormat::kF16}, 16);
  EXPECT_FALSE(plan.keeps_tokens());
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_TRUE(plan.groups[0].layers.empty());
  EXPECT_EQ(plan.page_bytes, 128);
  EXPECT_EQ(plan.layer_group, std::vector<int32_t>(4, 0));
  EXPECT_EQ(plan.seen_bytes(1024), 0);
  EXPECT_EQ(plan.held_bytes(1024), 64 * 128);
  EXPECT_EQ(plan.unpacked_page_bytes(), 0);
  EXPECT_NE(plan.to_string(1024).find("hold no keys and values"), std::string::npos);
}

// Layers that attend what others keep take no place, and have the group of these.
TEST(KvPlan, LayersThatShareKeysAreOfTheGroupOfThese) {
  ModelSpec spec = spec_of(6, 2, {2, 32, 32, 64}, 1024);  // the third and the last are full
  spec.keys_of = {-1, -1, -1, 1, 1, 2};
  for (const size_t layer : {3, 4, 5}) spec.kv[layer] = {};
  const KvPlan plan = plan_kv(spec, {KvFormat::kF16}, 16);
  EXPECT_EQ(plan.layer_group[3], plan.layer_group[1]);
  EXPECT_EQ(plan.layer_group[4], plan.layer_group[1]);
  EXPECT_EQ(plan.layer_group[5], plan.layer_group[2]);
  EXPECT_NE(plan.layer_group[5], plan.layer_group[4]);
  EXPECT_EQ(plan.seen_bytes(64), 3 * 64 * 2 * 2 * 32 * 2);  // of three layers
  const KvPlan with =
      plan_kv(with_draft(spec, spec_of(1, 1, {2, 32, 32, 0}, 1024)), {KvFormat::kF16}, 16);
  EXPECT_EQ(with.layer_group[6], with.layer_group[2]);  // it is like that one
}

TEST(KvPlan, LayersOfOneKindAreOneGroup) {
  const KvPlan plan = plan_kv(spec_of(30, 30, {3, 64, 64, 0}, 8192), {KvFormat::kF16}, 16);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.page_bytes, 30 * 2 * 16 * 3 * 64 * 2);
  EXPECT_EQ(plan.groups[0].block_bytes, plan.page_bytes);
  for (size_t layer = 0; layer < 30; ++layer) {
    EXPECT_EQ(plan.layer_offset[layer], static_cast<int64_t>(layer) * 2 * 16 * 3 * 64 * 2);
  }
}

// Layers of one window with other heads, or heads of another size, are cut into other tiles.
TEST(KvPlan, LayersOfUnlikeHeadsAreKindsOfTheirOwn) {
  ModelSpec spec{.layer_count = 6, .context_length = 32768};
  spec.kv = {{8, 128, 128, 0},   {4, 256, 256, 0}, {8, 128, 128, 0},
             {4, 128, 128, 512}, {8, 64, 64, 512}, {4, 128, 128, 512}};
  const KvPlan plan = plan_kv(spec, {KvFormat::kBF16}, 16);
  EXPECT_EQ(plan.kinds.size(), 4u);
  expect_places(spec, plan);
  for (const KvGroupSpec& group : plan.groups) {
    for (const int32_t layer : group.layers) {
      EXPECT_EQ(spec.kv[static_cast<size_t>(layer)],
                spec.kv[static_cast<size_t>(group.layers.front())]);
    }
  }
}

// Keys and values of unlike widths and formats, scales in the block, values that are part of keys.
TEST(KvPlan, APageHoldsWhatLayersKeep) {
  using enum KvFormat;
  const auto layer_bytes = [](LayerKv layer, KvFormats formats) {
    const KvPlan plan = plan_kv({.layer_count = 1, .kv = {layer}}, formats, 16);
    EXPECT_EQ(plan.kinds.size(), 1u);
    EXPECT_EQ(plan.page_bytes, (plan.kinds[0].layer_bytes + 127) / 128 * 128);
    return plan.kinds[0].layer_bytes;
  };
  const LayerKv alike{.kv_heads = 3, .k_dim = 64, .v_dim = 64};
  EXPECT_EQ(layer_bytes(alike, {kF16}), 16 * 3 * 128 * 2);
  EXPECT_EQ(layer_bytes(alike, {kInt8}), 16 * 3 * (128 + 2 * 2 * 2));  // 17/32 of F16
  EXPECT_EQ(layer_bytes(alike, {.k = kInt8, .v = kF16}), 16 * 3 * (64 + 2 * 2 + 64 * 2));
  // A group that is not full has a scale too.
  EXPECT_EQ(layer_bytes({.kv_heads = 1, .k_dim = 80, .v_dim = 80}, {kInt8}), 16 * 2 * (80 + 3 * 2));
  // DeepSeek's heads as they are written down, and their latent.
  const LayerKv expanded{.kv_heads = 16, .k_dim = 192, .v_dim = 128};
  EXPECT_EQ(layer_bytes(expanded, {kF16}), 16 * 16 * (192 + 128) * 2);
  const LayerKv latent{.kv_heads = 1, .k_dim = 576, .v_dim = 512, .v_aliases_k = true};
  EXPECT_EQ(layer_bytes(latent, {kF16}), 16 * 576 * 2);
  EXPECT_EQ(layer_bytes(latent, {kInt8}), 16 * (576 + 18 * 2));
  // DeepSeek V3.2's with the key of an index, which has 16 bits where others have fewer.
  LayerKv sparse = latent;
  sparse.index_dim = 128;
  EXPECT_EQ(layer_bytes(sparse, {kF16}), 16 * (576 + 128) * 2);
  EXPECT_EQ(layer_bytes(sparse, {kInt8}), 16 * (576 + 18 * 2 + 128 * 2));
  EXPECT_EQ(layer_bytes(sparse, {kF32}), 16 * (576 + 128) * 4);
  // A format of a layer's own goes before the engine's.
  EXPECT_EQ(layer_bytes({.kv_heads = 1, .v_dim = 96, .v_format = kF32}, {kInt8}), 16 * 96 * 4);
}

TEST(KvPlan, LayersOfUnlikeFormatsAndWidthsAreKindsOfTheirOwn) {
  const LayerKv full{.kv_heads = 2, .k_dim = 64, .v_dim = 64},
      wide{.kv_heads = 2, .k_dim = 96, .v_dim = 64};
  LayerKv exact = full;
  exact.k_format = KvFormat::kF32;
  const ModelSpec spec{
      .layer_count = 6, .context_length = 32768, .kv = {full, wide, exact, full, wide, exact}};
  const KvPlan plan = plan_kv(spec, {KvFormat::kInt8}, 16);
  EXPECT_EQ(plan.kinds.size(), 3u);
  expect_places(spec, plan);
}

// Whatever the counts: few groups, and little empty, but beside one or two layers alone.
TEST(KvPlan, AwkwardCountsMakeFewGroups) {
  for (int32_t layers = 2; layers <= 80; ++layers) {
    for (int32_t full = 1; full < layers; ++full) {
      const ModelSpec spec = spec_of(layers, full, {8, 128, 128, 1024}, 131072);
      const KvPlan plan = plan_kv(spec, {KvFormat::kF16}, 16);
      ASSERT_LE(plan.groups.size(), 32u) << layers << ", " << full;
      ASSERT_LE(held_share_max(plan, 32768), full < 3 ? 1.7 : 1.05) << layers << ", " << full;
    }
  }
}

// The pages that a real scheduler gives a sequence in decode are those that the plan speaks of, and
// its waste report knows what lies empty in them.
TEST(KvPlan, ASchedulerHoldsWhatThePlanSays) {
  const KvPlan plan = plan_kv(spec_of(34, 5, {4, 256, 256, 1024}, 131072), {KvFormat::kBF16}, 16);
  constexpr int32_t kPrompt = 32750, kOutput = 20;
  SchedulerOptions options{.max_num_seqs = 1,
                           .max_num_batched_tokens = 2048,
                           .max_model_len = kPrompt + kOutput,
                           .groups = plan.groups};
  options.block_count = static_cast<int32_t>(
      peak_pages(plan.groups, options.max_model_len, options.max_num_batched_tokens));
  options.enable_prefix_caching = false;
  const auto scheduler = Scheduler::create(options).value();
  Request request{.id = RequestId(1)};
  request.prompt.assign(kPrompt, 3);
  request.sampling.max_tokens = kOutput;
  request.sampling.ignore_eos = true;
  ASSERT_TRUE(scheduler->add(request).ok());
  int32_t decodes = 0;
  while (scheduler->has_work()) {
    const StepPlan step = scheduler->plan();
    ASSERT_EQ(step.work.size(), 1u);
    const Work& work = step.work.front();
    if (work.count == 1 && work.first >= kPrompt) {
      const int64_t tokens = work.first + 1;
      EXPECT_EQ(scheduler->stats().blocks_used * plan.page_bytes, plan.held_bytes(tokens));
      EXPECT_LE(static_cast<double>(plan.held_bytes(tokens)),
                1.03 * static_cast<double>(plan.seen_bytes(tokens)));
      ++decodes;
      const KvWaste waste = scheduler->kv_waste();
      EXPECT_EQ(waste.total, int64_t{options.block_count} * 16);
      EXPECT_EQ(waste.held(), pages_in_decode(plan.groups, tokens) * 16);
      EXPECT_GT(waste.padding, 0);
      EXPECT_LE(static_cast<double>(waste.held()), 1.03 * static_cast<double>(waste.used));
    }
    StepResult result;
    if (work.samples) {
      StepResult::Row row{.sequence = work.sequence};
      row.accepted.push_back(5);
      result.rows.push_back(std::move(row));
    }
    (void)scheduler->apply(step, result);
  }
  EXPECT_EQ(decodes, kOutput - 1);
}

// Half the bytes, in the same groups; beside a page one of its layers in 16 bits.
TEST(KvPlan, EightBitFloatsTakeHalfThePages) {
  for (const Shape& shape : shapes()) {
    const KvPlan wide = plan_kv(shape.spec, {KvFormat::kBF16}, 16);
    const KvPlan plan = plan_kv(shape.spec, {KvFormat::kFp8}, 16);
    EXPECT_EQ(plan.layout(), wide.layout()) << shape.name;
    EXPECT_EQ(2 * plan.page_bytes, wide.page_bytes) << shape.name;
    EXPECT_EQ(plan.unpacked_page_bytes(), wide.page_bytes / shape.page_layers) << shape.name;
    EXPECT_EQ(wide.unpacked_page_bytes(), 0) << shape.name;
  }
}

// Integers of 8 bits with a scale for a head save 48 % and more.
TEST(KvPlan, IntegersWithAScaleAHeadSaveAlmostHalf) {
  for (const int32_t dim : {64, 80, 96, 128, 256}) {
    const ModelSpec spec = spec_of(4, 4, {2, dim, dim, 0}, 4096);
    const KvPlan wide = plan_kv(spec, {KvFormat::kBF16}, 16);
    const KvPlan plan = plan_kv(spec, {KvFormat::kInt8Head}, 16);
    EXPECT_EQ(plan.page_bytes, 4 * 2 * 2 * 16 * (dim + 2)) << dim;
    EXPECT_LE(static_cast<double>(plan.page_bytes), 0.52 * static_cast<double>(wide.page_bytes));
    EXPECT_EQ(plan.unpacked_page_bytes(), wide.page_bytes / 4) << dim;
  }
}

// Integers of 4 bits save 71 % and more, on a CPU and on a GPU.
TEST(KvPlan, IntegersOf4BitsSaveSevenTenths) {
  for (const int32_t dim : {64, 96, 128, 256}) {
    const ModelSpec spec = spec_of(4, 4, {2, dim, dim, 0}, 4096);
    const auto wide = static_cast<double>(plan_kv(spec, {KvFormat::kBF16}, 16).page_bytes);
    for (const KvFormat format : {KvFormat::kInt4, KvFormat::kInt4Head}) {
      const KvPlan plan = plan_kv(spec, {format}, 16);
      EXPECT_LE(static_cast<double>(plan.page_bytes), 0.29 * wide) << dim;
    }
  }
}

// All layers have one memory for it, of the plan's size.
TEST(KvPlan, LayersInColumnsShareWhatTheyAreUnpackedTo) {
  const auto device = create_null_device({});
  const ModelSpec spec = spec_of(6, 2, {2, 64, 64, 128}, 4096);
  for (const KvFormat format :
       {KvFormat::kFp8, KvFormat::kInt8Head, KvFormat::kInt4Head, KvFormat::kBF16}) {
    const bool in_columns = format != KvFormat::kBF16;
    constexpr int32_t kPages = 9;
    KvPlan plan = plan_kv(spec, {format}, 16);
    const int64_t page_bytes = plan.page_bytes, unpacked_bytes = plan.unpacked_page_bytes();
    auto memory = KvMemory::create(KvMemoryKind::kPaged, *device,
                                   {.page_bytes = page_bytes, .page_count = kPages});
    KvStorage storage =
        KvStorage::create(*device, spec, std::move(plan), std::move(memory).value());
    const int64_t free_bytes = device->free_bytes();
    ASSERT_TRUE(storage.add_unpacked(*device, kPages).ok());
    for (const KvLayerView& layer : storage.layers()) {
      EXPECT_EQ(layer.unpacked, storage.layers().front().unpacked);
      EXPECT_EQ(layer.unpacked != nullptr, in_columns);
    }
    EXPECT_LE(free_bytes - device->free_bytes(), kPages * unpacked_bytes);
    EXPECT_EQ(unpacked_bytes, in_columns ? 2 * 64 * 2 * 16 * 2 : 0);
  }
}

}  // namespace
}  // namespace headrace::kv_plan_test
