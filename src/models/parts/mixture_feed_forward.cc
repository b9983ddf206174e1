#include "models/parts/mixture_feed_forward.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "models/kernel_sizes.h"
#include "models/parts/branch_output.h"
#include "models/parts/expert_bank.h"
#include "models/row_views.h"
#include "ops/linear/gated_linear.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/row_scatter_add.h"
#include "tensor/arena_places.h"

namespace headrace {
namespace {

// Rows that a network takes at a time: as many as share one unpacking of a panel of weights
// (ops/linear/cpu_plan.h).
constexpr int64_t kNetworkRows = 128;

// One network of a mixture; of a rank, some of its columns, or all of some networks.
struct Network {
  Network(int64_t columns, int64_t hidden) : widths(columns, 1, 1), down(columns, hidden) {}
  void split(const ShardSpec& shard) {
    const int64_t columns = widths.total();
    widths = inner_shares(columns, shard.ranks);
    down.split(shard, widths);
    if (shard.all_on_one) widths = Shares(columns, 1, 1);
  }

  Shares widths;        // of the ranks
  LinearLayer gate_up;  // [2F, D]; without gates [F, D]
  BranchOutput down;    // [D, F]
};

// What a run takes of the workspace beside its areas.
struct MixtureScratch {
  // Which rows go where.
  ArenaPart<int32_t> starts, rows;
  ArenaPart<float> weights;
  ArenaPart<float> input_weights;  // of rows that experts read, in place of these; or none
  ArenaPart<int32_t> of_tokens;    // [T used] experts that are looked up; or none
  // Rows of one network, at most kNetworkRows.
  TensorPart gathered;   // [chunk, D]
  TensorPart gate_up;    // [chunk, 2F]
  TensorPart activated;  // [chunk, F]; over gate_up unless ranks share it
  TensorPart out;        // [chunk, outputs]
  // Where ranks have whole experts and gather what these make of rows.
  TensorPart outputs;              // [T used, D]
  ArenaPart<int64_t> rank_starts;  // [ranks + 1] of the values in it

  static constexpr int64_t kPartsMax = 11;
};

void copy_rows(Stream& stream, const TensorView& to, const TensorView& from) {
  const int64_t bytes = *row_bytes(from.dtype, from.columns());
  if (to.row_stride == bytes && from.row_stride == bytes) {
    return stream.copy(to.data, from.data, from.rows() * bytes);
  }
  for (int64_t t = 0; t < from.rows(); ++t) stream.copy(to.row(t), from.row(t), bytes);
}

// Of a choice in which shared experts are behind no other.
Result<DeviceVector> bias_of_chosen(LayerTensors& tensors, const MixtureSpec& spec) {
  constexpr float kBeforeAll = 1e30f;
  const int64_t chosen = spec.router.experts - spec.scored_shared;
  HR_ASSIGN_OR_RETURN(std::vector<float> bias,
                      tensors.values(spec.choice_bias_name, Shape{chosen}));
  bias.resize(static_cast<size_t>(spec.router.experts), kBeforeAll);
  return tensors.made_vector(bias);
}

class MixtureFeedForward final : public FeedForward {
 public:
  MixtureFeedForward(const MixtureSpec& spec, int64_t hidden)
      : spec_(spec), hidden_(hidden), owners_(spec.computing(), 1, 1), sum_(hidden, hidden) {
    CHECK(spec.identities == 0 || !has_shared());
    CHECK(spec.scored_shared == 0 || (spec.choice_bias && spec.identities == 0 && !spec.fused));
    for (int32_t e = 0; e < spec.computing(); ++e) networks_.emplace_back(spec.width, hidden);
    if (has_shared()) networks_.emplace_back(spec.shared_width, hidden);
  }

