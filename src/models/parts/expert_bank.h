// The experts of a mixture on a GPU: all their matrices in two stacks, so that products over the
// rows of all of them are one launch each, whoever chose what (ops/linear/grouped_linear.h). A
// shared expert is a dense network behind them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "models/parts/layer_part.h"
#include "models/parts/mixture_feed_forward.h"
#include "models/shard.h"
#include "tensor/arena_places.h"

namespace headrace {

class ExpertBank {
 public:
  // Which experts it has, and of each the columns between its products that are rank `rank`'s of
  // `widths`, of a shared one those of `shared_widths`.
  struct Part {
    ExpertRange experts;
    int32_t identities = 0;  // behind those of all ranks, that it adds the rows of
    Shares widths, shared_widths;
    int32_t rank = 0;
  };
  // What it makes of rows is this rank's addend.
  ExpertBank(const MixtureSpec& spec, int64_t hidden, Part part)
      : spec_(spec), hidden_(hidden), part_(std::move(part)) {}

  // The experts' tensors; the router is the mixture's.
  Status load(LayerTensors& tensors);
  std::vector<LinearWeight*> matrices();
  int64_t op_workspace_bytes(int64_t rows, const LinearLayer& router) const;

  struct Run {
    const LinearLayer& router;        // [experts, D], and the shared expert's gate
    const float* choice_bias;         // [experts] or null
    const float* expert_scales;       // [experts] or null
    std::optional<RmsNormArgs> norm;  // whose `out` is x, still to be run
    ConstTensorView x;                // [T, D]
    ConstTensorView router_input;     // [T, D]: x, but where the router reads rows of its own
    TensorView y;                     // [T, D]: the weighted sum of what experts make of x
  };
  void run(OpContext& context, const Run& run) const;

 private:
  // What a run takes of the workspace beside its ops. k: networks of a row.
  struct Scratch {
    TensorPart logits;  // [T, experts] f32
    ArenaPart<int32_t> starts, rows, places;
    ArenaPart<float> weights;
    TensorPart scaled;            // [T used, D], where experts' inputs are scaled
    TensorPart activated;         // [T used, F]
    TensorPart shared_gate_up;    // [T, 2 F'], or [T, F'] without gates
    TensorPart shared_activated;  // [T, F']
    TensorPart outputs;           // [T k, D]

    static constexpr int64_t kPartsMax = 10;
  };
  // As route_experts leaves it.
  struct Lists {
    ExpertRows all;
    std::span<const int32_t> starts_of_experts;  // of its own
    std::span<const int32_t> rows_of_experts;    // without the shared one's
  };

  bool has_shared() const { return spec_.router.shared != SharedExpert::kNone; }
  // Of activations; on a CPU, where tests run it, F32.
  DType dtype() const {
    const LinearWeight& weight = gate_up_.weight;
    if (weight.is_matrix()) return weight.matrix().dtype;
    if (weight.on_cpu()) return DType::kF32;
    return weight.compute() == LinearCompute::kFloat16 ? DType::kF16 : DType::kBF16;
  }
  void route(OpContext& context, const Run& run, const TensorView& logits,
             const ExpertRows& lists) const;
  Scratch place(ArenaPlaces& places, int64_t rows) const;
  Lists lists(const Scratch& scratch, std::byte* front) const;
  void run_shared(OpContext& context, const ConstTensorView& x, const Scratch& scratch,
                  std::byte* front) const;

  // Whose rows it adds: its experts, and on the last rank those that give rows back.
  ExpertRange summed() const {
    return {part_.experts.first, part_.identities > 0 ? spec_.router.experts : part_.experts.last};
  }

  int64_t width() const { return part_.widths.count_of(part_.rank); }
  int64_t shared_width() const { return part_.shared_widths.count_of(part_.rank); }

  const MixtureSpec spec_;
  const int64_t hidden_;
  const Part part_;
  // F, F': columns of this rank, of its own experts.
  LinearLayer gate_up_;                       // [experts 2 F, D]: gate and up of each
  LinearLayer down_;                          // [experts D, F]
  LinearLayer shared_gate_up_, shared_down_;  // [2 F', D], [D, F'], where there is a shared expert
};

}  // namespace headrace
