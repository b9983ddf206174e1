#include "models/parts/ngram_mixer.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "base/round_up.h"
#include "models/parts/gated_streams.h"
#include "models/parts/state_parts.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/row_gather.h"
#include "ops/states/causal_conv.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

constexpr double kLeastScore = 1e-6;  // of which the root is taken

// [taps, channels] of a file's [channels, taps], with rows of zeros between those that are.
std::vector<float> spread_taps(const std::vector<float>& in_file, int64_t channels, int32_t taps,
                               int32_t apart) {
  const auto rows = static_cast<size_t>((taps - 1) * apart + 1);
  std::vector<float> spread(rows * static_cast<size_t>(channels), 0.0f);
  for (int64_t j = 0; j < taps; ++j) {
    for (int64_t c = 0; c < channels; ++c) {
      spread[static_cast<size_t>(j * apart * channels + c)] =
          in_file[static_cast<size_t>(c * taps + j)];
    }
  }
  return spread;
}

class NgramMixer final : public Mixer {
 public:
  NgramMixer(const NgramSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden), part_rows_(divide_up(spec.table_rows, spec.table_parts)) {}

  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    const int64_t width = spec_.width / std::ssize(spec_.hash_rows);
    for (int64_t first = 0; first < spec_.table_rows; first += part_rows_) {
      const int64_t rows = std::min(part_rows_, spec_.table_rows - first);
      HR_ASSIGN_OR_RETURN(
          const ConstTensorView part,
          tensors.table(fmt::format("ngram_embd.{}.weight", table_.size()), Shape{rows, width}));
      table_.push_back(part);
    }
    MatrixStack made{.columns = spec_.width};
    made.rows = {{"ngram_key", streams_width()}, {"ngram_value", hidden_}};
    HR_ASSIGN_OR_RETURN(made_, tensors.matrix(made));
    HR_ASSIGN_OR_RETURN(key_norm_, tensors.vector("ngram_key_norm.weight", streams_width()));
    HR_ASSIGN_OR_RETURN(query_norm_, tensors.vector("ngram_query_norm.weight", streams_width()));
    HR_ASSIGN_OR_RETURN(conv_norm_, tensors.vector("ngram_conv_norm.weight", streams_width()));
    HR_ASSIGN_OR_RETURN(const std::vector<float> taps,
                        tensors.values("ngram_conv.weight", Shape{streams_width(), spec_.taps}));
    HR_ASSIGN_OR_RETURN(
        taps_, tensors.made_vector(spread_taps(taps, streams_width(), spec_.taps, spec_.size)));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override { return {&made_.weight}; }
  LayerKv kept() const override { return {}; }
  int64_t state_bytes() const override {
    return conv_bytes() + context_tokens() * static_cast<int64_t>(sizeof(int32_t));
  }
  std::vector<int64_t> scratch_columns(bool /*in_place*/) const override {
    return {spec_.width, streams_width() + hidden_, streams_width()};
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    return linear_workspace_bytes(load.rows, made_.weight);
  }
  Status check_device(const DeviceTraits& device, DType) const override {
    if (device.kind == DeviceKind::kCpu) return ok_status();
    return unsupported(
        "embeddings of several tokens have no kernels on a GPU yet: use --device cpu");
  }

  void run(const MixerRun& run) const override {
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows(), streams = spec_.carried.streams;
    const TensorView embedded = run.scratch.rows(kEmbedded, rows, spec_.width);
    const TensorView made = run.scratch.rows(kMade, rows, streams_width() + hidden_);
    const TensorView gated = run.scratch.rows(kGated, rows, streams_width());
    const TensorView keys = column_range(made, 0, streams_width());
    const TensorView values = column_range(made, streams_width(), hidden_);
    const TensorView beside =
        column_range(run.frames, spec_.carried.stream_column(0, hidden_), streams_width());
    embed(run, embedded);
    multiply(context, made_, embedded, made);
    normalise_parts(context, keys, key_norm_.data(), spec_.norm_eps, streams, keys);
    normalise_parts(context, beside, query_norm_.data(), spec_.norm_eps, streams, gated);
    gate_values(context, keys, values, gated);
    normalise_parts(context, gated, conv_norm_.data(), spec_.norm_eps, streams, keys);
    causal_conv(context, {.x = keys,
                          .before = {},
                          .behind = {},
                          .weight = taps_.data(),
                          .bias = nullptr,
                          .taps = spread_taps_count(),
                          .activation = ConvActivation::kSilu,
                          .states = run.states,
                          .out = keys});
    residual_add(context, {.x = gated, .residual = keys});
    residual_add(context, {.x = beside, .residual = gated});
    // x is the first of the streams.
    row_gather(
        context,
        {.x = column_range(gated, 0, hidden_), .rows = {}, .out = run.branch.end_with_rows()});
  }

 private:
  enum Area : size_t { kEmbedded, kMade, kGated };  // of scratch memory

  int64_t streams_width() const { return spec_.carried.streams * hidden_; }
  int32_t context_tokens() const { return spec_.size - 1; }
  int32_t spread_taps_count() const { return (spec_.taps - 1) * spec_.size + 1; }
  int64_t conv_bytes() const {
    return aligned_state_bytes(causal_conv_state_bytes(spread_taps_count(), streams_width()));
  }

