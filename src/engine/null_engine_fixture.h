// The engine on a null device, for tests: models without arithmetic, whose layers follow the block
// tables that they are to attend through, and answers whose tokens are known.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model_runner.h"
#include "models/null_model.h"
#include "ops/attention/plan.h"
#include "sched/draft_source.h"

namespace headrace {

inline constexpr int32_t kVocabulary = 5000;
inline constexpr TokenId kEndId = 7;

struct Case {
  bool graphs = false;
  int32_t steps_in_flight = 1;
  int32_t window = 0;
  KvMemoryKind memory = KvMemoryKind::kPaged;
  int32_t sliding_layers = 1;  // beside one that attends to everything
  bool proposals = false;
  int32_t ranks = 1;
  bool drafts = false;  // a draft model proposes
  int32_t stages = 1;
};

inline ModelSpec spec_of(const Case& c) {
  ModelSpec spec{.architecture = "null",
                 .vocab_size = kVocabulary,
                 .hidden_size = 64,
                 .layer_count = 1 + c.sliding_layers,
                 .query_heads = 4,
                 .context_length = 1024,
                 .kv = {{.kv_heads = 2, .k_dim = 64, .v_dim = 64, .window = 0}}};
  spec.kv.resize(static_cast<size_t>(spec.layer_count),
                 {.kv_heads = 2, .k_dim = 64, .v_dim = 64, .window = c.window});
  return spec;
}

// Neighbouring layers, as many each as can be.
inline LayerRange layers_of_part(const Case& c, int32_t stage) {
  const int32_t layers = spec_of(c).layer_count;
  return {layers * stage / c.stages, layers * (stage + 1) / c.stages};
}
// Of a model of which these layers are loaded.
inline ModelSpec spec_of_part(const Case& c, LayerRange own) {
  ModelSpec spec = spec_of(c);
  for (int32_t layer = 0; layer < spec.layer_count; ++layer) {
    if (layer < own.first || layer >= own.last) spec.kv[static_cast<size_t>(layer)] = {};
  }
  return spec;
}

// It proposes nothing behind the last ids, which it does not know, and has logits of few.
inline ModelSpec draft_spec() {
  return {.architecture = "null",
          .vocab_size = kVocabulary - 200,
          .hidden_size = 32,
          .layer_count = 2,
          .query_heads = 2,
          .context_length = 1024,
          .kv = {2, {.kv_heads = 1, .k_dim = 64, .v_dim = 64}},
          .output_rows = 1000};
}

// The token of a place, whoever asks.
inline TokenId token_at(const Request& request, int32_t choice, size_t position) {
  const uint64_t bits = counter_hash(*request.sampling.seed, static_cast<uint64_t>(choice),
                                     position, RngPurpose::kSample);
  return static_cast<TokenId>(bits % kVocabulary);
}

// Proposes the tokens of the places to come, three of four of them right.
class PlaceSource final : public DraftSource {
 public:
  void propose(Sequence& sequence, const ProposalBounds& bounds, TokenTree& proposed) override {
    for (int32_t i = 0; i < bounds.depth; ++i) {
      const auto position = static_cast<size_t>(sequence.known_length() + i);
      const TokenId right = token_at(*sequence.request, sequence.choice, position);
      proposed.tokens.push_back(mix64(position) % 4 == 0 ? (right + 1) % kVocabulary : right);
    }
  }
};

// A null model whose layers follow the block tables that they are to attend through, when a step
// runs and when a recorded one does: a row's own key lies where the step writes it. Hidden rows
// tell their token and the layers that they have passed.
class TableProbe final : public Model {
 public:
  explicit TableProbe(ModelSpec spec, int64_t workspace_bytes = 0)
      : model_(std::move(spec)), workspace_bytes_(workspace_bytes) {}

