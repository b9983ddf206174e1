#include "engine/pooled_decoder_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/kv_storage.h"
#include "tensor/communicator.h"
#include "tensor/workspace.h"

namespace headrace {
namespace {

constexpr int32_t kPageTokens = 16;
constexpr int64_t kPageAlignment = 64;

int32_t pages_of(int32_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

// Keys and values of a pass. A pass runs layer by layer over all of its tokens, so that one layer's
// memory is all that there is: the next layer writes over it. A text has pages of its own.
class PassKv {
 public:
  static Result<PassKv> create(Device& device, const ModelSpec& spec, KvFormats formats,
                               int32_t page_count) {
    PassKv kv;
    int64_t page_bytes = 0;
    for (const LayerKv& layer : spec.kv) {
      KvLayerView view = kv_view(layer, formats, key_layout(device.kind()), kPageTokens);
      const int64_t bytes = layer_part_bytes(view);
      view.block_stride = (bytes + kPageAlignment - 1) / kPageAlignment * kPageAlignment;
      page_bytes = std::max(page_bytes, view.block_stride);
      kv.layers_.push_back(view);
    }
    HR_ASSIGN_OR_RETURN(kv.memory_, device.allocate(page_bytes * page_count));
    for (KvLayerView& view : kv.layers_) view.base = kv.memory_.data();
    kv.pages_.resize(static_cast<size_t>(page_count));
    std::iota(kv.pages_.begin(), kv.pages_.end(), 0);
    return kv;
  }

  std::span<const KvLayerView> layers() const { return layers_; }
  // Of a text whose first page is `first`.
  const int32_t* table(int32_t first) const { return pages_.data() + first; }

 private:
  Buffer memory_;
  std::vector<KvLayerView> layers_;  // [layers], all of the same memory
  std::vector<int32_t> pages_;       // 0, 1, 2, ...
};

// Rows that a layer takes at a time, of one text or of several. Its spans are the runner's.
struct PassChunk {
  int32_t first = 0, count = 0;
  std::vector<AttentionSequence> sequences;  // rows from `first` on
};

class PooledDecoderRunner final : public EmbeddingRunner {
 public:
  PooledDecoderRunner(Device& device, const Model& model, PooledDecoderOptions options, PassKv kv,
                      Buffer hidden, Buffer pooled, Buffer workspace, const OpHooks* hooks)
      : device_(device),
        model_(model),
        options_(std::move(options)),
        stream_(device.create_stream()),
        kv_(std::move(kv)),
        hidden_(std::move(hidden)),
        pooled_(std::move(pooled)),
        workspace_(std::move(workspace)),
        hooks_(hooks),
        layer_group_(static_cast<size_t>(model.spec().layer_count), 0) {}

  int32_t dimensions() const override {
    return options_.head ? static_cast<int32_t>(options_.head.labels.size())
                         : model_.spec().hidden_size;
  }
  int32_t vocab_size() const override { return model_.spec().vocab_size; }
  int32_t length_max() const override { return options_.length_max; }
  bool normalises() const override { return options_.normalise && !options_.head; }
  const ClassifierHead& head() const override { return options_.head; }

  void prepare_thread() override {
    device_.pool().bind_caller();
    flush_denormals_on_this_thread();
  }

  bool run(const EncoderBatch& batch, std::span<float> vectors,
           const std::function<bool()>& go_on) override {
    OpContext context{device_, *stream_, workspace_, mesh_, hooks_};
    lay_out(batch);
    const TensorView hidden(hidden_.data(), DType::kF32,
                            Shape{std::ssize(batch.tokens), width()});  // [T, D]
    for (const PassChunk& chunk : chunks_) {
      with_batch(batch, chunk, [&](const ForwardBatch& rows) {
        model_.embed(context, rows, hidden.row_range(chunk.first, chunk.count));
      });
    }
    for (int32_t layer = 0; layer < model_.spec().layer_count; ++layer) {
      for (const PassChunk& chunk : chunks_) {
        if (go_on && !go_on()) return false;
        with_batch(batch, chunk, [&](const ForwardBatch& rows) {
          model_.layers(context, rows, {layer, layer + 1}, kv_.layers(),
                        hidden.row_range(chunk.first, chunk.count), {});
        });
      }
    }
    finish(context, batch, hidden, vectors);
    return true;
  }

 private:
  int64_t width() const { return model_.spec().hidden_size; }

  // Positions and slots of all rows, and what a layer takes of them at a time.
  void lay_out(const EncoderBatch& batch) {
    positions_.clear();
    slots_.clear();
    chunks_.assign(1, {});
    int32_t page = 0;
    for (const RowSequence& text : batch.sequences) {
      const int32_t* const table = kv_.table(page);
      for (int32_t i = 0; i < text.row_count; ++i) {
        positions_.push_back(i);
        slots_.push_back(int64_t{page} * kPageTokens + i);
      }
      for (int32_t done = 0; done < text.row_count;) {
        if (chunks_.back().count == options_.rows_max) {
          chunks_.push_back({.first = text.row_first + done, .count = 0, .sequences = {}});
        }
        PassChunk& chunk = chunks_.back();
        const int32_t rows = std::min(text.row_count - done, options_.rows_max - chunk.count);
        done += rows;
        chunk.sequences.push_back({chunk.count, rows, done, table});
        chunk.count += rows;
      }
      page += pages_of(text.row_count);
    }
  }

  template <class Use>
  void with_batch(const EncoderBatch& batch, const PassChunk& chunk, const Use& use) const {
    const auto first = static_cast<size_t>(chunk.first), count = static_cast<size_t>(chunk.count);
    const ForwardBatch::Group group{.slots = std::span(slots_).subspan(first, count),
                                    .sequences = chunk.sequences};
    use(ForwardBatch{.tokens = batch.tokens.subspan(first, count),
                     .positions = std::span(positions_).subspan(first, count),
                     .groups = std::span(&group, 1),
                     .layer_group = layer_group_});
  }

  // Only rows that are read are normalised: of one row a text, these alone.
  void finish(OpContext& context, const EncoderBatch& batch, const TensorView& hidden,
              std::span<float> vectors) {
    const bool one_row = options_.pooling == Pooling::kLast || options_.pooling == Pooling::kFirst;
    const TensorView pooled(pooled_.data(), DType::kF32,
                            Shape{std::ssize(batch.sequences), width()});  // [S, D]
    if (!one_row) normalise(context, hidden);
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      const RowSequence& text = batch.sequences[s];
      pool_rows(options_.pooling, hidden.row_range(text.row_first, text.row_count),
                row_of(pooled, static_cast<int64_t>(s)));
    }
    if (one_row) normalise(context, pooled);
    const auto columns = static_cast<size_t>(dimensions());
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      const std::span<float> row = row_of(pooled, static_cast<int64_t>(s));
      const std::span<float> vector = vectors.subspan(s * columns, columns);
      if (options_.head) {
        classify(row, vector);
      } else {
        std::ranges::copy(row, vector.begin());
        if (options_.normalise) scale_to_unit(vector);
      }
    }
  }

