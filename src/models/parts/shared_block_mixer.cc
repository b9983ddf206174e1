#include "models/parts/shared_block_mixer.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "models/parts/low_rank_addition.h"
#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/row_gather.h"

namespace headrace {
namespace {

// What all uses of a block have in common.
struct SharedBlock {
  SharedBlock(const SharedBlockSpec& spec, int64_t hidden)
      : attention(make_part(spec.attention, hidden)) {
    for (NormWeights* const each : {&norm, &network_norm}) {
      each->kind = NormKind::kRms;
      each->eps = spec.norm_eps;
    }
  }

  Status load(LayerTensors& tensors, const SharedBlockSpec& spec, int64_t hidden) {
    HR_RETURN_IF_ERROR(tensors.read_norm("attn_norm", 2 * hidden, norm));
    HR_RETURN_IF_ERROR(attention->load(tensors));
    HR_RETURN_IF_ERROR(tensors.read_norm("ffn_norm", hidden, network_norm));
    HR_ASSIGN_OR_RETURN(gate_up, tensors.matrix({.rows = {{"ffn_up", 2 * int64_t{spec.width}}},
                                                 .columns = hidden,
                                                 .bias = spec.network_bias}));
    HR_ASSIGN_OR_RETURN(down, tensors.matrix({.rows = {{"ffn_down", hidden}},
                                              .columns = spec.width,
                                              .bias = spec.network_bias}));
    return ok_status();
  }

  NormWeights norm;          // [2 D]
  NormWeights network_norm;  // [D]
  std::unique_ptr<Mixer> attention;
  LinearLayer gate_up;  // [2 F, D]
  LinearLayer down;     // [D, F]
};

class SharedBlockMixer final : public Mixer {
 public:
  SharedBlockMixer(const SharedBlockSpec& spec, int64_t hidden)
      : spec_(spec),
        hidden_(hidden),
        block_(std::make_shared<SharedBlock>(spec, hidden)),
        mamba_(make_part(spec.mamba, hidden)) {
    norm_.kind = NormKind::kRms;
    norm_.eps = spec.norm_eps;
  }

  // Every rank has all of it.
  Status split(const ShardSpec& /*shard*/) override { return ok_status(); }

  Status load(LayerTensors& tensors) override {
    HR_RETURN_IF_ERROR(load_block(tensors));
    HR_ASSIGN_OR_RETURN(out_,
                        tensors.matrix({.rows = {{"shared_output", hidden_}}, .columns = hidden_}));
    HR_RETURN_IF_ERROR(tensors.read_norm("attn_norm", hidden_, norm_));
    return mamba_->load(tensors);
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all;
    if (has_block_) {
      all = block_->attention->matrices();
      all.insert(all.end(), {&block_->gate_up.weight, &block_->down.weight});
    }
    if (spec_.adds_to_attention) append(all, to_attention_.matrices());
    if (adds()) append(all, to_network_.matrices());
    all.push_back(&out_.weight);
    append(all, mamba_->matrices());
    return all;
  }
  LayerKv kept() const override { return block_->attention->kept(); }
  int64_t state_bytes() const override { return mamba_->state_bytes(); }
  int32_t query_heads() const override { return block_->attention->query_heads(); }
  int64_t carried_columns() const override { return hidden_; }

  std::vector<int64_t> scratch_columns(bool in_place) const override {
    std::vector<int64_t> columns = {std::max<int64_t>(2 * hidden_, spec_.rank), hidden_,
                                    std::max<int64_t>(2 * spec_.width, kParts * spec_.rank)};
    for (const Mixer* const part : {block_->attention.get(), mamba_.get()}) {
      const std::vector<int64_t> own = part->scratch_columns(in_place);
      columns.resize(std::max(columns.size(), own.size() + kAreas));
      for (size_t i = 0; i < own.size(); ++i) {
        columns[i + kAreas] = std::max(columns[i + kAreas], own[i]);
      }
    }
    return columns;
  }
  int64_t op_workspace_bytes(const PartLoad& load) const override {
    int64_t bytes =
        std::max(block_->attention->op_workspace_bytes(load), mamba_->op_workspace_bytes(load));
    const SharedBlock& block = *block_;
    for (const LinearLayer* const layer : {&block.gate_up, &block.down, &out_}) {
      bytes = std::max(bytes, linear_workspace_bytes(load.rows, layer->weight));
    }
    if (spec_.adds_to_attention) {
      bytes = std::max(bytes, to_attention_.op_workspace_bytes(load.rows));
    }
    return adds() ? std::max(bytes, to_network_.op_workspace_bytes(load.rows)) : bytes;
  }
  Status check_device(const DeviceTraits& device, DType activations) const override {
    HR_RETURN_IF_ERROR(block_->attention->check_device(device, activations));
    return mamba_->check_device(device, activations);
  }