  const ModelSpec& spec() const override { return model_.spec(); }
  DType activation_dtype() const override { return model_.activation_dtype(); }
  int64_t weight_bytes() const override { return 0; }
  int64_t workspace_bytes(int32_t, int32_t, int32_t, int32_t) const override {
    return workspace_bytes_;
  }
  void embed(OpContext& context, const ForwardBatch& batch, TensorView hidden) const override {
    context.stream.call([hidden, tokens = batch.tokens] {
      for (size_t i = 0; i < tokens.size(); ++i) passed(hidden, i) = tokens[i];
    });
  }
  void normalise_rows(OpContext&, TensorView) const override {}
  void head(OpContext&, TensorView, TensorView) const override {}
  void layers(OpContext& context, const ForwardBatch& batch, LayerRange range,
              std::span<const KvLayerView>, TensorView hidden, LayerTaps) const override {
    context.stream.call([hidden, range, tokens = batch.tokens] {
      for (size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] == 0) continue;  // or a row of padding
        ASSERT_EQ(passed(hidden, i), tokens[i] + range.first) << "row " << i;
        passed(hidden, i) += range.last - range.first;
      }
    });
    if (--passes_left_ == 0) context.stream.fail(internal_error(kLost));
    for (int32_t layer = range.first; layer < range.last; ++layer) {
      const ForwardBatch::Group& group =
          batch.groups[static_cast<size_t>(batch.layer_group[static_cast<size_t>(layer)])];
      const bool keeps = batch.kept != nullptr && layer + 1 == range.last;
      if (keeps && batch.kept->rows.empty()) continue;  // nothing attends
      const ForwardBatch::Group& attends = keeps ? batch.kept->group : group;
      const auto rows = keeps ? batch.kept->rows : std::span<const int32_t>();
      context.stream.call([this, slots = group.slots, rows, plan = attends.plan->device,
                           offset = attends.table_offset] { follow(plan, offset, slots, rows); });
    }
  }
  int64_t rows_followed() const { return rows_followed_; }
  // The device is lost in the pass behind the next `passes`.
  static constexpr const char* kLost = "CUDA: a fault (cudaErrorOfSomeKind)";
  void lose_device_after(int64_t passes) { passes_left_ = passes + 1; }

 private:
  static int32_t& passed(TensorView hidden, size_t row) {
    return *reinterpret_cast<int32_t*>(hidden.row(static_cast<int64_t>(row)));
  }
  // `rows`: which of the step's a tile counts; empty: all.
  void follow(const std::byte* plan, int32_t offset, std::span<const int64_t> slots,
              std::span<const int32_t> rows) const {
    const auto& header = *reinterpret_cast<const AttentionPlanHeader*>(plan);
    const auto tiles_at = [&](size_t first, int32_t count) {
      return std::span(reinterpret_cast<const AttentionTileWork*>(plan + first),
                       static_cast<size_t>(count));
    };
    const auto follow_tiles = [&](std::span<const AttentionTileWork> tiles) {
      for (const AttentionTileWork& tile : tiles) {
        for (int32_t i = 0; i < tile.row_count; ++i) {
          const auto row = static_cast<size_t>(tile.row_first + i);
          const int64_t slot = slots[rows.empty() ? row : static_cast<size_t>(rows[row])];
          ASSERT_EQ(tile.block_table[offset + (tile.position + i) / 16], slot / 16);
          ++rows_followed_;
        }
      }
    };
    follow_tiles(tiles_at(sizeof(AttentionPlanHeader), header.decode_count));
    follow_tiles(tiles_at(static_cast<size_t>(header.prefill_first), header.prefill_count));
  }

  const NullModel model_;
  const int64_t workspace_bytes_;
  mutable int64_t rows_followed_ = 0;
  mutable std::atomic<int64_t> passes_left_ = 0;
};

