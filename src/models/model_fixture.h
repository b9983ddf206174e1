// For the tests of models: one sequence through a model, in steps of any sizes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "tensor/communicator.h"
#include "tensor/cpu_features.h"
#include "tensor/quantised_row.h"
#include "tensor/workspace.h"

namespace headrace {

// What a model gave for each position.
struct SequenceValues {
  std::vector<std::vector<std::vector<float>>> hidden;  // [layers][T][D]
  std::vector<std::vector<float>> logits;               // [T][V]
};

// The matrices of another source, each quantised as a file that was quantised before would have it:
// the head to Q8_0; not the embedding, unless it is the head; rows that are no whole blocks stay.
class QuantisedSource final : public WeightSource {
 public:
  QuantisedSource(std::shared_ptr<const WeightSource> source, DType dtype)
      : source_(std::move(source)), dtype_(dtype) {}
  using WeightSource::get;
  bool has(std::string_view name) const override { return source_->has(name); }
  std::vector<std::string_view> names() const override { return source_->names(); }
  void release(const ConstTensorView&) const override {}
  std::string_view description() const override { return "quantised"; }

  Result<ConstTensorView> get(std::string_view name) const override {
    HR_ASSIGN_OR_RETURN(const ConstTensorView view, source_->get(name));
    if (view.shape.rank() < 2) return view;
    const bool table = name == "token_embd.weight", tied = !source_->has("output.weight");
    const DType dtype = name == "output.weight" || table ? DType::kQ8_0 : dtype_;
    const auto row_size = row_bytes(dtype, view.columns());
    if (is_quantised(view.dtype) || (table && !tied) || !row_size) return view;
    std::vector<std::byte>& bytes = matrices_[std::string(name)];
    const auto size = static_cast<size_t>(*row_size);
    bytes.resize(size * static_cast<size_t>(view.rows()));
    std::vector<float> row(static_cast<size_t>(view.columns()));
    for (int64_t r = 0; r < view.rows(); ++r) {
      dequantise_row(view, r, row.data());
      quantise_row(dtype, row, std::span(bytes).subspan(static_cast<size_t>(r) * size, size));
    }
    return ConstTensorView(bytes.data(), dtype, view.shape);
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
  const DType dtype_;
  mutable std::map<std::string, std::vector<std::byte>> matrices_;
};

// A cache of its own for each layer, every byte NaN until it is written. What a sliding layer's
// window has passed is made NaN again and leaves the block table, as when another sequence has got
// the block.
class SequenceSession {
 public:
  static constexpr int32_t kBlockTokens = 16;

  SequenceSession(Device& device, const Model& model, int32_t length_max,
                  KvFormats formats = {KvFormat::kF32})
      : device_(device),
        model_(model),
        formats_(formats),
        blocks_((length_max + kBlockTokens - 1) / kBlockTokens),
        workspace_(
            std::move(device
                          .allocate(model.workspace_bytes(length_max, length_max, length_max, 4) +
                                    (8 << 20) + int64_t{length_max} * bytes_of_a_row(model.spec()))
                          .value())) {
    flush_denormals_on_this_thread();
    for (const LayerKv& layer : model.spec().kv) add_layer(layer);
    fill_groups();
    entry_bytes_ = state_entry_bytes(model.spec());
    if (entry_bytes_ == 0) return;
    states_ = std::move(device_.allocate(2 * entry_bytes_).value());
    std::memset(states_.data(), 0xff, static_cast<size_t>(states_.size()));
  }

  // Of the runs from now on; outlives them.
  void set_hooks(const OpHooks* hooks) { hooks_ = hooks; }

  // The model is a rank's, and the session is on the rank's thread.
  void join(Communicator& ranks) { mesh_.tensor = &ranks; }

  // All rows from now on have it; outlives the session. Null: none.
  void adapt(const LoraAdapter* adapter) { adapter_ = adapter; }

  // Of steps of twice as many rows, the last `rows` alone are read: logits, and hidden rows behind
  // the last layer, are of these.
  void read_last(int32_t rows) { read_rows_ = rows; }

