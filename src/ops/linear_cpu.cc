// The CPU kernels around the instruction-set files: the reference, and the driver that stages x and
// deals row groups to threads.
#include "ops/linear_cpu.h"

#include "ops/linear.h"

namespace headrace {

// Exact weights, exact activations, double sums; M x N dot products one after the other.
void linear_cpu_reference(OpContext& context, const LinearArgs& args) {
  const int64_t k = args.weight->k();
  Workspace::Mark mark(context.workspace);
  float* w = context.workspace.take_array<float>(k);
  for (int64_t n = 0; n < args.weight->n(); ++n) {
    args.weight->read_row(n, w);
    for (int64_t m = 0; m < args.x.rows(); ++m) {
      const float* x = f32_row(args.x, m);
      double sum = args.bias == nullptr ? 0.0 : args.bias[n];
      for (int64_t c = 0; c < k; ++c) sum += static_cast<double>(w[c]) * x[c];
      float& y = f32_row(args.y, m)[n];
      y = static_cast<float>(args.output == LinearOutput::kAccumulate ? y + sum : sum);
    }
  }
}

}  // namespace headrace