  // Every rank routes all rows and has some columns of every network; or some of the experts, and
  // some columns of the shared one, which all rows take.
  Status split(const ShardSpec& shard) override {
    HR_RETURN_IF_ERROR(check_split(shard));
    if (shard.whole_experts) {
      owners_ = Shares(spec_.computing(), shard.ranks, 1);
      if (has_shared()) networks_.back().split(shard);
    } else {
      for (Network& network : networks_) network.split(shard);
    }
    sum_.split(shard, Shares(hidden_, shard.ranks, 1));
    shard_ = shard;
    return ok_status();
  }

  Status load(LayerTensors& tensors) override {
    HR_ASSIGN_OR_RETURN(router_, tensors.matrix(router_stack()));
    if (spec_.scored_shared > 0) {
      HR_ASSIGN_OR_RETURN(choice_bias_, bias_of_chosen(tensors, spec_));
    } else if (spec_.choice_bias) {
      const int64_t experts = spec_.router.experts;
      HR_ASSIGN_OR_RETURN(choice_bias_,
                          spec_.choice_bias_may_lack
                              ? tensors.vector_or_zeros(spec_.choice_bias_name, experts)
                              : tensors.vector(spec_.choice_bias_name, experts));
    }
    HR_RETURN_IF_ERROR(
        token_experts_.load(tensors, spec_.by_token, spec_.router.used, spec_.router.experts));
    if (spec_.scaled) {
      HR_ASSIGN_OR_RETURN(expert_scales_,
                          tensors.vector("ffn_down_exps.scale", spec_.router.experts));
    }
    if (tensors.on_gpu()) return load_bank(tensors);
    for (const int32_t n : own_networks()) HR_RETURN_IF_ERROR(load_network(tensors, n));
    return ok_status();
  }

  std::vector<LinearWeight*> matrices() override {
    std::vector<LinearWeight*> all = {&router_.weight};
    if (bank_) {
      for (LinearWeight* const matrix : bank_->matrices()) all.push_back(matrix);
      return all;
    }
    for (const int32_t n : own_networks()) {
      Network& network = networks_[static_cast<size_t>(n)];
      all.push_back(&network.gate_up.weight);
      for (LinearWeight* const down : network.down.matrices()) all.push_back(down);
    }
    return all;
  }

  std::vector<int64_t> scratch_columns(bool /*in_place*/) const override {
    if (bank_) return {};
    std::vector<int64_t> columns = {spec_.router.logits(), output_width()};
    if (part_count() > 1) columns.push_back(output_width());
    return columns;
  }

  int64_t op_workspace_bytes(const PartLoad& load) const override {
    if (bank_) return bank_->op_workspace_bytes(load.rows, router_);
    ArenaPlaces places;
    place(places, load.rows);
    const int64_t chunk = std::min(load.rows, kNetworkRows);
    int64_t op_bytes = std::max(linear_workspace_bytes(load.rows, router_.weight),
                                route_experts_workspace_bytes(load.rows, spec_.router));
    for (const int32_t n : own_networks()) {
      const Network& network = networks_[static_cast<size_t>(n)];
      op_bytes = std::max({op_bytes, linear_workspace_bytes(chunk, network.gate_up.weight),
                           network.down.op_workspace_bytes(chunk)});
    }
    return places.bytes_for(MixtureScratch::kPartsMax) + op_bytes;
  }

  // As many as give each expert the usual number, on average: its weights are read once for these.
  int64_t rows_of_run(int64_t usual) const override {
    constexpr int64_t kRowsMax = 2048;
    return std::clamp(usual * spec_.router.experts / spec_.router.used, usual,
                      std::max(usual, kRowsMax));
  }

  Status check_device(const DeviceTraits& device, DType /*activations*/) const override {
    if (device.kind != DeviceKind::kCuda) return ok_status();
    HR_RETURN_IF_ERROR(check_gates("experts", device, spec_.limits, spec_.swish));
    HR_RETURN_IF_ERROR(check_gates("experts", device, spec_.shared_limits, spec_.swish));
    if (spec_.by_token.vocab > 0 || spec_.router.scores == RouterScores::kSqrtSoftplus) {
      return unsupported(
          "routing by tokens, or by roots of scores, has no kernels on a GPU yet: use --device "
          "cpu");
    }
    if (routing_fits(device, spec_.router.experts)) return ok_status();
    const auto fits = [&](int64_t experts) { return routing_fits(device, experts); };
    return unsupported(fmt::format(
        "a mixture of {} experts is larger than routing on a GPU takes, which is {}: use --device "
        "cpu",
        spec_.router.experts, largest_that_fits(spec_.router.experts, fits)));
  }

