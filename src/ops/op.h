// What every op shares: the context it runs in and the table its kernels stand in.
//
// An op is a family of files (docs/architecture.md): op.h with the arguments and their shapes,
// op.cc with checks and dispatch, op_cpu.cc with `reference` first, op_cpu_<isa>.cc, op_cuda.cu,
// op_test.cc.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

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

// Activations are f32 on the CPU; on CUDA F32, F16 or BF16, one type in all of a model.
inline bool is_activation(const Device& device, DType dtype) {
  if (dtype == DType::kF32) return true;
  return device.kind() == DeviceKind::kCuda && (dtype == DType::kF16 || dtype == DType::kBF16);
}

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

// The tables of an op's devices as one, in this order.
template <class Args>
std::vector<Kernel<Args>> join_kernels(
    std::initializer_list<std::span<const Kernel<Args>>> tables) {
  std::vector<Kernel<Args>> kernels;
  for (const auto& table : tables) kernels.insert(kernels.end(), table.begin(), table.end());
  return kernels;
}

}  // namespace headrace