  // `steps` add up to the tokens' number.
  SequenceValues run(const std::vector<TokenId>& tokens, const std::vector<int32_t>& steps) {
    SequenceValues values;
    values.hidden.resize(static_cast<size_t>(model_.spec().layer_count));
    int32_t first = 0;
    for (const int32_t count : steps) {
      step(tokens, first, count, values);
      first += count;
      forget_what_windows_passed(first);
    }
    EXPECT_EQ(first, static_cast<int32_t>(tokens.size()));
    return values;
  }

 private:
  // Of logits and of hidden rows behind each layer, twice each.
  static int64_t bytes_of_a_row(const ModelSpec& spec) {
    return 8 * (spec.vocab_size + int64_t{spec.hidden_size} * spec.layer_count);
  }

  // Layers of one window share a block table.
  struct Group {
    int32_t window = 0;
    std::vector<int32_t> table;
    std::vector<int64_t> slots;
    AttentionSequence sequence;
  };

  void add_layer(const LayerKv& layer) {
    KvLayerView kv = kv_view(layer, formats_, KeyLayout::kTransposed, kBlockTokens);
    kv.block_stride = layer_part_bytes(kv);
    const int64_t bytes = std::max<int64_t>(kv.block_stride * blocks_, 1);
    pools_.push_back(std::move(device_.allocate(bytes).value()));
    std::memset(pools_.back().data(), 0xff, static_cast<size_t>(pools_.back().size()));
    kv.base = pools_.back().data();
    kv_.push_back(kv);
  }

  void fill_groups() {
    for (const LayerKv& layer : model_.spec().kv) {
      size_t index = 0;
      while (index < groups_.size() && groups_[index].window != layer.window) ++index;
      if (index == groups_.size()) {
        groups_.push_back({.window = layer.window});
        // From the last block to the first: a table is no identity.
        for (int32_t b = blocks_; b-- > 0;) groups_.back().table.push_back(b);
      }
      const int32_t own = static_cast<int32_t>(layer_group_.size());
      const int32_t of_keys = layer_of_keys(model_.spec(), own);
      layer_group_.push_back(of_keys < own ? layer_group_[static_cast<size_t>(of_keys)]
                                           : static_cast<int32_t>(index));
    }
  }

  void step(const std::vector<TokenId>& tokens, int32_t first, int32_t count,
            SequenceValues& values) {
    std::vector<int32_t> positions;
    for (int32_t p = first; p < first + count; ++p) positions.push_back(p);
    std::vector<ForwardBatch::Group> groups;
    for (Group& group : groups_) {
      group.slots.clear();
      for (const int32_t p : positions) {
        const int32_t block = group.table[static_cast<size_t>(p / kBlockTokens)];
        group.slots.push_back(int64_t{block} * kBlockTokens + p % kBlockTokens);
      }
      group.sequence = {.row_first = 0,
                        .row_count = count,
                        .kv_length = first + count,
                        .block_table = group.table.data()};
      groups.push_back({.slots = group.slots, .sequences = {&group.sequence, 1}});
    }
    // From one entry to the other: what a state leaves is copied on the way, and taken up there.
    const int32_t entry = step_count_++ % 2;
    state_save_ = {first + count, 1 - entry};
    state_sequence_ = {.row_first = 0,
                       .row_count = count,
                       .position = first,
                       .entry = entry,
                       .saves = {&state_save_, 1}};
    const auto from = static_cast<size_t>(first);
    const ForwardBatch batch{.tokens = TokenSpan(tokens).subspan(from, static_cast<size_t>(count)),
                             .positions = positions,
                             .groups = groups,
                             .layer_group = layer_group_,
                             .kept = keep_rows(count),
                             .states = {states_.data(), entry_bytes_, {&state_sequence_, 1}},
                             .adapters = {.rows = adapter_rows(count)}};
    forward(batch, values);
  }

  std::span<const AdapterRows> adapter_rows(int32_t count) {
    adapter_rows_ = {adapter_, {}};
    for (int32_t row = 0; row < count; ++row) adapter_rows_.rows.push_back(row);
    return {&adapter_rows_, adapter_ == nullptr ? size_t{0} : size_t{1}};
  }

  const ForwardBatch::KeptRows* keep_rows(int32_t count) {
    if (read_rows_ == 0 || count < 2 * read_rows_) return nullptr;
    kept_rows_.clear();
    for (int32_t r = count - read_rows_; r < count; ++r) kept_rows_.push_back(r);
    kept_sequence_ = groups_[static_cast<size_t>(layer_group_.back())].sequence;
    kept_sequence_.row_count = read_rows_;
    kept_ = {.rows = kept_rows_, .group = {.slots = {}, .sequences = {&kept_sequence_, 1}}};
    return &kept_;
  }