  void run(const FeedForwardRun& run) const override {
    if (bank_) return run_bank(run);
    OpContext& context = run.branch.context();
    const int64_t rows = run.branch.rows();
    Workspace::Mark mark(context.workspace);
    ArenaPlaces places;
    const MixtureScratch scratch = place(places, rows);
    std::byte* const front = context.workspace.take(places.used());

    const ConstTensorView x = run.branch.input();
    const TensorView logits = run.scratch.rows(kLogits, rows, spec_.router.logits());
    multiply(context, router_, run.router_input.data == nullptr ? x : run.router_input, logits);
    const ExpertRows routed = routed_rows(scratch, front);
    route_experts(context,
                  {.rule = spec_.router,
                   .logits = logits,
                   .bias = choice_bias_.data(),
                   .out = routed,
                   .scales = expert_scales_.data(),
                   .experts = token_experts_.look_up(run.carried, scratch.of_tokens.in(front))});
    if (spec_.scales_input) {  // what an expert makes of such a row is added as it is
      std::ranges::copy(routed.weights, scratch.input_weights.in(front));
      std::ranges::fill(routed.weights, 1.0f);
    }
    const TensorView sum = sum_of_networks(run, {x, routed, scratch, front});
    // The branch's memory may be that of x, which all networks have read by now.
    const TensorView y = run.branch.end_with_rows();
    copy_rows(context.stream, sum_.own_outputs(y), sum);
    sum_.join(context, y);
  }

 private:
  // Areas of scratch memory.
  enum Area : size_t { kLogits, kSum, kPartSum };

  // A range of the list of rows.
  struct ListedRows {
    int32_t first, count;
    template <class T>
    std::span<T> of(std::span<T> list) const {
      return list.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    }
  };

  // What the networks of a run read, and where they write.
  struct Routed {
    const ConstTensorView& x;  // [T, D]
    const ExpertRows& rows;
    const MixtureScratch& scratch;
    std::byte* front;  // of its memory
  };

  // What rows are multiplied by before a network reads them; the shared expert's weights are 1.
  std::span<const float> scales_of(const Routed& routed, const ListedRows& listed) const {
    if (!spec_.scales_input) return {};
    const ArenaPart<float>& all = routed.scratch.input_weights;
    return listed.of(std::span<const float>(all.in(routed.front), all.count));
  }

  // The one of a row of one.
  static bool routing_fits(const DeviceTraits& device, int64_t experts) {
    const auto count = static_cast<int32_t>(experts);
    const RouteExpertsArgs args{.rule = {.experts = count, .used = 1},
                                .logits = row_of_no_data(DType::kF32, experts),
                                .bias = nullptr,
                                .out = {}};
    return route_experts_kernels().find(device, args) != nullptr;
  }

  // On a GPU normalised rows and the branch lie apart.
  void run_bank(const FeedForwardRun& run) const {
    const std::optional<RmsNormArgs> norm = run.branch.joining_norm();
    const ConstTensorView x = norm.has_value() ? norm->out : run.branch.input();
    const TensorView y = run.branch.end_with_rows();
    bank_->run(run.branch.context(),
               {.router = router_,
                .choice_bias = choice_bias_.data(),
                .expert_scales = expert_scales_.data(),
                .norm = norm,
                .x = x,
                .router_input = run.router_input.data == nullptr ? x : run.router_input,
                .y = y});
    sum_.join(run.branch.context(), y);
  }

