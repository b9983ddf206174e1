// What every op shares: the context it runs in and the table its kernels stand in.
//
// An op is a family of files (docs/architecture.md): op.h with the arguments and their shapes,
// op.cc with checks and dispatch, op_cpu.cc with `reference` first, op_cpu_<isa>.cc, op_cuda.cu,
// op_test.cc.
#pragma once

#include <span>
#include <string_view>

#include "base/check.h"
#include "tensor/communicator.h"
#include "tensor/device.h"
#include "tensor/workspace.h"

namespace headrace {

// One thread uses a context at a time.
struct OpContext {
  Device& device;
  Stream& stream;
  Workspace& workspace;
  Mesh& mesh;
};

template <class Args>
struct Kernel {
  std::string_view name;  // "rms_norm/cpu/avx512": in logs, tests and benches
  bool (*supports)(const DeviceTraits&, const Args&);
  void (*run)(OpContext&, const Args&);
};

// The kernels of one op, best first; the reference kernel of each device is the last that fits.
template <class Args>
class KernelSet {
 public:
  constexpr explicit KernelSet(std::span<const Kernel<Args>> kernels) : kernels_(kernels) {}

  const Kernel<Args>& select(const Device& device, const Args& args) const {
    for (const Kernel<Args>& kernel : kernels_) {
      if (kernel.supports(device.traits(), args)) return kernel;
    }
    CHECK_MSG(false, "no kernel supports these arguments");
    __builtin_unreachable();
  }
  std::span<const Kernel<Args>> all() const { return kernels_; }

 private:
  std::span<const Kernel<Args>> kernels_;
};

}  // namespace headrace
