#include "models/decoder.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "models/decoder_scratch.h"
#include "models/decoder_weights.h"
#include "models/device_limits.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/embedding.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/rope_angles.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/soft_cap.h"
#include "ops/sampling/spread_logits.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

// One run of layers over a batch. T = its tokens.
class DecoderPass {
 public:
  DecoderPass(OpContext& context, const DecoderSpec& spec, const DecoderWidths& widths,
              std::span<const int64_t> state_offsets, const ForwardBatch& batch,
              const TensorView& hidden)
      : context_(context),
        frame_columns_(widths.frames),
        state_offsets_(state_offsets),
        batch_(batch),
        memory_(Memory::take(context, spec, widths, hidden)),
        held_(memory_.network_input),
        stream_(context, {hidden, memory_.normed, memory_.branch}, spec.residual_scale,
                batch.adapters, batch.products) {}

  // Once, before the layers.
  void rotate_positions(const std::vector<RopeWeights>& ropes) {
    for (size_t i = 0; i < ropes.size(); ++i) fill_angles(ropes[i], memory_.angles[i]);
  }

  // Once, before the first layer; and behind the last.
  void begin_carried(const CarriedRows& carried) {
    carried.begin(context_, batch_.tokens, stream_.hidden(), memory_.carried);
  }
  void carry_embeddings() {
    row_gather(context_, {.x = stream_.hidden(), .rows = {}, .out = behind_frames()});
  }
  void end_carried(const CarriedRows& carried) {
    carried.end(context_, stream_.hidden(), carried_rows());
  }

  // What a layer attends, and what it has the use of beside that; null: nothing.
  struct Pages {
    const KvLayerView& kv;
    const KvLayerView* beside;
  };

  // `mixer_input`: what its mixer reads in place of x; no data: x.
  void run_layer(int32_t index, const DecoderLayer& layer, const Pages& pages,
                 const ConstTensorView& mixer_input = {}) {
    if (layer.frame != nullptr) layer.frame->before(frame_run(layer));
    if (is_parallel(layer.form)) hold_network_input(layer, nullptr);
    mix(index, layer, pages, nullptr, mixer_input);
    if (layer.form == LayerForm::kHolding) hold_network_input(layer, nullptr);
    if (layer.frame != nullptr) layer.frame->between(frame_run(layer));
    feed_forward(index, layer);
    if (layer.frame != nullptr) layer.frame->after(frame_run(layer));
  }

  // The last: what it keeps is of all rows, the rest of those that are read afterwards. They are
  // the first of `hidden` then.
  void run_layer_of_kept(int32_t index, const DecoderLayer& layer, const Pages& pages,
                         const std::optional<CarriedRows>& carried) {
    const std::span<const int32_t> rows = batch_.kept->rows;
    const TensorView hidden = stream_.hidden();
    if (layer.frame != nullptr) layer.frame->before(frame_run(layer));
    if (is_parallel(layer.form)) hold_network_input(layer, &rows);
    mix(index, layer, pages, layer.mixer_convolution ? nullptr : batch_.kept);
    if (rows.empty() && !layer.network_convolution) return;
    const bool mixer_has_kept_them = stream_.hidden().rows() < hidden.rows();
    if (!mixer_has_kept_them && !layer.network_convolution) keep_rows(rows);
    if (layer.form == LayerForm::kShortcut) keep_held(rows, hidden);
    if (carried) carried->keep(context_, rows, memory_.carried);
    if (layer.frame != nullptr) layer.frame->between(frame_run(layer));
    feed_forward(index, layer);
    if (layer.network_convolution) {  // whose state is of all rows
      if (rows.empty()) return;
      keep_rows(rows);
    }
    if (layer.frame != nullptr) layer.frame->after(frame_run(layer));
    stream_.settle();
    if (carried) end_carried(*carried);
    const TensorView& kept = stream_.hidden();
    context_.stream.copy(hidden.data, kept.data, kept.rows() * kept.row_stride);
  }