  Status check_split(const ShardSpec& shard) const {
    if (shard.whole_experts && spec_.computing() < shard.ranks) {
      return unsupported(fmt::format(
          "a mixture of {} experts cannot be split over {} ranks: lower --tensor-parallel-size",
          spec_.computing(), shard.ranks));
    }
    int32_t narrowest = shard.whole_experts ? shard.ranks : spec_.width;
    if (has_shared()) narrowest = std::min(narrowest, spec_.shared_width);
    if (narrowest >= shard.ranks) return ok_status();
    return unsupported(fmt::format(
        "experts of {} columns cannot be split over {} ranks: lower --tensor-parallel-size",
        narrowest, shard.ranks));
  }

  bool has_shared() const { return spec_.router.shared != SharedExpert::kNone; }
  int64_t output_width() const { return sum_.output_width(); }
  int32_t rank() const { return shard_.all_on_one ? 0 : shard_.rank; }
  // Sums that are added up in their order: where one rank has those of all.
  int32_t part_count() const { return shard_.all_on_one ? shard_.ranks : 1; }
  ExpertRange experts_of(int32_t rank) const {
    const int64_t first = owners_.first_of(rank);
    return {static_cast<int32_t>(first), static_cast<int32_t>(first + owners_.count_of(rank))};
  }
  // Whose weights are loaded.
  ExpertRange own_experts() const {
    return shard_.all_on_one ? ExpertRange{0, spec_.computing()} : experts_of(shard_.rank);
  }
  // Of experts without networks those whose rows are added in a part of the sum: with parts that
  // are added up, in the last, else each part has its own columns.
  ExpertRange identities_of(int32_t part) const {
    const bool adds = shard_.sums == ShardSums::kGather || part + 1 == shard_.ranks;
    return {spec_.computing(), adds ? spec_.router.experts : spec_.computing()};
  }
  // Experts, then the shared one.
  std::vector<int32_t> own_networks() const {
    const ExpertRange own = own_experts();
    std::vector<int32_t> networks(static_cast<size_t>(own.count()));
    std::iota(networks.begin(), networks.end(), own.first);
    if (has_shared()) networks.push_back(spec_.computing());
    return networks;
  }
  bool gathers_experts() const {
    return owners_.is_shared_out() && shard_.sums == ShardSums::kGather;
  }
  // All experts are as wide as the first.
  template <class WidthOf>
  int64_t widest(const WidthOf& width_of) const {
    return std::max(width_of(networks_.front()), width_of(networks_.back()));
  }

  MixtureScratch place(ArenaPlaces& places, int64_t rows) const {
    const auto taken = static_cast<size_t>(rows * spec_.router.networks_of_row());
    const int64_t chunk = std::min(rows, kNetworkRows);
    const auto tensor = [&](int64_t columns) {
      return places.take_tensor(DType::kF32, Shape{chunk, columns});
    };
    MixtureScratch scratch;
    scratch.starts = places.take<int32_t>(static_cast<size_t>(spec_.router.networks()) + 1);
    scratch.rows = places.take<int32_t>(taken);
    scratch.weights = places.take<float>(taken);
    scratch.input_weights = places.take<float>(spec_.scales_input ? taken : 0);
    scratch.of_tokens = places.take<int32_t>(
        spec_.by_token.vocab > 0 ? static_cast<size_t>(rows * spec_.router.used) : 0);
    scratch.gathered = tensor(hidden_);
    scratch.gate_up = tensor(spec_.up_parts() *
                             widest([&](const Network& n) { return n.widths.count_of(rank()); }));
    scratch.activated = scratch.gate_up;
    if (shard_.is_split()) {
      scratch.activated = tensor(widest([](const Network& n) { return n.down.input_width(); }));
    }
    scratch.out = tensor(output_width());
    if (!gathers_experts()) return scratch;
    scratch.outputs = places.take_tensor(DType::kF32, Shape{rows * spec_.router.used, hidden_});
    scratch.rank_starts = places.take<int64_t>(static_cast<size_t>(shard_.ranks) + 1);
    return scratch;
  }