  void normalise(OpContext& context, const TensorView& rows) const {
    for (int64_t first = 0; first < rows.rows(); first += options_.rows_max) {
      const int64_t count = std::min<int64_t>(rows.rows() - first, options_.rows_max);
      model_.normalise_rows(context, rows.row_range(first, count));
    }
  }

  static std::span<float> row_of(const TensorView& rows, int64_t r) {
    return {f32_row(rows, r), static_cast<size_t>(rows.columns())};
  }

  // `row` [D] times the head's rows.
  void classify(std::span<const float> row, std::span<float> logits) const {
    for (size_t c = 0; c < logits.size(); ++c) {
      const float* const weights = options_.head_rows.data() + c * row.size();
      double sum = 0.0;
      for (size_t i = 0; i < row.size(); ++i) sum += double{row[i]} * weights[i];
      logits[c] = static_cast<float>(sum);
    }
  }

  Device& device_;
  const Model& model_;
  const PooledDecoderOptions options_;
  const std::unique_ptr<Stream> stream_;
  const PassKv kv_;
  const Buffer hidden_;  // [tokens of a pass, D]
  const Buffer pooled_;  // [texts of a pass, D]
  Workspace workspace_;
  SingleRank one_;
  Mesh mesh_{&one_, &one_, &one_};
  const OpHooks* const hooks_;
  const std::vector<int32_t> layer_group_;  // [layers]: all of one group
  // Of the pass that runs.
  std::vector<int32_t> positions_;  // [T]
  std::vector<int64_t> slots_;      // [T]
  std::vector<PassChunk> chunks_;
};

}  // namespace

Result<std::unique_ptr<EmbeddingRunner>> create_pooled_decoder_runner(Device& device,
                                                                      const Model& model,
                                                                      PooledDecoderOptions options,
                                                                      const OpHooks* hooks) {
  CHECK(device.kind() == DeviceKind::kCpu && options.length_max > 0 && options.rows_max > 0);
  const ModelSpec& spec = model.spec();
  CHECK(options.head_rows.size() ==
        options.head.labels.size() * static_cast<size_t>(spec.hidden_size));
  // Texts of one token have a page each.
  const int32_t pages = std::max(options.rows_max, pages_of(options.length_max));
  const int64_t row_bytes = spec.hidden_size * int64_t{sizeof(float)};
  const int64_t tokens = std::max(options.rows_max, options.length_max);
  HR_ASSIGN_OR_RETURN(PassKv kv, PassKv::create(device, spec, options.kv_formats, pages));
  HR_ASSIGN_OR_RETURN(Buffer hidden, device.allocate(tokens * row_bytes));
  HR_ASSIGN_OR_RETURN(Buffer pooled, device.allocate(options.rows_max * row_bytes));
  HR_ASSIGN_OR_RETURN(Buffer workspace, device.allocate(model.workspace_bytes(
                                            options.rows_max, /*logit_rows=*/1, options.length_max,
                                            device.pool().thread_count())));
  return std::unique_ptr<EmbeddingRunner>(std::make_unique<PooledDecoderRunner>(
      device, model, std::move(options), std::move(kv), std::move(hidden), std::move(pooled),
      std::move(workspace), hooks));
}

}  // namespace headrace
