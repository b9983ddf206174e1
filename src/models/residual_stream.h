// ResidualStream: the hidden rows x of a pass and the branch beside them; ResidualBranch: what one
// part of a layer sees of it.
//   branch = part(pre_norm(x));   x := x + scale * post_norm(branch)
// Each norm may be absent; the scale is the stream's times the branch's own. The sum waits for the
// norm that reads x next, which adds on its way; a norm that reads x joins the product behind it
// where a device has an op for both; a product that ends a branch may add it to x itself. What a
// measurement runs unfused does each alone, and so do products to which an adapter of some row
// adds, or that a tap sees: that must come before what is made of them.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "models/adapter_rows.h"
#include "models/layer_weights.h"
#include "models/product_tap.h"
#include "ops/linear/activated_linear.h"
#include "ops/linear/residual_linear.h"
#include "ops/rows/rms_norm.h"

namespace headrace {

class ResidualStream {
 public:
  // All [T, D], dense. `normed` and `branch` may be one memory where an op has ended before the
  // next begins: normalised rows lie where the branch made of them will.
  struct Rows {
    TensorView hidden;
    TensorView normed;
    TensorView branch;
  };
  // `scale`: of all branches. `adapters`: of these rows; they and the tap, which may be null,
  // outlive the stream.
  ResidualStream(OpContext& context, const Rows& rows, float scale,
                 const BatchAdapters& adapters = {}, ProductTap* products = nullptr)
      : context_(context), rows_(rows), scale_(scale), adapters_(adapters), products_(products) {}

  const TensorView& hidden() const { return rows_.hidden; }
  // Brings the hidden rows up to date: a branch is added when the next norm reads them, or here.
  void settle();
  // From here on these rows of x alone, in scratch memory. REQUIRES: at most half of all; no branch
  // waits
  void keep_rows(std::span<const int32_t> rows);

 private:
  friend class ResidualBranch;

  OpContext& context_;
  Rows rows_;
  const float scale_;
  BatchAdapters adapters_;
  std::vector<AdapterRows> kept_adapters_;
  ProductTap* const products_;
  bool branch_waits_ = false;  // rows_.branch is still to be added to rows_.hidden
  float waiting_scale_ = 1.0f;
};

// One part of a layer, over all rows of a stream or a range of them: first it reads, then it ends.
class ResidualBranch {
 public:
  // The norms outlive the branch; either may be of kind kNone.
  ResidualBranch(ResidualStream& stream, const NormWeights& pre_norm, const NormWeights& post_norm,
                 float scale = 1.0f);
  // Of a part that reads `input` [T, D], not x.
  ResidualBranch(ResidualStream& stream, const ConstTensorView& input, const NormWeights& post_norm,
                 float scale = 1.0f);
  // Rows [first, first + count) of it.
  ResidualBranch range(int64_t first, int64_t count) const;

  OpContext& context() const { return stream_.context_; }
  int64_t rows() const { return count_; }
  // Another branch of all rows, in this one's place, which reads `input` [T, D]: of a part that is
  // a sum of several. Each ends before the next is made. REQUIRES: this one has read its input
  ResidualBranch instead(const ConstTensorView& input, float scale) const;

  // Of a part that reads x itself, between norms of its own: norm(x). REQUIRES: no pre_norm
  void normalise_input(const NormWeights& norm, const TensorView& out);
  // pre_norm(x) [rows, D], valid until the branch ends.
  ConstTensorView input();
  // y = pre_norm(x) W^T (+ bias): one op where that can be.
  void multiply_input(const LinearLayer& layer, const TensorView& y);
  // After a product y = x W^T of the branch's rows: what their adapters add to it. A tap sees x.
  void add_adapters(const LinearLayer& layer, const ConstTensorView& x, const TensorView& y);
  // Whether the product runs alone: some of the stream's rows have adapters that add to it, or a
  // tap sees it. Where a row's bits are its own, so does it in steps without adapters, as fused
  // products of a GPU round elsewhere.
  bool adapts(const LinearLayer& layer) const {
    return layer.site >= 0 && (stream_.adapters_.any() || stream_.products_ != nullptr ||
                               needs_one_way(context().device.traits()));
  }
  // For products of other kinds that take a norm along: the norm, of which `out` is what they
  // multiply. Empty: they multiply input().
  std::optional<RmsNormArgs> joining_norm();

  // Between reading and ending: the part goes on with these rows alone.
  void keep_rows(std::span<const int32_t> rows);

  // The branch is x W^T (+ bias). (Its memory may be input()'s.)
  void end_with(const LinearLayer& layer, const ConstTensorView& x);
  // The branch is such a product of what gates let through: one op, where a device has one. Where
  // it has none, and unless `layer` may run alone, the product before applies the gates.
  bool ends_with_gates(const LinearLayer& layer, const GatedActivationArgs& gates);
  void end_with(const LinearLayer& layer, const GatedActivationArgs& gates);
  // The branch is what the caller now writes to these rows [rows, D].
  TensorView end_with_rows();
  // Before it ends: it stays apart from x, where the caller works on ended_rows() behind its end.
  void keep_apart() { stays_apart_ = true; }
  // The whole branch, once it has ended.
  TensorView ended_rows() const { return stream_.rows_.branch; }
  // After its end, once for all ranges: post_norm.
  void finish();

 private:
  static bool needs_one_way(const DeviceTraits& device) {
    return device.kind == DeviceKind::kCuda && device.batch_invariant;
  }
  TensorView in_range(const TensorView& rows) const { return rows.row_range(first_, count_); }
  ResidualLinearArgs ending_product(const LinearLayer& layer, const ConstTensorView& x) const;
  // Whether something is done to it before the sum.
  bool ends_apart() const { return post_norm_.kind != NormKind::kNone || stays_apart_; }
  // Into the branch where it ends apart.
  ActivatedLinearArgs gated_end(const LinearLayer& layer, const GatedActivationArgs& gates) const;
  // Whether the next norm, or settle(), is to add the branch.
  void wait_for_next(bool waits) {
    stream_.branch_waits_ = waits;
    stream_.waiting_scale_ = scale_;
  }
  // The branch before this one, where the norm is to add it; once.
  ConstTensorView waiting_residual();

  ResidualStream& stream_;
  const NormWeights& pre_norm_;
  ConstTensorView made_input_;  // no data: it reads x
  const NormWeights& post_norm_;
  const float scale_;
  bool adds_residual_;
  bool stays_apart_ = false;
  const float residual_scale_;  // of the branch that it adds
  int64_t first_ = 0;
  int64_t count_;
};

}  // namespace headrace