  void forward(const ForwardBatch& batch, SequenceValues& values) {
    const ModelSpec& spec = model_.spec();
    const auto count = static_cast<int64_t>(batch.tokens.size());
    OpContext context{device_, *stream_, workspace_, mesh_, hooks_};
    Workspace::Mark mark(workspace_);
    const TensorView hidden =
        workspace_.take_tensor(model_.activation_dtype(), Shape{count, spec.hidden_size});
    const TensorView logits = workspace_.take_tensor(DType::kF32, Shape{count, spec.vocab_size});
    std::vector<LayerTap> taps;
    for (int32_t layer = 0; layer < spec.layer_count; ++layer) {
      taps.push_back({.layer = layer,
                      .hidden = workspace_.take_tensor(model_.activation_dtype(), hidden.shape)});
      std::memset(taps.back().hidden.data, 0xff,
                  static_cast<size_t>(count * taps.back().hidden.row_stride));
    }
    model_.embed(context, batch, hidden);
    model_.layers(context, batch, {0, spec.layer_count}, kv_, hidden, taps);
    const int64_t read = batch.kept == nullptr ? count : std::ssize(batch.kept->rows);
    for (const LayerTap& tap : taps) {
      const int64_t rows = tap.layer + 1 == spec.layer_count ? read : count;
      append_rows(tap.hidden.row_range(0, rows), values.hidden[static_cast<size_t>(tap.layer)]);
      expect_untouched(tap.hidden.row_range(rows, count - rows));
    }
    const TensorView read_logits = logits.row_range(0, read);
    model_.head(context, hidden.row_range(0, read), read_logits);
    append_rows(read_logits, values.logits);
  }

  // Of a tap's memory, NaN at first, what lies behind the rows of the step.
  static void expect_untouched(const TensorView& rows) {
    for (int64_t r = 0; r < rows.rows(); ++r) {
      for (int64_t i = 0; i < rows.columns(); ++i) {
        if (!std::isnan(f32_row(rows, r)[i])) ADD_FAILURE() << "row " << r << ", column " << i;
      }
    }
  }

  static void append_rows(const ConstTensorView& from, std::vector<std::vector<float>>& to) {
    for (int64_t r = 0; r < from.rows(); ++r) {
      to.emplace_back(f32_row(from, r), f32_row(from, r) + from.columns());
    }
  }

  // The next row, at `length`, sees keys from length + 1 - window on.
  void forget_what_windows_passed(int32_t length) {
    for (size_t layer = 0; layer < kv_.size(); ++layer) {
      Group& group = groups_[static_cast<size_t>(layer_group_[layer])];
      if (group.window == 0) continue;
      const int32_t dead_blocks = std::max(0, length + 1 - group.window) / kBlockTokens;
      for (int32_t b = 0; b < dead_blocks; ++b) {
        const int32_t block = blocks_ - 1 - b;
        std::memset(kv_[layer].base + block * kv_[layer].block_stride, 0xff,
                    static_cast<size_t>(kv_[layer].block_stride));
        group.table[static_cast<size_t>(b)] = -1;
      }
    }
  }

  Device& device_;
  const Model& model_;
  const KvFormats formats_;
  const int32_t blocks_;
  std::unique_ptr<Stream> stream_ = device_.create_stream();
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
  std::vector<Buffer> pools_;
  std::vector<KvLayerView> kv_;
  std::vector<Group> groups_;
  std::vector<int32_t> layer_group_;
  Workspace workspace_;
  const OpHooks* hooks_ = nullptr;
  int32_t read_rows_ = 0;  // 0: all
  const LoraAdapter* adapter_ = nullptr;
  AdapterRows adapter_rows_;
  std::vector<int32_t> kept_rows_;
  AttentionSequence kept_sequence_;
  Buffer states_;  // two entries
  int64_t entry_bytes_ = 0;
  int32_t step_count_ = 0;
  StateCopy state_save_;
  StateSequence state_sequence_;
  ForwardBatch::KeptRows kept_;
};

}  // namespace headrace
