// Adapters on the way to a GPU, on a null device: which rows of a step, also of a recorded one, are
// said to have which slot, and whose a slot is.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/model_runner.h"
#include "models/dummy_lora.h"
#include "models/lora_adapter.h"
#include "models/null_model.h"

namespace headrace::device_adapters_test {
namespace {

constexpr int32_t kAdapterPrompt = 17;  // tokens; each is the number of the request's adapter
constexpr int32_t kAdapterAnswer = 12;  // they end on the page of the prompt's last token

ModelSpec adapted_null_spec() {
  return {.architecture = "null",
          .vocab_size = 100,
          .hidden_size = 64,
          .layer_count = 1,
          .query_heads = 4,
          .context_length = 64,
          .kv = {{.kv_heads = 2, .k_dim = 64, .v_dim = 64}}};
}

// Its layers look at the tasks of a step when it runs. What a page's rows have is known from the
// prompt's: a page is one sequence's.
class AdapterProbe final : public Model {
 public:
  const ModelSpec& spec() const override { return model_.spec(); }
  DType activation_dtype() const override { return model_.activation_dtype(); }
  int64_t weight_bytes() const override { return 0; }
  int64_t workspace_bytes(int32_t, int32_t, int32_t, int32_t) const override { return 0; }
  void embed(OpContext&, const ForwardBatch&, TensorView) const override {}
  void normalise_rows(OpContext&, TensorView) const override {}
  void head(OpContext&, TensorView, TensorView) const override {}
  void layers(OpContext& context, const ForwardBatch& batch, LayerRange,
              std::span<const KvLayerView>, TensorView, LayerTaps) const override {
    const auto kept = batch.kept == nullptr ? std::span<const int32_t>() : batch.kept->rows;
    context.stream.call([this, tokens = batch.tokens, positions = batch.positions,
                         slots = batch.groups[0].slots, adapters = batch.adapters,
                         kept] { look(tokens, positions, slots, adapters, kept); });
  }
  // [0]: of none; else of the slot's number and one.
  std::vector<int> rows_seen() const {
    const std::lock_guard lock(mutex_);
    return rows_seen_;
  }
  int passes_without() const { return passes_without_; }
  void expect_slots(std::vector<int32_t> slots) { slots_ = std::move(slots); }

 private:
  static std::vector<int32_t> slots_of_rows(std::span<const LoraTask> tasks, size_t rows) {
    std::vector<int32_t> slots(rows, -1);
    for (const LoraTask& task : tasks) {
      for (int32_t i = 0; i < task.count; ++i) {
        int32_t& slot = slots.at(static_cast<size_t>(task.rows[i]));
        EXPECT_EQ(slot, -1) << "a row of two tasks";
        slot = task.slot;
      }
    }
    return slots;
  }

  void look(std::span<const TokenId> tokens, std::span<const int32_t> positions,
            std::span<const int64_t> pages, const BatchAdapters& adapters,
            std::span<const int32_t> kept) const {
    const std::lock_guard lock(mutex_);
    passes_without_ += adapters.any() ? 0 : 1;
    const std::vector<int32_t> slots = slots_of_rows(adapters.tasks, tokens.size());
    for (size_t row = 0; row < tokens.size(); ++row) {
      const int64_t page = pages[row] / 16;
      if (page == kPaddingPage) {
        EXPECT_EQ(slots[row], -1) << "padding";
        continue;
      }
      if (positions[row] < kAdapterPrompt) owners_[page] = tokens[row];
      const int32_t adapter = owners_.at(page);
      const int32_t expected = adapter == 0 ? -1 : slots_.at(static_cast<size_t>(adapter - 1));
      EXPECT_EQ(slots[row], expected) << "position " << positions[row];
      ++rows_seen_.at(static_cast<size_t>(adapter));
    }
    const std::vector<int32_t> kept_slots = slots_of_rows(adapters.kept_tasks, kept.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept_slots[i], slots[static_cast<size_t>(kept[i])]);
    }
  }

  static constexpr int64_t kPaddingPage = 40;
  const NullModel model_{adapted_null_spec()};
  std::vector<int32_t> slots_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, TokenId> owners_;  // adapters' numbers by page
  mutable std::vector<int> rows_seen_ = std::vector<int>(4);
  mutable std::atomic<int> passes_without_ = 0;
};

class DeviceAdapters : public ::testing::TestWithParam<bool> {
 protected:
  DeviceAdapters() {
    MatrixStack site{.columns = 8};
    site.rows = {{"blk.0.attn_q", 16}, {"blk.0.attn_k", 8}};
    sites_ = {site, site};
    slots_ =
        LoraSlots::create(*device_, sites_, {.count = 3, .rank_max = 20}, DType::kBF16).value();
    std::vector<int32_t> numbers;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const LoraFile file = dummy_lora(sites_, {.rank = 4, .seed = seed});
      adapters_.push_back(
          load_lora_adapter(file, sites_, *device_, {.dtype = DType::kBF16, .slots = slots_})
              .value());
      numbers.push_back(adapters_.back()->slot());
    }
    model_.expect_slots(std::move(numbers));
  }

  void start(bool graphs) {
    const KvPlan kv = plan_kv(model_.spec(), {KvFormat::kBF16}, 16);
    const SchedulerOptions scheduler{.max_num_seqs = 8,
                                     .max_num_batched_tokens = 40,
                                     .max_model_len = 64,
                                     .steps_in_flight_max = kDeviceStepsInFlight,
                                     .groups = kv.groups,
                                     .block_count = 40,
                                     .enable_prefix_caching = false};
    auto runner = create_model_runner(*device_, model_, kv,
                                      {.max_num_seqs = 8,
                                       .max_num_batched_tokens = 40,
                                       .max_model_len = 64,
                                       .block_count = 40,
                                       .graphs = graphs,
                                       .graphs_at_start = graphs,
                                       .adapter_slots = slots_});
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    EXPECT_TRUE((*runner)->takes_adapters());
    engine_ = Engine::create({.scheduler = scheduler, .vocab_size = 100}, std::move(runner).value())
                  .value();
  }