  // Brings `hidden` up to date.
  void settle() { stream_.settle(); }

 private:
  struct Memory {
    TensorView normed, branch;             // [T, D]; one where scratch is shared
    TensorView network_input;              // [T, D] where networks read held rows
    TensorView carried;                    // [T, widest], or nothing
    std::vector<TensorView> mixer;         // [T, widest] of each area
    std::vector<TensorView> feed_forward;  // [T, widest] of each area; or all that it shares
    std::vector<RopeAngles> angles;        // [rope tables]

    static Memory take(OpContext& context, const DecoderSpec& spec, const DecoderWidths& widths,
                       const TensorView& hidden) {
      ArenaPlaces places;
      const DecoderScratch scratch = DecoderScratch::place(places, spec, widths, hidden.rows(),
                                                           hidden.dtype, context.device.traits());
      std::byte* const front = context.workspace.take(places.used());
      Memory memory{.normed = scratch.normed.in(front),
                    .branch = scratch.branch.in(front),
                    .network_input = scratch.network_input.in(front),
                    .carried = scratch.carried.in(front)};
      for (const TensorPart& area : scratch.mixer) memory.mixer.push_back(area.in(front));
      for (const TensorPart& area : scratch.feed_forward) {
        memory.feed_forward.push_back(area.in(front));
      }
      for (const DecoderScratch::Angles& angles : scratch.angles) {
        memory.angles.push_back({angles.cos.in(front), angles.sin.in(front)});
      }
      return memory;
    }
  };

  void fill_angles(const RopeWeights& rope, const RopeAngles& angles) {
    rope_angles(context_, {.positions = batch_.positions,
                           .inv_freq = {reinterpret_cast<const double*>(rope.inv_freq.data()),
                                        static_cast<size_t>(rope.count)},
                           .scale = rope.scale,
                           .cos = angles.cos,
                           .sin = angles.sin});
  }

  const ForwardBatch::Group& group_of(int32_t layer) const {
    return batch_.groups[static_cast<size_t>(batch_.layer_group[static_cast<size_t>(layer)])];
  }

  StateView states_of(int32_t layer) const {
    return batch_.states.behind(state_offsets_[static_cast<size_t>(layer)]);
  }

  // From here on these rows alone.
  void keep_rows(std::span<const int32_t> rows) {
    stream_.settle();
    stream_.keep_rows(rows);
  }

  // Up to date, for what works on rows themselves.
  FrameRun frame_run(const DecoderLayer& layer) {
    stream_.settle();
    return {.context = context_,
            .x = stream_.hidden(),
            .carried = carried_rows(),
            .mixer_norm = layer.mixer_norm};
  }

  // Of the rows that there are; nothing where nothing is carried.
  TensorView carried_rows() const {
    if (memory_.carried.columns() == 0) return {};
    return memory_.carried.row_range(0, stream_.hidden().rows());
  }

  // What mixers leave for later ones.
  TensorView behind_frames() const {
    if (frame_columns_ == 0) return memory_.carried;
    return column_range(memory_.carried, frame_columns_,
                        memory_.carried.columns() - frame_columns_);
  }

  PartScratch scratch_of(std::span<const TensorView> areas) const {
    return {areas, shares_scratch(context_.device.traits())};
  }

  PagesBeside beside(const DecoderLayer& layer, const Pages& pages) const {
    if (pages.beside == nullptr) return {};
    return {pages.beside, &group_of(layer.mixer->pages_beside())};
  }

