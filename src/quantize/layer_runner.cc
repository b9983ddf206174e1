#include "quantize/layer_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace {
namespace {

constexpr int64_t kRowsOfPass = 2048;  // weights are unpacked once for so many
constexpr int32_t kBlockTokens = 16;

}  // namespace

class LayerRunner::Tap final : public ProductTap {
 public:
  explicit Tap(LayerInputs& inputs) : inputs_(inputs) {}
  void multiplied(int32_t site, const ConstTensorView& x) override { inputs_.add(site, x); }

 private:
  LayerInputs& inputs_;
};

LayerRunner::LayerRunner(Device& device, const ModelConfig& config,
                         const Architecture& architecture, std::span<const TokenId> tokens,
                         int32_t length)
    : device_(device),
      config_(config),
      architecture_(architecture),
      tokens_(tokens.begin(), tokens.end()),
      length_(length),
      stream_(device.create_stream()) {
  CHECK(length > 0 && !tokens.empty() && std::ssize(tokens) % length == 0);
}

// Whole sequences.
int64_t LayerRunner::rows_at_once() const {
  return std::min(std::max<int64_t>(kRowsOfPass / length_, 1) * length_, row_count());
}

Result<std::unique_ptr<Model>> LayerRunner::load(LayerRange layers, const WeightSource& weights) {
  ModelLoadOptions options;
  options.with_head = false;
  options.adapter_rank_max = 1;  // its sites are what a tap sees
  options.layers = layers;
  return architecture_.load(config_, weights, device_, options);
}

Status LayerRunner::embed(const WeightSource& weights) {
  HR_ASSIGN_OR_RETURN(const auto model, load({0, 0}, weights));
  hidden_ = Matrix(row_count(), model->spec().hidden_size);
  OpContext context{device_, *stream_, workspace_, mesh_};
  std::vector<int32_t> positions;  // of families that learn them
  for (int64_t row = 0; row < row_count(); ++row) {
    positions.push_back(static_cast<int32_t>(row % length_));
  }
  model->embed(context, {.tokens = tokens_, .positions = positions},
               {reinterpret_cast<std::byte*>(hidden_.row(0)), DType::kF32,
                Shape{hidden_.rows(), hidden_.columns()}});
  return ok_status();
}

Status LayerRunner::prepare(const Model& model, int32_t layer) {
  const int64_t rows = rows_at_once();
  const int64_t workspace =
      model.workspace_bytes(static_cast<int32_t>(rows), 0, length_, device_.pool().thread_count()) +
      rows * model.spec().hidden_size * int64_t{sizeof(float)} + 4096;
  if (workspace_.size() < workspace) {
    workspace_ = Workspace();
    HR_ASSIGN_OR_RETURN(Buffer buffer, device_.allocate(workspace));
    workspace_ = Workspace(std::move(buffer));
  }
  const KvLayerView kv = kv_view(model.spec().kv[static_cast<size_t>(layer)], {KvFormat::kF16},
                                 KeyLayout::kTransposed, kBlockTokens);
  const int64_t blocks = (length_ + kBlockTokens - 1) / kBlockTokens;
  const int64_t bytes = std::max<int64_t>(layer_part_bytes(kv) * blocks * (rows / length_), 1);
  if (pages_.size() < bytes) {
    pages_ = Buffer();
    HR_ASSIGN_OR_RETURN(pages_, device_.allocate(bytes));
    // Attention reads whole blocks: what lies behind a sequence's end must be numbers.
    std::memset(pages_.data(), 0, static_cast<size_t>(pages_.size()));
  }
  table_.resize(static_cast<size_t>(blocks * (rows / length_)));
  for (size_t b = 0; b < table_.size(); ++b) table_[b] = static_cast<int32_t>(b);
  return ok_status();
}

void LayerRunner::run_some(const Model& model, int32_t layer, int64_t first,
                           const TensorView& hidden, ProductTap* tap) {
  const int64_t rows = hidden.rows();
  const int64_t blocks = (length_ + kBlockTokens - 1) / kBlockTokens;
  std::vector<int32_t> positions(static_cast<size_t>(rows));
  std::vector<int64_t> slots(positions.size());
  std::vector<AttentionSequence> sequences;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t position = r % length_, sequence = r / length_;
    positions[static_cast<size_t>(r)] = static_cast<int32_t>(position);
    slots[static_cast<size_t>(r)] = sequence * blocks * kBlockTokens + position;
    if (position > 0) continue;
    sequences.push_back({.row_first = static_cast<int32_t>(r),
                         .row_count = length_,
                         .kv_length = length_,
                         .block_table = table_.data() + sequence * blocks});
  }
  const ForwardBatch::Group group{.slots = slots, .sequences = sequences};
  const std::vector<int32_t> layer_group(model.spec().kv.size(), 0);
  std::vector<KvLayerView> kv(model.spec().kv.size());
  KvLayerView& own = kv[static_cast<size_t>(layer)];
  own = kv_view(model.spec().kv[static_cast<size_t>(layer)], {KvFormat::kF16},
                KeyLayout::kTransposed, kBlockTokens);
  own.block_stride = layer_part_bytes(own);
  own.base = pages_.data();
  const ForwardBatch batch{
      .tokens = TokenSpan(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)),
      .positions = positions,
      .groups = {&group, 1},
      .layer_group = layer_group,
      .products = tap};
  OpContext context{device_, *stream_, workspace_, mesh_};
  model.layers(context, batch, {layer, layer + 1}, kv, hidden, {});
}

Status LayerRunner::observe(int32_t layer, const WeightSource& weights, LayerInputs& inputs) {
  HR_ASSIGN_OR_RETURN(const auto model, load({layer, layer + 1}, weights));
  HR_RETURN_IF_ERROR(prepare(*model, layer));
  HR_RETURN_IF_ERROR(inputs.begin(model->adapter_sites()));
  Tap tap(inputs);
  for (int64_t first = 0; first < row_count(); first += rows_at_once()) {
    const int64_t rows = std::min(rows_at_once(), row_count() - first);
    Workspace::Mark mark(workspace_);
    const TensorView copy = workspace_.take_tensor(DType::kF32, Shape{rows, hidden_.columns()});
    std::copy(hidden_.row(first), hidden_.row(first) + rows * hidden_.columns(), f32_row(copy, 0));
    run_some(*model, layer, first, copy, &tap);
  }
  return ok_status();
}

Status LayerRunner::advance(int32_t layer, const WeightSource& weights) {
  HR_ASSIGN_OR_RETURN(const auto model, load({layer, layer + 1}, weights));
  HR_RETURN_IF_ERROR(prepare(*model, layer));
  for (int64_t first = 0; first < row_count(); first += rows_at_once()) {
    const int64_t rows = std::min(rows_at_once(), row_count() - first);
    run_some(*model, layer, first,
             {reinterpret_cast<std::byte*>(hidden_.row(first)), DType::kF32,
              Shape{rows, hidden_.columns()}},
             nullptr);
  }
  return ok_status();
}

}  // namespace headrace
