#include "models/residual_stream.h"

#include <utility>

#include "ops/linear/norm_linear.h"
#include "ops/rows/residual_add.h"
#include "ops/rows/row_gather.h"

namespace headrace {
namespace {

const NormWeights kNoNorm;

}  // namespace

void ResidualStream::settle() {
  if (!std::exchange(branch_waits_, false)) return;
  residual_add(context_, {.x = rows_.hidden, .residual = rows_.branch, .scale = waiting_scale_});
}

// The rows kept lie in the second half of the scratch memory, what is computed of them in the
// first.
void ResidualStream::keep_rows(std::span<const int32_t> rows) {
  const auto kept = static_cast<int64_t>(rows.size()), all = rows_.hidden.rows();
  CHECK(2 * kept <= all && !branch_waits_);
  const TensorView hidden = rows_.normed.row_range(all - kept, kept);
  row_gather(context_, {.x = rows_.hidden, .rows = rows, .out = hidden});
  rows_ = {.hidden = hidden,
           .normed = rows_.normed.row_range(0, kept),
           .branch = rows_.branch.row_range(0, kept)};
  if (adapters_.slots == nullptr) {  // else `rows` are the device's
    kept_adapters_ = keep_adapter_rows(adapters_.rows, rows);
    adapters_.rows = kept_adapters_;
  }
  adapters_.tasks = adapters_.kept_tasks;
}

ResidualBranch::ResidualBranch(ResidualStream& stream, const NormWeights& pre_norm,
                               const NormWeights& post_norm, float scale)
    : stream_(stream),
      pre_norm_(pre_norm),
      post_norm_(post_norm),
      scale_(scale * stream.scale_),
      residual_scale_(stream.waiting_scale_),
      count_(stream.hidden().rows()) {
  if (runs_unfused(context()) || pre_norm.kind == NormKind::kNone) stream.settle();
  adds_residual_ = std::exchange(stream.branch_waits_, false);
}

ResidualBranch::ResidualBranch(ResidualStream& stream, const ConstTensorView& input,
                               const NormWeights& post_norm, float scale)
    : ResidualBranch(stream, kNoNorm, post_norm, scale) {
  made_input_ = input;
}

ResidualBranch ResidualBranch::instead(const ConstTensorView& input, float scale) const {
  CHECK(!adds_residual_ && first_ == 0 && count_ == stream_.hidden().rows());
  return {stream_, input, post_norm_, scale};
}

ResidualBranch ResidualBranch::range(int64_t first, int64_t count) const {
  ResidualBranch part = *this;
  part.first_ = first_ + first;
  part.count_ = count;
  return part;
}

ConstTensorView ResidualBranch::waiting_residual() {
  if (!std::exchange(adds_residual_, false)) return {};
  return in_range(stream_.rows_.branch);
}

ConstTensorView ResidualBranch::input() {
  if (made_input_.data != nullptr) return made_input_.row_range(first_, count_);
  const TensorView x = in_range(stream_.rows_.hidden);
  if (pre_norm_.kind == NormKind::kNone) return x;
  const TensorView normed = in_range(stream_.rows_.normed);
  normalise(context(), pre_norm_, x, waiting_residual(), residual_scale_, normed);
  if (pre_norm_.gate.rank > 0) gate_rows(context(), pre_norm_.gate, normed);
  return normed;
}

void ResidualBranch::normalise_input(const NormWeights& norm, const TensorView& out) {
  CHECK(pre_norm_.kind == NormKind::kNone && made_input_.data == nullptr);
  normalise(context(), norm, in_range(stream_.rows_.hidden), {}, 1.0f, out);
}

std::optional<RmsNormArgs> ResidualBranch::joining_norm() {
  const bool joins = pre_norm_.kind == NormKind::kRms && pre_norm_.gate.rank == 0;
  if (!joins || runs_unfused(context())) return std::nullopt;
  return RmsNormArgs{.x = in_range(stream_.rows_.hidden),
                     .residual = waiting_residual(),
                     .weight = pre_norm_.weight.data(),
                     .eps = pre_norm_.eps,
                     .out = in_range(stream_.rows_.normed),
                     .residual_scale = residual_scale_};
}

void ResidualBranch::multiply_input(const LinearLayer& layer, const TensorView& y) {
  if (adapts(layer)) {
    const ConstTensorView x = input();
    multiply(context(), layer, x, y);
    return add_adapters(layer, x, y);
  }
  const std::optional<RmsNormArgs> norm = joining_norm();
  if (!norm.has_value()) return multiply(context(), layer, input(), y);
  norm_linear(
      context(),
      {.norm = *norm,
       .linear = {.x = norm->out, .weight = &layer.weight, .bias = layer.bias.data(), .y = y}});
}

void ResidualBranch::add_adapters(const LinearLayer& layer, const ConstTensorView& x,
                                  const TensorView& y) {
  if (stream_.products_ != nullptr) stream_.products_->multiplied(layer.site, x);
  if (!stream_.adapters_.any()) return;
  headrace::add_adapters(context(), stream_.adapters_, first_, layer.site, x, y);
}

void ResidualBranch::keep_rows(std::span<const int32_t> rows) {
  CHECK(!adds_residual_ && first_ == 0 && count_ == stream_.hidden().rows());
  stream_.keep_rows(rows);
  count_ = stream_.hidden().rows();
}

void ResidualBranch::end_with(const LinearLayer& layer, const ConstTensorView& x) {
  if (runs_unfused(context()) || ends_apart() || adapts(layer)) {
    const TensorView y = end_with_rows();
    multiply(context(), layer, x, y);
    if (adapts(layer)) add_adapters(layer, x, y);
    return;
  }
  const bool added = residual_linear(context(), ending_product(layer, x));
  wait_for_next(!added);
}

ResidualLinearArgs ResidualBranch::ending_product(const LinearLayer& layer,
                                                  const ConstTensorView& x) const {
  return {.in = x,
          .weight = &layer.weight,
          .bias = layer.bias.data(),
          .scale = scale_,
          .x = in_range(stream_.rows_.hidden),
          .branch = in_range(stream_.rows_.branch)};
}

ActivatedLinearArgs ResidualBranch::gated_end(const LinearLayer& layer,
                                              const GatedActivationArgs& gates) const {
  const ResidualLinearArgs product = ending_product(layer, gates.out);
  if (!ends_apart()) {
    return {.gates = gates, .linear = residual_product(context().device.traits(), product)};
  }
  return {
      .gates = gates,
      .linear = {
          .x = product.in, .weight = product.weight, .bias = product.bias, .y = product.branch}};
}

bool ResidualBranch::ends_with_gates(const LinearLayer& layer, const GatedActivationArgs& gates) {
  return !runs_unfused(context()) && !adapts(layer) && rows() > 0 &&
         activation_joins(context(), gated_end(layer, gates));
}

void ResidualBranch::end_with(const LinearLayer& layer, const GatedActivationArgs& gates) {
  const ActivatedLinearArgs args = gated_end(layer, gates);
  activated_linear(context(), args);
  wait_for_next(args.linear.output == LinearOutput::kStore);
}

TensorView ResidualBranch::end_with_rows() {
  wait_for_next(true);
  return in_range(stream_.rows_.branch);
}

void ResidualBranch::finish() {
  if (post_norm_.kind == NormKind::kNone) return;
  const TensorView& branch = stream_.rows_.branch;
  normalise(context(), post_norm_, branch, {}, 1.0f, branch);
}

}  // namespace headrace