  void mix(int32_t index, const DecoderLayer& layer, const Pages& pages,
           const ForwardBatch::KeptRows* kept, const ConstTensorView& input = {}) {
    if (!layer.has_mixer) return;
    ResidualBranch branch =
        input.data == nullptr
            ? ResidualBranch(stream_, layer.mixer_norm, layer.mixer_post_norm, layer.mixer_scale)
            : ResidualBranch(stream_, input, layer.mixer_post_norm, layer.mixer_scale);
    if (layer.mixer_convolution) branch.keep_apart();
    layer.mixer->run(
        {.branch = branch,
         .scratch = scratch_of(memory_.mixer),
         .angles = memory_.angles,
         .kv = pages.kv,
         .group = group_of(layer.mixer->keys_of() < 0 ? index : layer.mixer->keys_of()),
         .kept = kept,
         .states = states_of(index),
         .carried = behind_frames(),
         .frames = carried_rows(),
         .positions = batch_.positions,
         .beside = beside(layer, pages)});
    if (layer.mixer_convolution) {
      layer.mixer_convolution->run(
          context_, states_of(index).behind(layer.mixer_convolution_state()), branch.ended_rows());
    }
    if (kept == nullptr || !kept->rows.empty()) branch.finish();
  }

  std::vector<TensorView> feed_forward_areas(const DecoderLayer& layer, int64_t rows) const {
    if (!shares_scratch(context_.device.traits())) return memory_.feed_forward;
    const TensorView& shared = memory_.feed_forward.front();
    std::vector<TensorView> areas;
    std::byte* at = shared.data;
    for (const int64_t columns : layer.feed_forward->scratch_columns(/*in_place=*/true)) {
      areas.emplace_back(at, shared.dtype, Shape{rows, columns});
      at += rows * areas.back().row_stride;
    }
    return areas;
  }

  // What the network of a layer reads, of all rows or those that are kept; of a parallel layer x as
  // it is before the mixer adds to it.
  void hold_network_input(const DecoderLayer& layer, const std::span<const int32_t>* kept) {
    stream_.settle();
    const TensorView x = stream_.hidden();
    const TensorView held = held_.row_range(0, kept == nullptr ? x.rows() : std::ssize(*kept));
    if (kept != nullptr) row_gather(context_, {.x = x, .rows = *kept, .out = held});
    normalise(context_, layer.network_norm(), kept == nullptr ? x : held, {}, 1.0f, held);
  }

  // Of what is held the rows that are read on, behind the rows of `hidden` that they end in.
  void keep_held(std::span<const int32_t> rows, const TensorView& hidden) {
    const int64_t count = std::ssize(rows);
    const TensorView kept = hidden.row_range(hidden.rows() - count, count);
    row_gather(context_, {.x = held_, .rows = rows, .out = kept});
    held_ = kept;
  }

  ResidualBranch network_branch(const DecoderLayer& layer) {
    if (layer.form == LayerForm::kSequential) {
      return {stream_, layer.ffn_norm, layer.ffn_post_norm, layer.network_scale};
    }
    const ConstTensorView input = held_.row_range(0, stream_.hidden().rows());
    return {stream_, input, layer.ffn_post_norm, layer.network_scale};
  }

  // Runs of equal size: one row at the end would cost as much as many.
  void feed_forward(int32_t index, const DecoderLayer& layer) {
    if (!layer.has_network) return;
    ResidualBranch branch = network_branch(layer);
    if (layer.network_convolution) branch.keep_apart();
    const int64_t rows = branch.rows();
    const int64_t rows_max = std::max<int64_t>(
        feed_forward_rows(rows, *layer.feed_forward, context_.device.traits()), 1);
    const int64_t runs = (rows + rows_max - 1) / rows_max;
    const std::vector<TensorView> areas = feed_forward_areas(layer, rows_max);
    for (int64_t run = 0, first = 0; run < runs; ++run) {
      const int64_t count = (rows - first) / (runs - run);
      ResidualBranch part = branch.range(first, count);
      FeedForwardRun fed{.branch = part, .scratch = scratch_of(areas)};
      if (frame_columns_ > 0) fed.carried = carried_rows().row_range(first, count);
      layer.feed_forward->run(fed);
      first += count;
    }
    if (layer.network_convolution) {
      layer.network_convolution->run(context_,
                                     states_of(index).behind(layer.network_convolution_state()),
                                     branch.ended_rows());
    }
    branch.finish();
  }

