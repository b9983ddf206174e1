#include "tensor/kernel_trace.h"

namespace headrace {

Result<std::unique_ptr<KernelTrace>> KernelTrace::start() {
  return unsupported("this build has no CUDA: kernels are traced on a GPU alone");
}

}  // namespace headrace