  static ExpertRows routed_rows(const MixtureScratch& scratch, std::byte* front) {
    return {.starts = {scratch.starts.in(front), scratch.starts.count},
            .rows = {scratch.rows.in(front), scratch.rows.count},
            .weights = {scratch.weights.in(front), scratch.weights.count}};
  }

  // The shared expert's gate is one more row.
  MatrixStack router_stack() const {
    MatrixStack stack{.rows = {{"ffn_gate_inp", spec_.router.experts}},
                      .columns = hidden_,
                      .bias = spec_.router_bias,
                      .exact = true};
    if (spec_.router.shared == SharedExpert::kGated) {
      stack.rows.push_back({"ffn_gate_inp_shexp", 1});
    }
    return stack;
  }

  // A rank's stacks have its experts, or its columns of all, so that what it makes of a row is an
  // addend.
  Status load_bank(LayerTensors& tensors) {
    if (shard_.is_split() && shard_.sums == ShardSums::kGather) {
      return unsupported(
          "experts on GPUs add up what ranks make of a row: use --tensor-parallel-sums reduce",
          "tensor_parallel_sums");
    }
    return bank_
        .emplace(spec_, hidden_,
                 ExpertBank::Part{.experts = own_experts(),
                                  .identities = identities_of(shard_.rank).count(),
                                  .widths = networks_.front().widths,
                                  .shared_widths = networks_.back().widths,
                                  .rank = rank()})
        .load(tensors);
  }

  Status load_network(LayerTensors& tensors, int32_t n) {
    Network& network = networks_[static_cast<size_t>(n)];
    const bool shared = n == spec_.computing();
    const auto matrix = [&](const std::string& name, int64_t rows) {
      return shared ? MatrixStack::Rows{name + "_shexp", rows}
                    : rows_of_expert(spec_, name, n, rows);
    };
    MatrixStack gate_up{.columns = hidden_, .bias = spec_.bias};
    for (const char* name : {"ffn_gate", "ffn_up"}) {
      if (!spec_.gated && name != std::string_view("ffn_up")) continue;
      gate_up.rows.push_back(matrix(name, network.widths.total()));
      if (spec_.fused && !shared) {
        MatrixStack::Rows& half = gate_up.rows.back();
        half.name = "ffn_gate_up_exps";
        half.of = 2 * network.widths.total();
        half.first = name == std::string_view("ffn_up") ? network.widths.total() : 0;
      }
      if (!network.widths.is_shared_out()) continue;
      gate_up.rows.back().take(network.widths.first(rank()), network.widths.count(rank()));
    }
    HR_ASSIGN_OR_RETURN(network.gate_up, tensors.matrix(gate_up));
    return network.down.load(tensors, matrix("ffn_down", hidden_), spec_.bias);
  }

  // Of all rows, what this rank computes of the branch: expert after expert, in the order of their
  // numbers, whatever other rows chose.
  TensorView sum_of_networks(const FeedForwardRun& run, const Routed& routed) const {
    OpContext& context = run.branch.context();
    const TensorView sum = run.scratch.rows(kSum, run.branch.rows(), output_width());
    if (gathers_experts()) {
      add_gathered(context, routed, sum);
      return sum;
    }
    add_networks(context, 0, routed, sum);
    for (int32_t part = 1; part < part_count(); ++part) {
      const TensorView part_sum = run.scratch.rows(kPartSum, sum.rows(), sum.columns());
      add_networks(context, part, routed, part_sum);
      residual_add(context, {.x = sum, .residual = part_sum});
    }
    return sum;
  }