  OpContext& context_;
  const int64_t frame_columns_;                   // of carried rows, the first that frames have
  const std::span<const int64_t> state_offsets_;  // [layers + 1]
  const ForwardBatch& batch_;
  const Memory memory_;
  TensorView held_;  // what networks read that do not read x: of memory_, or where it was kept
  ResidualStream stream_;
};

// The embedding's table where it is packed, or null.
const LinearWeight* packed_table(const DecoderWeights& weights) {
  if (weights.embedding.data != nullptr) return nullptr;
  return weights.embedding_matrix.n() > 0 ? &weights.embedding_matrix : &weights.output;
}

// What a model keeps of which these layers are loaded: the others keep it elsewhere, or nowhere.
ModelSpec spec_of_range(ModelSpec model, const std::optional<LayerRange>& loaded) {
  for (int32_t layer = 0; loaded && layer < model.layer_count; ++layer) {
    if (layer >= loaded->first && layer < loaded->last) continue;
    model.kv[static_cast<size_t>(layer)] = {};
    if (!model.state_bytes.empty()) model.state_bytes[static_cast<size_t>(layer)] = 0;
  }
  return model;
}

class Decoder final : public Model {
 public:
  Decoder(DecoderSpec spec, DecoderWeights weights, const DeviceTraits& device,
          DType activation_dtype, const ModelLoadOptions& options)
      : spec_(std::move(spec)),
        model_spec_(
            spec_of_range(headrace::model_spec(spec_.model, weights.layers), options.layers)),
        state_offsets_(state_offsets(model_spec_)),
        weights_(std::move(weights)),
        widths_(DecoderWidths::of(weights_, device)),
        device_(device),
        activation_dtype_(activation_dtype),
        adapter_sizes_{options.adapter_slots, options.adapter_rank_max},
        loaded_(options.layers.value_or(LayerRange{0, model_spec_.layer_count})) {}

  const ModelSpec& spec() const override { return model_spec_; }
  DType activation_dtype() const override { return activation_dtype_; }
  int64_t weight_bytes() const override;
  int64_t unpacked_bytes() const override;
  void pack_more(int64_t bytes_min) override;
  std::span<const MatrixStack> adapter_sites() const override { return weights_.adapter_sites; }
  int64_t workspace_bytes(int32_t tokens, int32_t logit_rows, int32_t kv_length_max,
                          int32_t thread_count) const override;

  void embed(OpContext& context, const ForwardBatch& batch, TensorView hidden) const override {
    if (spec_.features.use == FeatureUse::kNone) return look_up(context, batch, hidden);
    if (spec_.features.use == FeatureUse::kBeside) {
      return copy_rows(context, batch.features, hidden);
    }
    Workspace::Mark mark(context.workspace);
    const TensorView joined = joined_rows(context, hidden.rows());
    look_up(context, batch, left_of(joined));
    copy_rows(context, batch.features, right_of(joined));
    multiply(context, weights_.features.fc, joined, hidden);
  }

