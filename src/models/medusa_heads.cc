#include "models/medusa_heads.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "models/row_views.h"
#include "ops/linear/linear.h"
#include "ops/rows/activation.h"
#include "tensor/arena_places.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

constexpr int64_t kMedusaScratchParts = 3;

LinearCompute linear_compute(ComputeType compute) {
  if (compute == ComputeType::kFloat32) return LinearCompute::kFloat32;
  return compute == ComputeType::kFastWide ? LinearCompute::kFastWide : LinearCompute::kFast;
}

class MedusaLoader {
 public:
  MedusaLoader(const WeightSource& source, Device& device, ComputeType compute)
      : source_(source), device_(device), compute_(linear_compute(compute)) {}

  Result<LinearLayer> block(int32_t head, int32_t index, int64_t hidden) const {
    const std::string stem = found({fmt::format("{}.{}.linear", head, index),
                                    fmt::format("blocks.{}.layers.{}", head, index)});
    HR_ASSIGN_OR_RETURN(LinearLayer layer, matrix(stem, Shape{hidden, hidden}, hidden));
    if (source_.has(stem + ".bias")) {
      HR_ASSIGN_OR_RETURN(const ConstTensorView bias, source_.get(stem + ".bias", Shape{hidden}));
      std::vector<float> values(static_cast<size_t>(hidden));
      dequantise_row(bias, 0, values.data());
      HR_ASSIGN_OR_RETURN(layer.bias, DeviceVector::upload(device_, values));
    }
    return layer;
  }

  Result<LinearLayer> output(int32_t head, const MedusaSpec& spec) const {
    const std::string stem =
        found({fmt::format("{}.{}", head, spec.blocks), fmt::format("lm_heads.{}", head)});
    return matrix(stem, Shape{spec.vocab_size, spec.hidden_size}, spec.logit_count());
  }

 private:
  // The first of these names that there is, behind the name of the list of heads or not.
  std::string found(std::initializer_list<std::string> stems) const {
    for (const std::string& stem : stems) {
      for (const char* const front : {"", "medusa_heads.", "medusa_head."}) {
        if (source_.has(front + stem + ".weight")) return front + stem;
      }
    }
    return *stems.begin();
  }

  Result<LinearLayer> matrix(const std::string& stem, const Shape& shape, int64_t rows) const {
    HR_ASSIGN_OR_RETURN(const ConstTensorView whole, source_.get(stem + ".weight", shape));
    const LinearSource source{whole.row_range(0, rows), {}};
    LinearLayer layer;
    HR_ASSIGN_OR_RETURN(layer.weight, LinearWeight::pack(device_, std::span(&source, 1), compute_));
    source_.release(whole);
    return layer;
  }

  const WeightSource& source_;
  Device& device_;
  const LinearCompute compute_;
};

}  // namespace

Result<std::unique_ptr<MedusaHeads>> MedusaHeads::load(const MedusaSpec& spec,
                                                       const WeightSource& source, Device& device,
                                                       ComputeType compute) {
  CHECK(device.kind() == DeviceKind::kCpu);
  const MedusaLoader loader(source, device, compute);
  std::unique_ptr<MedusaHeads> heads(new MedusaHeads(spec));
  for (int32_t h = 0; h < spec.heads; ++h) {
    Head head;
    for (int32_t b = 0; b < spec.blocks; ++b) {
      HR_ASSIGN_OR_RETURN(LinearLayer block, loader.block(h, b, spec.hidden_size));
      head.blocks.push_back(std::move(block));
    }
    HR_ASSIGN_OR_RETURN(head.output, loader.output(h, spec));
    heads->heads_.push_back(std::move(head));
  }
  return heads;
}

int64_t MedusaHeads::weight_bytes() const {
  int64_t bytes = 0;
  for (const Head& head : heads_) {
    bytes += head.output.weight.packed_bytes();
    for (const LinearLayer& block : head.blocks) bytes += block.weight.packed_bytes();
  }
  return bytes;
}

int64_t MedusaHeads::workspace_bytes(int64_t rows) const {
  int64_t op_bytes = 0;
  for (const Head& head : heads_) {
    op_bytes = std::max(op_bytes, linear_workspace_bytes(rows, head.output.weight));
    for (const LinearLayer& block : head.blocks) {
      op_bytes = std::max(op_bytes, linear_workspace_bytes(rows, block.weight));
    }
  }
  ArenaPlaces places;
  places.take_tensor(DType::kF32, Shape{rows, 2 * int64_t{spec_.hidden_size}});
  places.take<std::byte>(static_cast<size_t>(op_bytes));
  return places.bytes_for(kMedusaScratchParts);
}

void MedusaHeads::logits(OpContext& context, int32_t index, const ConstTensorView& rows,
                         const TensorView& logits) const {
  const Head& head = heads_[static_cast<size_t>(index)];
  const Workspace::Mark mark(context.workspace);
  ArenaPlaces places;
  const TensorPart x_part = places.take_tensor(DType::kF32, rows.shape);
  const TensorPart y_part = places.take_tensor(DType::kF32, rows.shape);
  std::byte* const memory = context.workspace.take(places.used());
  const TensorView x = x_part.in(memory), y = y_part.in(memory);
  for (int64_t r = 0; r < rows.rows(); ++r) {
    std::memcpy(x.row(r), rows.row(r), static_cast<size_t>(rows.columns()) * sizeof(float));
  }
  for (const LinearLayer& block : head.blocks) {
    multiply(context, block, x, y);
    activation(context, {.x = y, .activation = Activation::kSilu, .out = y});
    for (int64_t r = 0; r < rows.rows(); ++r) {
      float* const to = f32_row(x, r);
      const float* const add = f32_row(y, r);
      for (int64_t d = 0; d < rows.columns(); ++d) to[d] += add[d];
    }
  }
  multiply(context, head.output, x, logits);
}

}  // namespace headrace