  // Rows of no sequence are zeros.
  void embed(const MixerRun& run, const TensorView& embedded) const {
    for (int64_t t = 0; t < embedded.rows(); ++t) {
      std::fill_n(f32_row(embedded, t), embedded.columns(), 0.0f);
    }
    const StateView states = run.states.behind(conv_bytes());
    for (const StateSequence& sequence : states.sequences) {
      const std::vector<TokenId> tokens = tokens_of(run, states, sequence);
      look_up(run.branch.context(), ngram_rows(spec_, tokens),
              embedded.row_range(sequence.row_first, sequence.row_count));
      for (const StateCopy& save : sequence.saves) {
        keep_tokens(tokens, save.tokens - sequence.position, states.at(save.entry));
      }
      keep_tokens(tokens, sequence.row_count, states.at(sequence.entry));
    }
  }

  // Those before the first row, then those of the rows.
  std::vector<TokenId> tokens_of(const MixerRun& run, const StateView& states,
                                 const StateSequence& sequence) const {
    std::vector<TokenId> tokens(static_cast<size_t>(context_tokens()), spec_.end);
    const float* const kept = states.at(sequence.entry);
    for (size_t i = 0; sequence.position > 0 && i < tokens.size(); ++i) {
      tokens[i] = std::bit_cast<int32_t>(kept[i]);
    }
    const int64_t column = spec_.carried.token_column(hidden_);
    for (int32_t r = 0; r < sequence.row_count; ++r) {
      const float* const row = f32_row(run.frames, int64_t{sequence.row_first} + r);
      tokens.push_back(std::bit_cast<int32_t>(row[column]));
    }
    return tokens;
  }

  // The last of them behind so many rows.
  void keep_tokens(const std::vector<TokenId>& tokens, int32_t rows, float* to) const {
    for (int32_t i = 0; i < context_tokens(); ++i) {
      to[i] = std::bit_cast<float>(tokens[static_cast<size_t>(rows + i)]);
    }
  }

  void look_up(OpContext& context, const std::vector<int64_t>& rows, const TensorView& to) const {
    const auto hashes = std::ssize(spec_.hash_rows);
    const int64_t width = spec_.width / hashes;
    // Below 16 rows (some 10 us) a fork-join costs more than it saves.
    context.device.pool().parallel_for(to.rows(), 16, [&](int64_t first, int64_t last) {
      for (int64_t i = first * hashes; i < last * hashes; ++i) {
        const int64_t row = rows[static_cast<size_t>(i)];
        dequantise_row(table_[static_cast<size_t>(row / part_rows_)], row % part_rows_,
                       f32_row(to, i / hashes) + i % hashes * width);
      }
    });
  }

  // gated_j := sigmoid(s(keys_j' gated_j / sqrt(D))) values
  void gate_values(OpContext& context, const TensorView& keys, const TensorView& values,
                   const TensorView& gated) const {
    context.device.pool().parallel_rows(gated.rows(), 8, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        for (int64_t j = 0; j < spec_.carried.streams; ++j) {
          gate_row(f32_row(keys, t) + j * hidden_, f32_row(values, t),
                   f32_row(gated, t) + j * hidden_);
        }
      }
    });
  }
  void gate_row(const float* key, const float* value, float* gated) const {
    double product = 0;
    for (int64_t d = 0; d < hidden_; ++d) product += double{key[d]} * gated[d];
    const double score = product / std::sqrt(static_cast<double>(hidden_));
    const double root = std::sqrt(std::max(std::abs(score), kLeastScore));
    const double signed_root = score == 0 ? 0.0 : std::copysign(root, score);
    const auto gate = static_cast<float>(1 / (1 + std::exp(-signed_root)));
    for (int64_t d = 0; d < hidden_; ++d) gated[d] = gate * value[d];
  }

  const NgramSpec spec_;
  const int64_t hidden_, part_rows_;
  std::vector<ConstTensorView> table_;              // the parts, of the file's own rows
  LinearLayer made_;                                // [N D + D, E]: keys of each stream, values
  DeviceVector key_norm_, query_norm_, conv_norm_;  // [N D]
  DeviceVector taps_;                               // [taps with those between, N D]
};

}  // namespace

std::vector<int64_t> ngram_rows(const NgramSpec& spec, std::span<const TokenId> tokens) {
  std::vector<int64_t> rows;
  const auto size = static_cast<size_t>(spec.size);
  const auto hashes = static_cast<size_t>(spec.hashes_of_length());
  for (size_t t = size - 1; t < tokens.size(); ++t) {
    uint64_t mixed = static_cast<uint64_t>(tokens[t]) * spec.multipliers[0];
    int64_t before = 0;  // rows of the hashes before
    bool ended = false;
    for (size_t n = 1; n < size; ++n) {
      ended = ended || tokens[t - n] == spec.end;
      const TokenId token = ended ? spec.end : tokens[t - n];
      mixed ^= static_cast<uint64_t>(token) * spec.multipliers[n];
      for (size_t h = (n - 1) * hashes; h < n * hashes; ++h) {
        const auto count = static_cast<uint64_t>(spec.hash_rows[h]);
        rows.push_back(before + static_cast<int64_t>(mixed % count));
        before += spec.hash_rows[h];
      }
    }
  }
  return rows;
}

std::unique_ptr<Mixer> make_part(const NgramSpec& spec, int64_t hidden) {
  return std::make_unique<NgramMixer>(spec, hidden);
}

}  // namespace headrace