  void layers(OpContext& context, const ForwardBatch& batch, LayerRange range,
              std::span<const KvLayerView> kv, TensorView hidden, LayerTaps taps) const override {
    CHECK(widths_.carried == 0 || range.first == 0);  // what is carried begins in the first layer
    Workspace::Mark mark(context.workspace);
    DecoderPass pass(context, spec_, widths_, state_offsets_, batch, hidden);
    pass.rotate_positions(weights_.ropes);
    ConstTensorView first_input;
    if (spec_.features.use == FeatureUse::kBeside && range.first == 0) {
      first_input = beside_features(context, batch, hidden);
    }
    if (weights_.carried) pass.begin_carried(*weights_.carried);
    if (spec_.carries_embeddings) pass.carry_embeddings();
    for (int32_t i = range.first; i < range.last; ++i) {
      const DecoderLayer& layer = weights_.layers[static_cast<size_t>(i)];
      const int32_t beside = layer.mixer->pages_beside();
      const DecoderPass::Pages pages{kv[static_cast<size_t>(layer_of_keys(model_spec_, i))],
                                     beside < 0 ? nullptr : &kv[static_cast<size_t>(beside)]};
      const bool is_last = i + 1 == model_spec_.layer_count;
      if (batch.kept != nullptr && is_last) {
        pass.run_layer_of_kept(i, layer, pages, weights_.carried);
        return leave_at_taps(context.stream, taps, i,
                             hidden.row_range(0, std::ssize(batch.kept->rows)));
      }
      pass.run_layer(i, layer, pages, i == 0 ? first_input : ConstTensorView());
      if (weights_.carried && is_last) {
        pass.settle();
        pass.end_carried(*weights_.carried);
      }
      if (!has_tap(taps, i)) continue;
      pass.settle();
      leave_at_taps(context.stream, taps, i, hidden);
    }
    pass.settle();
  }

  void make_features(OpContext& context, ConstTensorView rows, TensorView features) const override {
    CHECK(spec_.features.use != FeatureUse::kNone);
    if (spec_.features.use == FeatureUse::kJoined) return copy_rows(context, rows, features);
    multiply(context, weights_.features.fc, rows, features);
  }

  void normalise_rows(OpContext& context, TensorView rows) const override {
    if (weights_.output_norm.kind != NormKind::kNone) {
      normalise(context, weights_.output_norm, rows, {}, spec_.residual_scale, rows);
    }
    if (spec_.logit_scale == 1.0f) return;
    if (device_.kind != DeviceKind::kCpu) {
      return residual_add(context,
                          {.x = rows, .residual = rows, .scale = 1 / spec_.logit_scale - 1});
    }
    for (int64_t r = 0; r < rows.rows(); ++r) {  // the norm's weights have it
      for (float& value : std::span(f32_row(rows, r), static_cast<size_t>(rows.columns()))) {
        value /= spec_.logit_scale;
      }
    }
  }

  void head(OpContext& context, TensorView rows, TensorView logits) const override {
    if (weights_.output_norm.kind != NormKind::kNone) {
      normalise(context, weights_.output_norm, rows, {}, spec_.residual_scale, rows);
    }
    const TensorView known = column_range(logits, 0, known_logits());
    const TensorView own = own_logits(context, known);
    linear(context,
           {.x = rows, .weight = &weights_.output, .bias = output_bias(context), .y = own});
    if (spec_.logit_soft_cap > 0) soft_cap(context, {.x = own, .cap = spec_.logit_soft_cap});
    if (own.columns() < known.columns()) join_logits(context, known);
    if (known.columns() < logits.columns()) forbid_others(context, logits);
  }

 private:
  void look_up(OpContext& context, const ForwardBatch& batch, const TensorView& rows) const {
    embedding(context, {.tokens = batch.tokens,
                        .table = weights_.embedding,
                        .out = rows,
                        .scale = spec_.embedding_scale,
                        .packed = packed_table(weights_),
                        .positions = batch.positions,
                        .position_table = position_table()});
    if (weights_.embedding_norm.kind == NormKind::kNone) return;
    normalise(context, weights_.embedding_norm, rows, {}, 1.0f, rows);
  }

  // ---- of a draft head ----

