#include "models/parts/latent_attention_mixer.h"

#include <algorithm>

#include <fmt/format.h>

#include "models/row_views.h"
#include "ops/attention/latent_kv.h"
#include "ops/linear/linear.h"
#include "ops/rows/rms_norm.h"

namespace headrace {
namespace {

using RowOrder = std::vector<int32_t>;

// `heads` times `plain` rows as they are, then `rotated` of which (half, pair) takes the place of
// (pair, half).
RowOrder order_of_heads(int32_t heads, int32_t plain, int32_t rotated) {
  RowOrder order;
  const int32_t half = rotated / 2;
  for (int32_t head = 0; head < heads; ++head) {
    const int32_t first = head * (plain + rotated);
    for (int32_t r = 0; r < plain; ++r) order.push_back(first + r);
    for (int32_t r = 0; r < rotated; ++r) {
      order.push_back(first + plain + 2 * (r % half) + r / half);
    }
  }
  return order;
}

class LatentAttentionMixer final : public Mixer {
 public:
  LatentAttentionMixer(const LatentAttentionSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden) {}

  Status load(LayerTensors& tensors) override {
    HR_ASSIGN_OR_RETURN(down_, tensors.matrix(down_stack()));
    if (has_query_latent()) {
      HR_ASSIGN_OR_RETURN(query_norm_, tensors.vector("attn_q_a_norm.weight", spec_.query_rank));
      HR_ASSIGN_OR_RETURN(query_up_,
                          tensors.matrix({.rows = {{"attn_q_b", query_width(), query_order()}},
                                          .columns = spec_.query_rank}));
    }
    HR_ASSIGN_OR_RETURN(norm_, tensors.vector("attn_kv_a_norm.weight", spec_.rank));
    HR_RETURN_IF_ERROR(spec_.joined ? load_joined(tensors) : load_apart(tensors));
    HR_ASSIGN_OR_RETURN(
        out_, tensors.matrix({.rows = {{"attn_output", hidden_}}, .columns = value_width()}));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&down_.weight};
    if (has_query_latent()) all.push_back(&query_up_.weight);
    for (LinearLayer& key : keys_) all.push_back(&key.weight);
    for (LinearLayer& value : values_) all.push_back(&value.weight);
    all.push_back(&out_.weight);
    return all;
  }

  LayerKv kept() const override {
    return {.kv_heads = 1, .k_dim = spec_.kept_dim(), .v_dim = spec_.rank, .v_aliases_k = true};
  }
  int32_t query_heads() const override { return spec_.heads; }
  std::vector<int64_t> scratch_columns(bool) const override {
    return {down_width(), absorbed_width(), latent_width(), value_width(),
            has_query_latent() ? query_width() : 1};
  }

  int64_t op_workspace_bytes(const PartLoad& load) const override {
    const auto of = [&](const LinearLayer& layer) {
      return linear_workspace_bytes(load.rows, layer.weight);
    };
    int64_t bytes =
        std::max({attention_workspace_bytes(load.thread_count, spec_.rank, load.kv_length_max),
                  of(down_), of(keys_.front()), of(values_.front()), of(out_)});
    if (has_query_latent()) bytes = std::max(bytes, of(query_up_));
    return bytes;
  }

  Status check_device(const DeviceTraits& device, DType /*activations*/) const override {
    constexpr int32_t kKeptMax = 640;
    if (device.kind == DeviceKind::kCpu || spec_.kept_dim() <= kKeptMax) return ok_status();
    return unsupported(fmt::format(
        "latents of {} are larger than kernels on a GPU take, which is {}: use --device "
        "cpu",
        spec_.kept_dim(), kKeptMax));
  }

  void run(const MixerRun& run) const override {
    const int64_t rows = run.branch.rows();
    OpContext& context = run.branch.context();
    const TensorView down = run.scratch.rows(kDown, rows, down_width());
    const TensorView absorbed = run.scratch.rows(kAbsorbed, rows, absorbed_width());
    const TensorView latents = run.scratch.rows(kLatents, rows, latent_width());
    const TensorView values = run.scratch.rows(kValues, rows, value_width());
    run.branch.multiply_input(down_, down);
    const TensorView q = queries(run, down);
    for (int32_t h = 0; h < spec_.heads; ++h) {
      multiply(context, keys_[static_cast<size_t>(h)],
               column_range(q, int64_t{h} * spec_.query_dim(), spec_.plain_dim),
               column_range(absorbed, int64_t{h} * spec_.kept_dim(), spec_.rank));
    }
    const RopeAngles& angles = run.angles[static_cast<size_t>(spec_.rope)];
    latent_kv(context, {.kv = column_range(down, down_width() - spec_.kept_dim(), spec_.kept_dim()),
                        .q = q,
                        .cos = angles.cos,
                        .sin = angles.sin,
                        .norm = norm_.data(),
                        .norm_eps = spec_.norm_eps,
                        .heads = spec_.heads,
                        .cache = run.kv,
                        .slots = run.group.slots,
                        .queries = absorbed});
    attention(context, {.q = absorbed,
                        .kv = run.kv,
                        .sequences = run.group.sequences,
                        .table_offset = run.group.table_offset,
                        .scale = spec_.scale,
                        .f32_products = down_.weight.compute() != LinearCompute::kFast,
                        .plan = run.group.plan,
                        .out = latents});
    for (int32_t h = 0; h < spec_.heads; ++h) {
      multiply(context, values_[static_cast<size_t>(h)],
               column_range(latents, int64_t{h} * spec_.rank, spec_.rank),
               column_range(values, int64_t{h} * spec_.value_dim, spec_.value_dim));
    }
    run.branch.end_with(out_, values);
  }