  // A request of each of these adapters; 0: none. Returns when all have ended.
  void answer(const std::vector<int>& adapters) {
    std::mutex mutex;
    std::condition_variable changed;
    size_t ended = 0;
    for (const int which : adapters) {
      Request request{.id = engine_->next_request_id()};
      request.prompt.assign(kAdapterPrompt, which);
      request.sampling.max_tokens = kAdapterAnswer;
      request.sampling.ignore_eos = true;
      if (which > 0) request.adapter_weights = adapters_[static_cast<size_t>(which - 1)];
      const Status status = engine_->submit(std::move(request), [&](const Emission& emission) {
        if (emission.finish == FinishReason::kNone) return;
        const std::lock_guard lock(mutex);
        ++ended;
        changed.notify_all();
      });
      ASSERT_TRUE(status.ok()) << status.message();
    }
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended == adapters.size(); });
  }

  const std::unique_ptr<Device> device_ = create_null_device({});
  std::vector<MatrixStack> sites_;
  std::shared_ptr<LoraSlots> slots_;
  std::vector<std::shared_ptr<const LoraAdapter>> adapters_;
  AdapterProbe model_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(DeviceAdapters, RowsHaveTheSlotsOfTheirRequests) {
  start(/*graphs=*/GetParam());
  answer({0, 1, 2, 3, 1, 0, 2, 2});
  answer({3});
  const std::vector<int> seen = model_.rows_seen();
  // Of each request its prompt and all tokens but the last; what was begun too far counts, too.
  constexpr int kRows = kAdapterPrompt + kAdapterAnswer - 1;
  const std::vector<int> requests = {2, 2, 3, 2};
  for (size_t adapter = 0; adapter < requests.size(); ++adapter) {
    EXPECT_GE(seen[adapter], requests[adapter] * kRows) << adapter;
    EXPECT_LE(seen[adapter], requests[adapter] * (kRows + kDeviceStepsInFlight)) << adapter;
  }
}

// A step without adapters has no tasks, whatever ran before.
TEST_P(DeviceAdapters, StepsWithoutAdaptersHaveNoTasks) {
  start(/*graphs=*/GetParam());
  answer({1, 2});
  const int before = model_.passes_without();
  answer({0, 0});
  EXPECT_GE(model_.passes_without() - before, kAdapterAnswer);
  EXPECT_EQ(model_.rows_seen()[3], 0);
}

// Requests hold it, then the steps that read it, then nobody.
TEST_P(DeviceAdapters, ASlotIsFreeWhenTheLastStepThatReadItHasEnded) {
  start(/*graphs=*/GetParam());
  answer({1, 2, 3, 0});
  EXPECT_EQ(slots_->take().status().code(), StatusCode::kExhausted);
  const std::vector<int32_t> slots = {adapters_[0]->slot(), adapters_[1]->slot(),
                                      adapters_[2]->slot()};
  adapters_.clear();
  answer({0});  // the slots of sequences are given to others
  engine_.reset();
  std::vector<int32_t> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(slots_->take().value());
  EXPECT_TRUE(std::ranges::is_permutation(taken, slots));
}

INSTANTIATE_TEST_SUITE_P(Eagerly, DeviceAdapters, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Recorded, DeviceAdapters, ::testing::Values(true));

// What lies in a slot is what the op's layout says of the file's factors, in the type of the model.
TEST_F(DeviceAdapters, ASlotHasTheFactorsOfItsFile) {
  const LoraFile file = dummy_lora(sites_, {.rank = 4, .seed = 2});
  const LoraPair& pair = *file.find("blk.0.attn_k.weight");
  const LoraPlace& place = slots_->places(1)[1];
  EXPECT_EQ(place.columns, 8);
  EXPECT_EQ(place.first_column, 16);
  std::vector<std::byte> a(static_cast<size_t>(lora_a_bytes(DType::kBF16, 4, 8)));
  std::vector<std::byte> b(static_cast<size_t>(lora_b_bytes(DType::kBF16, 4, 8)));
  const auto row_of = [](const ConstTensorView& matrix, int64_t row) {
    return std::span(reinterpret_cast<const float*>(matrix.row(row)),
                     static_cast<size_t>(matrix.columns()));
  };
  for (int64_t r = 0; r < 4; ++r) pack_lora_a(DType::kBF16, a.data(), r, row_of(pair.a, r));
  for (int64_t n = 0; n < 8; ++n) pack_lora_b(DType::kBF16, b.data(), n, row_of(pair.b, n));
  const std::byte* const slot = slots_->memory(adapters_[2]->slot());
  EXPECT_TRUE(std::equal(a.begin(), a.end(), slot + place.a));
  EXPECT_TRUE(std::equal(b.begin(), b.end(), slot + place.b));
  const LoraScale& scale =
      slots_->view().scales[adapters_[2]->slot() * slots_->view().factor_count + place.index];
  EXPECT_EQ(scale.scale, pair.scale);
  EXPECT_EQ(scale.rank_tiles, 1);
  EXPECT_EQ(slots_->bytes(), LoraSlots::bytes(sites_, slots_->sizes(), DType::kBF16));
}

}  // namespace
}  // namespace headrace::device_adapters_test