  TensorView joined_rows(OpContext& context, int64_t rows) const {
    ArenaPlaces places;
    const TensorPart part = place_joined(places, rows);
    return part.in(context.workspace.take(places.used()));
  }
  TensorPart place_joined(ArenaPlaces& places, int64_t rows) const {
    return places.take_tensor(activation_dtype_, Shape{rows, 2 * model_spec_.hidden_size});
  }
  TensorView left_of(const TensorView& joined) const {
    return column_range(joined, 0, model_spec_.hidden_size);
  }
  TensorView right_of(const TensorView& joined) const {
    return column_range(joined, model_spec_.hidden_size, model_spec_.hidden_size);
  }
  static void copy_rows(OpContext& context, const ConstTensorView& from, const TensorView& to) {
    row_gather(context, {.x = from, .rows = {}, .out = to});
  }

  // What the first mixer reads: [norm(embedding), hidden_norm(x)].
  ConstTensorView beside_features(OpContext& context, const ForwardBatch& batch,
                                  const TensorView& hidden) const {
    const TensorView joined = joined_rows(context, hidden.rows());
    look_up(context, batch, left_of(joined));
    normalise(context, weights_.layers.front().mixer_norm, left_of(joined), {}, 1.0f,
              left_of(joined));
    normalise(context, weights_.features.norm, hidden, {}, 1.0f, right_of(joined));
    if (spec_.features.norm_first) copy_rows(context, right_of(joined), hidden);
    return joined;
  }

  int64_t adapter_workspace_bytes(int64_t rows) const;
  // No data: positions are not learned.
  ConstTensorView position_table() const {
    return {reinterpret_cast<const std::byte*>(weights_.positions.data()), DType::kF32,
            Shape{spec_.positions.count, model_spec_.hidden_size}};
  }

  const float* output_bias(const OpContext& context) const {
    const float* const bias = weights_.output_bias.data();
    if (bias == nullptr || weights_.vocabulary.ranks() == 1) return bias;
    return bias + weights_.vocabulary.first(context.mesh.tensor->rank());
  }

  // Of tokens that the output matrix has rows of, those that are computed.
  int32_t known_logits() const { return std::min(spec_.outputs(), model_spec_.logit_count()); }
  void forbid_others(OpContext& context, const TensorView& logits) const {
    const int64_t known = known_logits();
    spread_logits(context, {.logits = column_range(logits, 0, 0),
                            .all = column_range(logits, known, logits.columns() - known)});
  }

  // The columns that this rank computes.
  TensorView own_logits(const OpContext& context, const TensorView& logits) const {
    if (weights_.vocabulary.ranks() == 1) return logits;
    const int32_t rank = context.mesh.tensor->rank();
    return column_range(logits, weights_.vocabulary.first(rank), weights_.vocabulary.count(rank));
  }

  // On GPUs every rank samples, so that none waits for another's tokens.
  void join_logits(const OpContext& context, const TensorView& logits) const {
    const std::span<const int64_t> starts = weights_.vocabulary.starts();
    Communicator& group = *context.mesh.tensor;
    if (device_.kind == DeviceKind::kCpu) return group.gather(context.stream, logits, starts);
    group.all_gather(context.stream, logits, starts);
  }

  const DecoderSpec spec_;
  const ModelSpec model_spec_;
  const std::vector<int64_t> state_offsets_;  // [layers + 1]
  DecoderWeights weights_;
  const DecoderWidths widths_;
  const DeviceTraits device_;
  const DType activation_dtype_;
  const LoraSlots::Sizes adapter_sizes_;
  const LayerRange loaded_;
};

int64_t Decoder::weight_bytes() const {
  int64_t bytes = weights_.embedding_matrix.packed_bytes() +
                  int64_t{spec_.positions.count} * model_spec_.hidden_size * int64_t{sizeof(float)};
  if (weights_.carried) bytes += weights_.carried->table_bytes();
  for_each_matrix(weights_, [&](const LinearWeight& weight) { bytes += weight.packed_bytes(); });
  return bytes;
}

int64_t Decoder::unpacked_bytes() const {
  int64_t bytes = 0;
  for_each_matrix(weights_, [&](const LinearWeight& weight) {
    if (!weight.is_packed()) bytes += weight.packed_bytes();
  });
  return bytes;
}