  // Calls visit(network, its rows in the list) of those in `networks`, kNetworkRows at a time.
  template <class Visit>
  void for_rows_of(const ExpertRange& networks, const Routed& routed, const Visit& visit) const {
    const std::span<const int32_t> starts = routed.rows.starts;
    for (auto n = static_cast<size_t>(networks.first); n < static_cast<size_t>(networks.last);
         ++n) {
      for (int32_t first = starts[n]; first < starts[n + 1];) {
        const int32_t count = std::min<int32_t>(starts[n + 1] - first, kNetworkRows);
        visit(networks_[n], ListedRows{first, count});
        first += count;
      }
    }
  }
  ExpertRange shared_networks() const { return {spec_.router.experts, spec_.router.networks()}; }

  // sum = what networks make of rows, those of the rank whose part this is. Of a mixture whose
  // experts are shared out each has one sum alone, and the shared one has one of each part.
  void add_networks(OpContext& context, int32_t part, const Routed& routed,
                    const TensorView& sum) const {
    const bool by_expert = owners_.is_shared_out();
    const auto add = [&](int32_t part_of_network) {
      return [&, part_of_network](const Network& network, const ListedRows& rows) {
        add_rows(context, routed, rows,
                 run_network(context, network, part_of_network, routed, rows), sum);
      };
    };
    clear(sum);
    const int32_t rank_of_part = shard_.all_on_one ? part : shard_.rank;
    for_rows_of(experts_of(rank_of_part), routed, add(by_expert ? 0 : part));
    for_rows_of(shared_networks(), routed, add(part));
    add_identities(context, identities_of(rank_of_part), routed, sum);
  }

  // The rows of experts that give them back.
  void add_identities(OpContext& context, const ExpertRange& identities, const Routed& routed,
                      const TensorView& sum) const {
    const std::span<const int32_t> starts = routed.rows.starts;
    for (auto n = static_cast<size_t>(identities.first); n < static_cast<size_t>(identities.last);
         ++n) {
      for (int32_t first = starts[n]; first < starts[n + 1]; first += kNetworkRows) {
        const ListedRows rows{first, std::min<int32_t>(starts[n + 1] - first, kNetworkRows)};
        const TensorView given(routed.scratch.gathered.in(routed.front).data, DType::kF32,
                               Shape{rows.count, hidden_});
        row_gather(context, {.x = routed.x, .rows = rows.of(routed.rows.rows), .out = given});
        add_rows(context, routed, rows, sum_.own_outputs(given), sum);
      }
    }
  }

  // The same of all experts, each of which one rank has: what they make of their rows is gathered,
  // so that sums, of this rank's outputs, have the order that they have on one.
  void add_gathered(OpContext& context, const Routed& routed, const TensorView& sum) const {
    const TensorView outputs = routed.scratch.outputs.in(routed.front);
    for_rows_of(
        experts_of(shard_.rank), routed, [&](const Network& network, const ListedRows& rows) {
          run_network(context, network, 0, routed, rows, outputs.row_range(rows.first, rows.count));
        });
    const ArenaPart<int64_t>& places = routed.scratch.rank_starts;
    const std::span<int64_t> starts(places.in(routed.front), places.count);
    for (int32_t r = 0; r <= shard_.ranks; ++r) {
      starts[static_cast<size_t>(r)] =
          hidden_ * routed.rows.starts[static_cast<size_t>(owners_.first(r))];
    }
    const TensorView values(outputs.data, DType::kF32, Shape{1, outputs.rows() * hidden_});
    context.mesh.tensor->all_gather(context.stream, values, starts);
    clear(sum);
    for_rows_of({0, spec_.computing()}, routed, [&](const Network&, const ListedRows& rows) {
      add_rows(context, routed, rows, sum_.own_outputs(outputs.row_range(rows.first, rows.count)),
               sum);
    });
    for_rows_of(shared_networks(), routed, [&](const Network& network, const ListedRows& rows) {
      add_rows(context, routed, rows, run_network(context, network, 0, routed, rows), sum);
    });
    add_identities(context, identities_of(shard_.rank), routed, sum);
  }

  static void clear(const TensorView& sum) {
    std::memset(sum.data, 0, static_cast<size_t>(sum.rows() * sum.row_stride));
  }