// Few pages: sequences are preempted and computed again.
class NullEngine {
 public:
  explicit NullEngine(const Case& c) {
    std::vector<ModelRank> ranks;
    for (int32_t part = 0; part < std::max(c.ranks, c.stages); ++part) {
      devices_.push_back(create_null_device({}));
      const std::optional<LayerRange> own =
          c.stages > 1 ? std::optional(layers_of_part(c, part)) : std::nullopt;
      models_.push_back(std::make_unique<TableProbe>(own ? spec_of_part(c, *own) : spec_of(c)));
      ranks.push_back({devices_.back().get(), models_.back().get(), own});
    }
    ModelRunnerOptions options{.max_num_seqs = 12,
                               .max_num_batched_tokens = 48,
                               .max_model_len = 256,
                               .kv_memory = c.memory,
                               .end_ids = {kEndId},
                               .graphs = c.graphs,
                               .graphs_at_start = c.graphs,
                               .steps_in_flight = std::max(2, c.steps_in_flight),
                               .poison_kv = c.memory == KvMemoryKind::kPaged,
                               .draft = c.drafts ? &draft_ : nullptr};
    KvPlan kv = plan_kv(kept_spec(spec_of(c), options), {KvFormat::kBF16}, 16);
    if (!c.drafts) {
      EXPECT_EQ(kv.groups.size(), c.window > 0 ? 1u + static_cast<size_t>(c.sliding_layers) : 1u);
    }
    const auto blocks = static_cast<int32_t>(40 * kv.groups.size());
    const SchedulerOptions scheduler{.max_num_seqs = 12,
                                     .max_num_batched_tokens = 48,
                                     .max_model_len = 256,
                                     .steps_in_flight_max = c.steps_in_flight,
                                     .cohorts = {c.stages, c.stages > 1 ? 2 : 0},
                                     .groups = kv.groups,
                                     .block_count = blocks,
                                     .end_ids = {kEndId},
                                     .proposals = proposals_of(c)};
    options.block_count = blocks;
    auto runner = create_model_runner(ranks, std::move(kv), options);
    EXPECT_TRUE(runner.ok()) << runner.status().message();
    engine_ = Engine::create({.scheduler = scheduler, .vocab_size = kVocabulary},
                             std::move(runner).value())
                  .value();
  }
  Engine& engine() { return *engine_; }
  const TableProbe& model() const { return *models_.front(); }
  TableProbe& model_of(size_t rank) { return *models_[rank]; }
  const TableProbe& draft() const { return draft_; }

 private:
  static ProposalOptions proposals_of(const Case& c) {
    if (c.drafts) {
      return {.method = ProposalMethod::kDraftModel, .tokens_max = 4, .whatever_they_cost = true};
    }
    if (!c.proposals) return {};
    return {.tokens_max = 4, .source = std::make_shared<PlaceSource>()};
  }

  std::vector<std::unique_ptr<Device>> devices_;     // [ranks]
  std::vector<std::unique_ptr<TableProbe>> models_;  // [ranks]
  const TableProbe draft_{draft_spec()};
  std::unique_ptr<Engine> engine_;
};

struct Answer {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kNone;
};

// The tokens of every choice of every request, once all have ended.
class Answers {
 public:
  explicit Answers(size_t requests) : answers_(requests), unfinished_(requests) {}
  EmissionSink sink(size_t request, int32_t n) {
    answers_[request].resize(static_cast<size_t>(n));
    return [this, request, left = n](const Emission& emission) mutable {
      Answer& answer = answers_[request][static_cast<size_t>(emission.choice)];
      answer.tokens.insert(answer.tokens.end(), emission.tokens.begin(), emission.tokens.end());
      answer.finish = emission.finish;
      if (emission.finish == FinishReason::kNone || --left > 0) return;
      const std::lock_guard lock(mutex_);
      --unfinished_;
      done_.notify_all();
    };
  }
  const std::vector<std::vector<Answer>>& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(done_.wait_for(lock, std::chrono::seconds(60), [&] { return unfinished_ == 0; }));
    return answers_;
  }

 private:
  std::vector<std::vector<Answer>> answers_;
  std::mutex mutex_;
  std::condition_variable done_;
  size_t unfinished_;
};

}  // namespace headrace