void Decoder::pack_more(int64_t bytes_min) {
  int64_t bytes = 0;
  for_each_matrix(weights_, [&](LinearWeight& weight) {
    if (weight.is_packed() || bytes >= bytes_min) return;
    bytes += weight.packed_bytes();
    weight.pack_now();
  });
}

int64_t Decoder::adapter_workspace_bytes(int64_t rows) const {
  if (device_.kind == DeviceKind::kCpu) {
    return lora_workspace_bytes(weights_.adapter_sites, rows, adapter_sizes_.rank_max);
  }
  return lora_slots_workspace_bytes(weights_.adapter_sites, rows, adapter_sizes_);
}

int64_t Decoder::workspace_bytes(int32_t tokens, int32_t logit_rows, int32_t kv_length_max,
                                 int32_t thread_count) const {
  const bool with_head = weights_.output.n() > 0;
  int64_t op_bytes = with_head ? linear_workspace_bytes(logit_rows, weights_.output) : 0;
  const PartLoad mixed{tokens, kv_length_max, thread_count};
  PartLoad fed = mixed;
  for (int32_t i = loaded_.first; i < loaded_.last; ++i) {
    const DecoderLayer& layer = weights_.layers[static_cast<size_t>(i)];
    fed.rows = feed_forward_rows(tokens, *layer.feed_forward, device_);
    op_bytes = std::max(
        {op_bytes,
         layer.mixer_norm.gate.workspace_bytes(mixed.rows) + layer.mixer->op_workspace_bytes(mixed),
         layer.ffn_norm.gate.workspace_bytes(fed.rows) +
             layer.feed_forward->op_workspace_bytes(fed),
         layer.frame == nullptr ? 0 : layer.frame->workspace_bytes(tokens)});
  }
  if (weights_.carried) {
    op_bytes = std::max(op_bytes, weights_.carried->workspace_bytes(tokens));
  }
  op_bytes = std::max(op_bytes, adapter_workspace_bytes(tokens));
  ArenaPlaces places;
  if (spec_.features.use != FeatureUse::kNone) {
    op_bytes = std::max(op_bytes, linear_workspace_bytes(tokens, weights_.features.fc.weight));
    place_joined(places, tokens);
  }
  DecoderScratch::place(places, spec_, widths_, tokens, activation_dtype_, device_);
  places.take<std::byte>(static_cast<size_t>(op_bytes));
  return places.bytes_for(scratch_parts_max(spec_));
}

DType activation_dtype(DeviceKind device, ComputeType compute) {
  if (device == DeviceKind::kCpu || compute == ComputeType::kFloat32) return DType::kF32;
  return compute == ComputeType::kFloat16 ? DType::kF16 : DType::kBF16;
}

}  // namespace

Result<std::unique_ptr<Model>> load_decoder(DecoderSpec spec, const WeightSource& source,
                                            Device& device, const ModelLoadOptions& options) {
  const DType activations = activation_dtype(device.kind(), options.compute);
  HR_RETURN_IF_ERROR(check_device_limits(spec, device.traits(), activations));
  CHECK(options.output_rows >= 0 && !(options.output_rows > 0 && options.shard.is_split()));
  if (options.output_rows < spec.outputs()) spec.model.output_rows = options.output_rows;
  const bool of_draft_head = spec.features.use != FeatureUse::kNone;
  if (of_draft_head && spec.output_vocab > 0 && spec.model.output_rows == 0) {
    spec.model.output_rows = spec.output_vocab;
  }
  HR_ASSIGN_OR_RETURN(DecoderWeights weights, load_decoder_weights(spec, source, device, options));
  return std::unique_ptr<Model>(std::make_unique<Decoder>(std::move(spec), std::move(weights),
                                                          device.traits(), activations, options));
}

}  // namespace headrace