  // Rows that nobody reads are left out behind it, not before.
  void run(const MixerRun& run) const override {
    OpContext& context = run.branch.context();
    const TensorView sum = run_block(run);
    residual_add(context, {.x = sum, .residual = run.branch.input()});
    normalise(context, norm_, sum, {}, 1.0f, sum);
    ResidualBranch rest = run.branch.instead(sum, 1.0f);
    mamba_->run({.branch = rest,
                 .scratch = run.scratch.behind(kAreas),
                 .angles = run.angles,
                 .kv = run.kv,
                 .group = run.group,
                 .kept = nullptr,
                 .states = run.states,
                 .positions = run.positions});
  }

 private:
  // Of scratch memory, before the parts' own: both rows, what parts make of them, gates.
  enum Area : size_t { kJoined, kMade, kGates, kAreas };
  static constexpr int64_t kParts = 3;  // queries, keys, values

  bool adds() const { return spec_.rank > 0; }
  static void append(std::vector<LinearWeight*>& all, const std::vector<LinearWeight*>& more) {
    all.insert(all.end(), more.begin(), more.end());
  }

  Status load_block(LayerTensors& tensors) {
    const LayerTensors::Shared shared = tensors.shared(spec_.block, "shared.");
    if (shared.made == nullptr) {
      HR_RETURN_IF_ERROR(block_->load(*shared.tensors, spec_, hidden_));
      shared.made = block_;
      has_block_ = true;
    } else {
      block_ = std::static_pointer_cast<SharedBlock>(shared.made);
    }
    const auto name = [&](const char* stem) { return fmt::format("{}_{}", stem, spec_.use); };
    if (spec_.adds_to_attention) {
      const AttentionSpec& attention = spec_.attention;
      const int64_t queries = int64_t{attention.heads} * attention.head_dim;
      const int64_t keys = int64_t{attention.kv_heads} * attention.head_dim;
      HR_RETURN_IF_ERROR(to_attention_.load(
          *shared.tensors,
          {{name("attn_q_add"), queries}, {name("attn_k_add"), keys}, {name("attn_v_add"), keys}},
          spec_.rank, 2 * hidden_));
    }
    if (!adds()) return ok_status();
    return to_network_.load(*shared.tensors, {{name("ffn_up_add"), 2 * int64_t{spec_.width}}},
                            spec_.rank, hidden_);
  }

  // t, [T, D].
  TensorView run_block(const MixerRun& run) const {
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows();
    const TensorView joined = run.scratch.rows(kJoined, rows, 2 * hidden_);
    const TensorView made = run.scratch.rows(kMade, rows, hidden_);
    row_gather(context,
               {.x = run.branch.input(), .rows = {}, .out = column_range(joined, 0, hidden_)});
    row_gather(context, {.x = column_range(run.carried, 0, hidden_),
                         .rows = {},
                         .out = column_range(joined, hidden_, hidden_)});
    normalise(context, block_->norm, joined, {}, 1.0f, joined);
    attend(run, joined, made);
    const TensorView gates = run.scratch.rows(kGates, rows, 2 * int64_t{spec_.width});
    multiply(context, block_->gate_up, made, gates);
    if (adds()) {
      to_network_.add(context, made, gates,
                      run.scratch.rows(kJoined, rows, to_network_.low_columns()));
    }
    const TensorView activated = column_range(gates, 0, spec_.width);
    gated_activation(context, {.gate_up = gates, .activation = spec_.activation, .out = activated});
    const TensorView branch = run.scratch.rows(kJoined, rows, hidden_);
    multiply(context, block_->down, activated, branch);
    multiply(context, out_, branch, made);
    return made;
  }

  // The network's norm stands behind the attention.
  void attend(const MixerRun& run, const TensorView& joined, const TensorView& made) const {
    OpContext& context = run.branch.context();
    ResidualStream stream(context, {.hidden = made, .normed = made, .branch = made}, 1.0f);
    ResidualBranch branch(stream, joined, block_->network_norm);
    const int64_t low = spec_.adds_to_attention ? to_attention_.low_columns() : 0;
    const InputAddition addition{.addition = &to_attention_,
                                 .low = run.scratch.rows(kGates, joined.rows(), low)};
    block_->attention->run({.branch = branch,
                            .scratch = run.scratch.behind(kAreas),
                            .angles = run.angles,
                            .kv = run.kv,
                            .group = run.group,
                            .kept = nullptr,
                            .positions = run.positions,
                            .addition = low > 0 ? &addition : nullptr});
    branch.finish();
  }

  const SharedBlockSpec spec_;
  const int64_t hidden_;
  std::shared_ptr<SharedBlock> block_;
  bool has_block_ = false;        // it is counted as this use's
  LowRankAddition to_attention_;  // of queries, keys, values
  LowRankAddition to_network_;    // of gates and ups
  LinearLayer out_;               // [D, D]
  NormWeights norm_;              // [D], of what Mamba-2 reads
  const std::unique_ptr<Mixer> mamba_;
};

}  // namespace

std::unique_ptr<Mixer> make_part(const SharedBlockSpec& spec, int64_t hidden) {
  return std::make_unique<SharedBlockMixer>(spec, hidden);
}

}  // namespace headrace
