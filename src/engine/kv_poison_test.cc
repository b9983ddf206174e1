// What poison reaches of pages, in every format and layout: of a CPU, and of a GPU whose memory is
// the host's.
#include "engine/kv_poison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/attention/kv_numbers.h"
#include "ops/fake_gpu.h"

namespace headrace::kv_poison_test {
namespace {

constexpr int32_t kPages = 6, kPageTokens = 16;

struct Kept {
  KvFormat k, v;
  bool latents = false, index = false, sources = false;
  int32_t rate = 1;
};

ModelSpec spec_of(const Kept& kept) {
  const LayerKv layer{.kv_heads = kept.latents ? 1 : 2,
                      .k_dim = 64,
                      .v_dim = 32,
                      .window = 0,
                      .v_aliases_k = kept.latents,
                      .index_dim = kept.index ? 24 : 0,
                      .source_dim = kept.sources ? 10 : 0,
                      .rate = kept.rate};
  return {.architecture = "kept",
          .vocab_size = 100,
          .hidden_size = 64,
          .layer_count = 2,
          .query_heads = 2,
          .context_length = 256,
          .kv = {layer, layer}};
}

// A pool of zeros of which page 5 and 2 are a sequence's, whose host knows 14 tokens.
class PoisonedPool {
 public:
  PoisonedPool(Device& device, const Kept& kept)
      : stream_(device.create_stream()),
        storage_(create_storage(device, kept)),
        poison_(KvPoison::create(device, *stream_, storage_, kPages).value()),
        slots_(1, 1, kPages) {
    EXPECT_TRUE(is_filled(storage_.pool(), bytes(), 0xff));
    std::memset(storage_.pool(), 0, bytes());
    const auto request = std::make_shared<Request>();
    request->prompt.assign(14, 1);
    plan_.admitted.push_back({.sequence = SequenceId(1),
                              .slot = SlotId(0),
                              .request = request,
                              .tokens = request->prompt});
    plan_.work.push_back({.sequence = SequenceId(1), .slot = SlotId(0)});
    plan_.work.front().new_blocks = {{0, 0, {BlockId(5), BlockId(2)}}};
    slots_.update(plan_);
  }

  size_t bytes() const { return static_cast<size_t>(kPages * storage_.plan().page_bytes); }
  static bool is_filled(const std::byte* at, size_t count, int value) {
    return std::all_of(at, at + count, [&](std::byte b) { return b == std::byte(value); });
  }

  // Of a step that proposed four tokens, so many were accepted: their rows stay.
  void reject_all_but(int32_t accepted) {
    std::vector<LogitRow> rows;
    StepResult result;
    result.rows.push_back({.sequence = SequenceId(1)});
    for (int32_t i = 0; i < 5; ++i) {
      rows.push_back({.hidden_row = i,
                      .sequence = SequenceId(1),
                      .slot = SlotId(0),
                      .samples = true,
                      .ahead = i,
                      .proposed = i == 0 ? -1 : 7});
      if (i <= accepted) result.rows.front().accepted.push_back(7);
    }
    poison_.rejected(*stream_, rows, result, slots_);
  }
  void get_new_pages() { poison_.new_pages(*stream_, plan_); }

  // All numbers of these tokens of the sequence are NaN, and all others zeros.
  void expect_poisoned(int32_t first, int32_t last) const {
    for (const KvLayerView& kv : storage_.layers()) {
      for (int32_t page = 0; page < kPages; ++page) {
        for (int32_t i = 0; i < kPageTokens; ++i) {
          const int32_t token = page == 5 ? i : page == 2 ? kPageTokens + i : -1;
          expect_token(kv, page * kPageTokens + i, token >= first && token < last);
        }
      }
    }
  }
  const std::byte* page(int32_t index) const {
    return storage_.pool() + index * storage_.plan().page_bytes;
  }
  size_t page_bytes() const { return static_cast<size_t>(storage_.plan().page_bytes); }

