#include "ops/embedding.h"

#include <array>

namespace headrace {

void embedding_reference(OpContext&, const EmbeddingArgs&);  // embedding_cpu.cc

namespace {

bool on_cpu(const DeviceTraits& traits, const EmbeddingArgs&) {
  return traits.kind == DeviceKind::kCpu;
}

constexpr std::array kKernels = {
    Kernel<EmbeddingArgs>{"embedding/cpu/reference", on_cpu, embedding_reference},
};

void check_args(const EmbeddingArgs& args) {
  const int64_t tokens = static_cast<int64_t>(args.tokens.size());
  CHECK(args.table.shape.rank() == 2);
  CHECK(args.out.dtype == DType::kF32);
  CHECK((args.out.shape == Shape{tokens, args.table.columns()}));
}

}  // namespace

KernelSet<EmbeddingArgs> embedding_kernels() { return KernelSet<EmbeddingArgs>(kKernels); }

void embedding(OpContext& context, const EmbeddingArgs& args) {
  check_args(args);
  embedding_kernels().select(context.device, args).run(context, args);
}

}  // namespace headrace