 private:
  enum Area : size_t { kDown, kAbsorbed, kLatents, kValues, kQueries };  // of scratch memory

  bool has_query_latent() const { return spec_.query_rank > 0; }
  int64_t query_width() const { return int64_t{spec_.heads} * spec_.query_dim(); }
  int64_t absorbed_width() const { return int64_t{spec_.heads} * spec_.kept_dim(); }
  int64_t latent_width() const { return int64_t{spec_.heads} * spec_.rank; }
  int64_t value_width() const { return int64_t{spec_.heads} * spec_.value_dim; }
  // Of queries or their latent, then of what is kept.
  int64_t down_width() const {
    return (has_query_latent() ? spec_.query_rank : query_width()) + spec_.kept_dim();
  }
  RowOrder query_order() const {
    if (!spec_.rows_interleaved) return {};
    return order_of_heads(spec_.heads, spec_.plain_dim, spec_.rope_dim);
  }
  MatrixStack down_stack() const {
    RowOrder kept;
    if (spec_.rows_interleaved) kept = order_of_heads(1, spec_.rank, spec_.rope_dim);
    MatrixStack stack{.columns = hidden_};
    if (has_query_latent()) {
      stack.rows = {{"attn_q_a", spec_.query_rank}};
    } else {
      stack.rows = {{"attn_q", query_width(), query_order()}};
    }
    stack.rows.push_back({"attn_kv_a_mqa", spec_.kept_dim(), std::move(kept)});
    return stack;
  }

  // K_h' of each head is made of attn_kv_b, V_h are rows of it.
  Status load_joined(LayerTensors& tensors) {
    const int64_t per_head = int64_t{spec_.plain_dim} + spec_.value_dim;
    const int64_t rows = spec_.heads * per_head;
    HR_ASSIGN_OR_RETURN(const std::vector<float> all,
                        tensors.values("attn_kv_b.weight", Shape{rows, spec_.rank}));
    std::vector<float> turned(static_cast<size_t>(spec_.plain_dim) *
                              static_cast<size_t>(spec_.rank));
    for (int64_t h = 0; h < spec_.heads; ++h) {
      const float* const key = all.data() + h * per_head * spec_.rank;  // [plain_dim, rank]
      for (int64_t c = 0; c < spec_.rank; ++c) {
        for (int64_t d = 0; d < spec_.plain_dim; ++d) {
          turned[static_cast<size_t>(c * spec_.plain_dim + d)] = key[d * spec_.rank + c];
        }
      }
      HR_ASSIGN_OR_RETURN(LinearLayer absorbs,
                          tensors.made(Shape{spec_.rank, spec_.plain_dim}, turned));
      keys_.push_back(std::move(absorbs));
      const MatrixStack::Rows value{.name = "attn_kv_b",
                                    .count = spec_.value_dim,
                                    .first = h * per_head + spec_.plain_dim,
                                    .of = rows};
      HR_ASSIGN_OR_RETURN(LinearLayer of_head,
                          tensors.matrix({.rows = {value}, .columns = spec_.rank}));
      values_.push_back(std::move(of_head));
    }
    return ok_status();
  }

  Status load_apart(LayerTensors& tensors) {
    const auto load_head = [&](const std::string& name, int64_t rows, int64_t columns, int32_t h,
                               std::vector<LinearLayer>& to) -> Status {
      const MatrixStack::Rows matrix{
          .name = name, .count = rows, .experts = spec_.heads, .expert = h};
      HR_ASSIGN_OR_RETURN(LinearLayer of_head,
                          tensors.matrix({.rows = {matrix}, .columns = columns}));
      to.push_back(std::move(of_head));
      return ok_status();
    };
    for (int32_t h = 0; h < spec_.heads; ++h) {
      HR_RETURN_IF_ERROR(load_head("attn_k_b", spec_.rank, spec_.plain_dim, h, keys_));
      HR_RETURN_IF_ERROR(load_head("attn_v_b", spec_.value_dim, spec_.rank, h, values_));
    }
    return ok_status();
  }

  TensorView queries(const MixerRun& run, const TensorView& down) const {
    if (!has_query_latent()) return column_range(down, 0, query_width());
    OpContext& context = run.branch.context();
    const TensorView latent = column_range(down, 0, spec_.query_rank);
    rms_norm(context, {.x = latent,
                       .residual = {},
                       .weight = query_norm_.data(),
                       .eps = spec_.norm_eps,
                       .out = latent});
    const TensorView q = run.scratch.rows(kQueries, run.branch.rows(), query_width());
    multiply(context, query_up_, latent, q);
    return q;
  }

  const LatentAttentionSpec spec_;
  const int64_t hidden_;
  LinearLayer down_;                 // [query_rank or H query_dim, and kept_dim; D]
  DeviceVector query_norm_;          // [query_rank]
  LinearLayer query_up_;             // [H query_dim, query_rank]
  DeviceVector norm_;                // [rank]
  std::vector<LinearLayer> keys_;    // [H] K_h', [rank, plain_dim]
  std::vector<LinearLayer> values_;  // [H] V_h, [value_dim, rank]
  LinearLayer out_;                  // [D, H value_dim]
};

}  // namespace

std::unique_ptr<Mixer> make_part(const LatentAttentionSpec& spec, int64_t hidden) {
  return std::make_unique<LatentAttentionMixer>(spec, hidden);
}

}  // namespace headrace