 private:
  static KvStorage create_storage(Device& device, const Kept& kept) {
    const ModelSpec spec = spec_of(kept);
    KvPlan plan = plan_kv(spec, {kept.k, kept.v}, kPageTokens);
    const KvMemoryShape shape{.page_bytes = plan.page_bytes,
                              .page_count = kPages,
                              .slot_count = 1,
                              .group_count = 1,
                              .pages_per_sequence = kPages};
    return KvStorage::create(device, spec, std::move(plan),
                             KvMemory::create(KvMemoryKind::kPaged, device, shape).value());
  }
  static void expect_token(const KvLayerView& kv, int64_t slot, bool nan) {
    const auto expect = [&](const char* what, int32_t d, float number) {
      if (nan != std::isnan(number) || (!nan && number != 0)) {
        ADD_FAILURE() << what << " " << d << " of place " << slot << " is " << number;
      }
    };
    const int64_t page = slot / kPageTokens, key = slot % kPageTokens / kv.rate;
    for (int32_t d = 0; d < kv.source_dim; ++d) {
      expect("source", d, sources_of(kv, page, slot % kPageTokens)[d]);
    }
    if ((slot + 1) % kv.rate != 0) return;  // the place of no key
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      const KvHeadView keys = k_head(kv, page, head), values = v_head(kv, page, head);
      for (int32_t d = 0; d < kv.k_dim; ++d) expect("key", d, load_number(keys, key, d));
      for (int32_t d = 0; d < kv.v_dim; ++d) expect("value", d, load_number(values, key, d));
    }
    for (int32_t d = 0; d < kv.index_dim; ++d) {
      expect("index", d, load_number(index_head(kv, page), key, d));
    }
  }

  std::unique_ptr<Stream> stream_;
  const KvStorage storage_;
  const KvPoison poison_;
  SlotTable slots_;
  StepPlan plan_;
};

void expect_all(Device& device, std::initializer_list<Kept> all) {
  for (const Kept& kept : all) {
    SCOPED_TRACE(testing::Message()
                 << static_cast<int>(kept.k) << " " << static_cast<int>(kept.v)
                 << (kept.latents ? " latents" : "") << (kept.index ? " index" : "")
                 << (kept.sources ? " sources" : "") << " " << kept.rate);
    for (int32_t accepted = 0; accepted <= 4; ++accepted) {
      PoisonedPool pool(device, kept);
      pool.reject_all_but(accepted);
      pool.expect_poisoned(14 + accepted, 18);  // over the end of a page
    }
    PoisonedPool pool(device, kept);
    pool.get_new_pages();
    for (int32_t page = 0; page < kPages; ++page) {
      const int value = page == 5 || page == 2 ? 0xff : 0;
      EXPECT_TRUE(PoisonedPool::is_filled(pool.page(page), pool.page_bytes(), value)) << page;
    }
  }
}

TEST(KvPoison, ReachesRejectedTokensAndNewPagesOfACpu) {
  const auto device = create_cpu_device(1);
  expect_all(*device, {{KvFormat::kF32, KvFormat::kF32},
                       {KvFormat::kF16, KvFormat::kF16},
                       {KvFormat::kInt8, KvFormat::kInt8},
                       {KvFormat::kInt4, KvFormat::kInt4},
                       {KvFormat::kF16, KvFormat::kInt4},
                       {.k = KvFormat::kF16, .v = KvFormat::kF16, .latents = true},
                       {.k = KvFormat::kInt8, .v = KvFormat::kInt8, .index = true},
                       {.k = KvFormat::kF16, .v = KvFormat::kF16, .latents = true, .sources = true},
                       {.k = KvFormat::kInt8, .v = KvFormat::kInt8, .index = true, .rate = 4}});
}

TEST(KvPoison, ReachesRejectedTokensAndNewPagesOfAGpu) {
  FakeGpu device;
  expect_all(device, {{KvFormat::kF16, KvFormat::kF16},
                      {KvFormat::kBF16, KvFormat::kBF16},
                      {KvFormat::kFp8, KvFormat::kFp8},
                      {KvFormat::kInt8Head, KvFormat::kInt8Head},
                      {KvFormat::kInt4Head, KvFormat::kInt4Head},
                      {.k = KvFormat::kBF16, .v = KvFormat::kBF16, .latents = true}});
}

}  // namespace
}  // namespace headrace::kv_poison_test
