#include "models/parts/expert_bank.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "ops/linear/gated_linear.h"
#include "ops/linear/grouped_linear.h"
#include "ops/linear/norm_route.h"
#include "ops/rows/activation.h"
#include "ops/rows/row_gather.h"
#include "ops/rows/row_gather_sum.h"

namespace headrace {
namespace {

// The rows and columns of a rank are some of a tensor's or all.
void take_rows(MatrixStack::Rows& rows, const Shares& shares, int32_t rank) {
  if (shares.is_shared_out()) rows.take(shares.first(rank), shares.count(rank));
}
void take_columns(MatrixStack& stack, const Shares& shares, int32_t rank) {
  if (shares.is_shared_out()) stack.take_columns(shares.first(rank), shares.count(rank));
}

// Matrices [rows, columns] of some experts, those of `names` side by side.
MatrixStack stack_of(const std::vector<const char*>& names, const MixtureSpec& spec,
                     const ExpertRange& experts, int64_t rows, int64_t columns) {
  MatrixStack stack{.columns = columns, .bias = spec.bias, .of_experts = true};
  for (int32_t e = experts.first; e < experts.last; ++e) {
    for (const char* name : names) {
      stack.rows.push_back(rows_of_expert(spec, name, e, rows));
    }
  }
  return stack;
}

// Gates and ups in turn become the halves of one tensor.
void take_halves_of_one(MatrixStack& gate_up) {
  for (size_t i = 0; i < gate_up.rows.size(); ++i) {
    MatrixStack::Rows& rows = gate_up.rows[i];
    rows.name = "ffn_gate_up_exps";
    rows.of = 2 * rows.count;
    rows.first = i % 2 == 0 ? 0 : rows.count;
  }
}

}  // namespace

Status ExpertBank::load(LayerTensors& tensors) {
  const ExpertRange& experts = part_.experts;
  const Shares &widths = part_.widths, &shared_widths = part_.shared_widths;
  const int32_t rank = part_.rank;
  std::vector<const char*> names = {"ffn_gate", "ffn_up"};
  if (!spec_.gated) names.erase(names.begin());
  MatrixStack gate_up = stack_of(names, spec_, experts, spec_.width, hidden_);
  if (spec_.fused) take_halves_of_one(gate_up);
  for (MatrixStack::Rows& rows : gate_up.rows) take_rows(rows, widths, rank);
  gate_up.dense =
      !experts_can_be_packed(gate_up.rows.front().count * std::ssize(names), spec_.gated);
  HR_ASSIGN_OR_RETURN(gate_up_, tensors.matrix(gate_up));
  MatrixStack down = stack_of({"ffn_down"}, spec_, experts, hidden_, spec_.width);
  take_columns(down, widths, rank);
  down.dense = !experts_can_be_packed(hidden_, /*gated=*/false);
  // Of an expert that ranks share, they add up what each makes: its bias is added once.
  down.bias = down.bias && (rank == 0 || !widths.is_shared_out());
  HR_ASSIGN_OR_RETURN(down_, tensors.matrix(down));
  if (!has_shared()) return ok_status();
  MatrixStack shared_gate_up{
      .rows = {{"ffn_gate_shexp", spec_.shared_width}, {"ffn_up_shexp", spec_.shared_width}},
      .columns = hidden_};
  if (!spec_.gated) shared_gate_up.rows.erase(shared_gate_up.rows.begin());
  for (MatrixStack::Rows& rows : shared_gate_up.rows) take_rows(rows, shared_widths, rank);
  HR_ASSIGN_OR_RETURN(shared_gate_up_, tensors.matrix(shared_gate_up));
  MatrixStack shared_down{.rows = {{"ffn_down_shexp", hidden_}}, .columns = spec_.shared_width};
  take_columns(shared_down, shared_widths, rank);
  HR_ASSIGN_OR_RETURN(shared_down_, tensors.matrix(shared_down));
  return ok_status();
}

std::vector<LinearWeight*> ExpertBank::matrices() {
  std::vector<LinearWeight*> all = {&gate_up_.weight, &down_.weight};
  if (has_shared()) all.insert(all.end(), {&shared_gate_up_.weight, &shared_down_.weight});
  return all;
}

ExpertBank::Scratch ExpertBank::place(ArenaPlaces& places, int64_t rows) const {
  const RouterRule& router = spec_.router;
  const int64_t chosen = rows * router.used, taken = rows * router.networks_of_row();
  Scratch scratch;
  scratch.logits = places.take_tensor(DType::kF32, Shape{rows, router.logits()});
  scratch.starts = places.take<int32_t>(static_cast<size_t>(router.networks()) + 1);
  scratch.rows = places.take<int32_t>(static_cast<size_t>(taken));
  scratch.places = places.take<int32_t>(static_cast<size_t>(taken));
  scratch.weights = places.take<float>(static_cast<size_t>(taken));
  if (spec_.scales_input) scratch.scaled = places.take_tensor(dtype(), Shape{chosen, hidden_});
  scratch.activated = places.take_tensor(dtype(), Shape{chosen, width()});
  if (has_shared()) {
    scratch.shared_gate_up =
        places.take_tensor(dtype(), Shape{rows, spec_.up_parts() * shared_width()});
    scratch.shared_activated = places.take_tensor(dtype(), Shape{rows, shared_width()});
  }
  scratch.outputs = places.take_tensor(dtype(), Shape{taken, hidden_});
  return scratch;
}

int64_t ExpertBank::op_workspace_bytes(int64_t rows, const LinearLayer& router) const {
  ArenaPlaces places;
  place(places, rows);
  int64_t op_bytes = norm_route_workspace_bytes(rows, router.weight, spec_.router);
  for (const LinearLayer* const matrices : {&gate_up_, &down_}) {
    op_bytes = std::max(op_bytes, grouped_workspace_bytes(matrices->weight, part_.experts.count()));
  }
  if (has_shared()) {
    op_bytes = std::max({op_bytes, linear_workspace_bytes(rows, shared_gate_up_.weight),
                         linear_workspace_bytes(rows, shared_down_.weight)});
  }
  return places.bytes_for(Scratch::kPartsMax) + op_bytes;
}

ExpertBank::Lists ExpertBank::lists(const Scratch& scratch, std::byte* front) const {
  Lists lists{.all = {.starts = {scratch.starts.in(front), scratch.starts.count},
                      .rows = {scratch.rows.in(front), scratch.rows.count},
                      .weights = {scratch.weights.in(front), scratch.weights.count},
                      .places = {scratch.places.in(front), scratch.places.count}},
              .starts_of_experts = {},
              .rows_of_experts = {}};
  lists.starts_of_experts = lists.all.starts.subspan(
      static_cast<size_t>(part_.experts.first), static_cast<size_t>(part_.experts.count()) + 1);
  lists.rows_of_experts = lists.all.rows.first(static_cast<size_t>(scratch.activated.shape[0]));
  return lists;
}

void ExpertBank::route(OpContext& context, const Run& run, const TensorView& logits,
                       const ExpertRows& lists) const {
  const RouteExpertsArgs choice{.rule = spec_.router,
                                .logits = logits,
                                .bias = run.choice_bias,
                                .out = lists,
                                .own = summed(),
                                .scales = run.expert_scales};
  if (run.norm.has_value()) {
    const LinearArgs product{
        .x = run.x, .weight = &run.router.weight, .bias = run.router.bias.data(), .y = logits};
    return norm_route(context, {.norm = *run.norm, .router = product, .route = choice});
  }
  multiply(context, run.router, run.router_input, logits);
  route_experts(context, choice);
}

void ExpertBank::run(OpContext& context, const Run& run) const {
  Workspace::Mark mark(context.workspace);
  ArenaPlaces places;
  const Scratch scratch = place(places, run.x.rows());
  std::byte* const front = context.workspace.take(places.used());
  const Lists lists = this->lists(scratch, front);
  route(context, run, scratch.logits.in(front), lists.all);
  const TensorView activated = scratch.activated.in(front), outputs = scratch.outputs.in(front);
  ConstTensorView x = run.x;
  std::span<const int32_t> rows = lists.rows_of_experts;
  std::span<const float> weights = lists.all.weights;  // of what experts make
  if (spec_.scales_input) {
    const TensorView scaled = scratch.scaled.in(front);
    row_gather(context,
               {.x = x, .rows = rows, .out = scaled, .scales = weights.first(rows.size())});
    x = scaled;
    rows = {};
    weights = {};
  }
  // Products write over what experts with networks were given.
  if (part_.identities > 0) {
    row_gather(
        context,
        {.x = x, .rows = lists.rows_of_experts, .out = outputs.row_range(0, activated.rows())});
  }
  grouped_linear(context, {.x = x,
                           .weight = &gate_up_.weight,
                           .starts = lists.starts_of_experts,
                           .rows = rows,
                           .bias = gate_up_.bias.data(),
                           .gate = spec_.gated ? std::optional(spec_.activation) : std::nullopt,
                           .y = activated,
                           .listed_experts = spec_.router.experts});
  if (!spec_.gated) {
    activation(context, {.x = activated, .activation = spec_.activation, .out = activated});
  }
  grouped_linear(context, {.x = activated,
                           .weight = &down_.weight,
                           .starts = lists.starts_of_experts,
                           .rows = {},
                           .bias = down_.bias.data(),
                           .gate = std::nullopt,
                           .y = outputs.row_range(0, activated.rows()),
                           .follows_another = spec_.gated,
                           .listed_experts = spec_.router.experts});
  if (has_shared()) run_shared(context, run.x, scratch, front);
  row_gather_sum(context,
                 {.x = outputs, .places = lists.all.places, .scales = weights, .out = run.y});
}

// Its rows are the last of the lists.
void ExpertBank::run_shared(OpContext& context, const ConstTensorView& x, const Scratch& scratch,
                            std::byte* front) const {
  const TensorView activated = scratch.shared_activated.in(front);
  const TensorView outputs = scratch.outputs.in(front);
  if (spec_.gated) {
    gated_linear(context, {.x = x,
                           .weight = &shared_gate_up_.weight,
                           .bias = nullptr,
                           .activation = spec_.activation,
                           .gate_up = scratch.shared_gate_up.in(front),
                           .y = activated});
  } else {
    multiply(context, shared_gate_up_, x, activated);
    activation(context, {.x = activated, .activation = spec_.activation, .out = activated});
  }
  multiply(context, shared_down_, activated,
           outputs.row_range(outputs.rows() - x.rows(), x.rows()));
}

}  // namespace headrace