  static void add_rows(OpContext& context, const Routed& routed, const ListedRows& rows,
                       const ConstTensorView& x, const TensorView& sum) {
    row_scatter_add(context, {.x = x,
                              .rows = rows.of(routed.rows.rows),
                              .scales = rows.of(routed.rows.weights),
                              .out = sum});
  }

  const GateLimits& limits_of(const Network& network) const {
    const bool shared = &network - networks_.data() >= spec_.computing();
    return shared ? spec_.shared_limits : spec_.limits;
  }
  // Products whose gates and ups an op of their own takes.
  void multiply_apart(OpContext& context, const Network& network, const ConstTensorView& x,
                      const TensorView& gate_up, const TensorView& out) const {
    multiply(context, network.gate_up, x, gate_up);
    limit_gates(context, limits_of(network), gate_up);
    gated_activation(
        context,
        {.gate_up = gate_up, .activation = spec_.activation, .out = out, .swish = spec_.swish});
  }

  // What a network makes of some rows of x.
  TensorView run_network(OpContext& context, const Network& network, int32_t part,
                         const Routed& routed, const ListedRows& rows) const {
    const TensorView out(routed.scratch.out.in(routed.front).data, DType::kF32,
                         Shape{rows.count, output_width()});
    run_network(context, network, part, routed, rows, out);
    return out;
  }
  void run_network(OpContext& context, const Network& network, int32_t part, const Routed& routed,
                   const ListedRows& listed, const TensorView& out) const {
    const std::span<const int32_t> rows = listed.of(std::span<const int32_t>(routed.rows.rows));
    const auto dense = [&](const TensorPart& memory, int64_t columns) {
      return TensorView(memory.in(routed.front).data, DType::kF32, Shape{listed.count, columns});
    };
    ConstTensorView x = routed.x.row_range(rows.front(), 1);
    if (listed.count > 1 || spec_.scales_input) {
      const TensorView gathered = dense(routed.scratch.gathered, hidden_);
      row_gather(
          context,
          {.x = routed.x, .rows = rows, .out = gathered, .scales = scales_of(routed, listed)});
      x = gathered;
    }
    const int64_t width = network.widths.count_of(rank());
    const TensorView gate_up = dense(routed.scratch.gate_up, spec_.up_parts() * width);
    const TensorView activated = shard_.is_split()
                                     ? dense(routed.scratch.activated, network.down.input_width())
                                     : column_range(gate_up, 0, width);
    if (limits_of(network).any() || !spec_.swish.is_usual()) {
      multiply_apart(context, network, x, gate_up, network.down.own_columns(activated));
    } else if (spec_.gated) {
      gated_linear(context, {.x = x,
                             .weight = &network.gate_up.weight,
                             .bias = network.gate_up.bias.data(),
                             .activation = spec_.activation,
                             .gate_up = gate_up,
                             .y = network.down.own_columns(activated)});
    } else {
      multiply(context, network.gate_up, x, gate_up);
      activation(context, {.x = gate_up,
                           .activation = spec_.activation,
                           .out = network.down.own_columns(activated)});
    }
    network.down.multiply(context, part, activated, out);
  }

  const MixtureSpec spec_;
  const int64_t hidden_;
  ShardSpec shard_;
  Shares owners_;               // of experts, where ranks have whole ones
  BranchOutput sum_;            // of the networks: who has which outputs of it
  LinearLayer router_;          // [experts, D], and the shared expert's gate
  DeviceVector choice_bias_;    // [experts] or empty
  DeviceVector expert_scales_;  // [experts] or empty
  TokenExperts token_experts_;
  std::vector<Network> networks_;   // the experts', then the shared one; without weights on a GPU
  std::optional<ExpertBank> bank_;  // on a GPU
};

}  // namespace

std::unique_ptr<FeedForward> make_part(const MixtureSpec& spec, int64_t hidden) {
  return std::make_unique<MixtureFeedForward>(spec, hidden);
}

}  // namespace headrace
