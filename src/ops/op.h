// What every op shares: the context it runs in and the table its kernels stand in.
//
// An op is a family of files (docs/architecture.md): op.h with the arguments and their shapes,
// op.cc with checks and dispatch, op_cpu.cc with `reference` first, op_cpu_<isa>.cc, op_cuda.cu,
// op_test.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tensor/communicator.h"
#include "tensor/device.h"
#include "tensor/workspace.h"

namespace headrace {

// The bytes and operations that one call of an op needs, whatever kernel runs it.
struct OpCost {
  std::string shape;  // "3072 x 576 Q4_1", "9 heads of 64": calls of one shape differ in rows only
  int64_t rows = 0;   // of the batch
  int64_t bytes = 0;  // read and written once each
  int64_t flops = 0;  // multiplications and additions; 0: not worth counting
  std::string_view type = "f32";  // of what is multiplied: int8, bf16, f32 (ops/ceilings/ceiling.h)
};

// An observer that is told of every call of an op, after it is done.
class OpProbe {
 public:
  virtual ~OpProbe() = default;
  virtual void ran(std::string_view kernel, const OpCost& cost, int64_t nanoseconds) = 0;
};

// For measurements: what observes the ops of a run, and which kernels run instead of the best.
struct OpHooks {
  OpProbe* probe = nullptr;
  std::vector<std::string> preferred;  // kernels' names, first choice first; where one fits it runs
  // It is called with every kernel that is chosen, also inside ops that are made of others, before
  // the kernel is started or recorded; on the engine's thread and on the recorder's.
  std::function<void(std::string_view kernel)> chosen;
  // CPU: residuals are added by an op of their own, stacked matrices multiplied one by one. The
  // decoder itself asks for it (models/layer_weights.h): what is compared is the same pass with and
  // without, and a pass of the bench's own would be a second decoder, for all architectures.
  bool unfused = false;
};

// One thread uses a context at a time.
struct OpContext {
  Device& device;
  Stream& stream;
  Workspace& workspace;
  Mesh& mesh;
  const OpHooks* hooks = nullptr;
};

// Activations are f32 on the CPU; on CUDA F32, F16 or BF16, one type in all of a model.
inline bool is_activation(const Device& device, DType dtype) {
  if (dtype == DType::kF32) return true;
  return device.kind() == DeviceKind::kCuda && (dtype == DType::kF16 || dtype == DType::kBF16);
}

// How a kernel comes to run.
enum class Selection : uint8_t {
  kBest,    // it is taken where it fits and no such kernel before it in its table does
  kByName,  // it is taken only where OpHooks::preferred names it (--prefer-kernels): a kernel that
            // is measured against the best, or that tests need
};

template <class Args>
struct Kernel {
  std::string_view name;  // "rms_norm/cpu/avx512": in logs, tests and benches
  bool (*supports)(const DeviceTraits&, const Args&);
  void (*run)(OpContext&, const Args&);
  Selection selection = Selection::kBest;
  bool is_fallback = false;  // CUDA: for what the fast ones do not take, many times slower
};

// The kernels of one op on one device, best first; the reference kernel is the last.
template <class Args>
using KernelTable = std::span<const Kernel<Args>>;

// The kernels of one op: the tables of its devices.
template <class Args>
class KernelSet {
 public:
  explicit KernelSet(std::initializer_list<KernelTable<Args>> tables) {
    for (const KernelTable<Args>& table : tables) {
      kernels_.insert(kernels_.end(), table.begin(), table.end());
    }
  }

  // The best kernel that supports the arguments; null where none does.
  const Kernel<Args>* find(const DeviceTraits& device, const Args& args) const {
    for (const Kernel<Args>& kernel : kernels_) {
      if (kernel.selection == Selection::kBest && kernel.supports(device, args)) return &kernel;
    }
    return nullptr;
  }
  const Kernel<Args>& select(const Device& device, const Args& args) const {
    const Kernel<Args>* const kernel = find(device.traits(), args);
    CHECK_MSG(kernel != nullptr, "no kernel supports these arguments");
    return *kernel;
  }
  // The same, but where a kernel that `hooks` prefer fits, that one, however it is selected.
  const Kernel<Args>& select(const Device& device, const Args& args, const OpHooks& hooks) const {
    for (const std::string& name : hooks.preferred) {
      for (const Kernel<Args>& kernel : kernels_) {
        if (kernel.name == name && kernel.supports(device.traits(), args)) return kernel;
      }
    }
    return select(device, args);
  }
  KernelTable<Args> all() const { return kernels_; }

 private:
  std::vector<Kernel<Args>> kernels_;
};

int64_t op_clock_ns();                          // op.cc
int64_t bytes_of(const ConstTensorView& view);  // 0 for a view of nothing
// The cost of an op that goes over rows of `columns` once: what it reads and writes.
OpCost row_op_cost(int64_t rows, int64_t columns, int64_t bytes);

// Logs, once for each kernel and shape on a device, that no faster kernel takes the shape.
void note_fallback(Device& device, std::string_view kernel, const OpCost& cost);  // op.cc

// The kernel that runs for `args`: the best, or one that the hooks prefer.
template <class Args>
const Kernel<Args>& choose_kernel(OpContext& context, const KernelSet<Args>& kernels,
                                  const Args& args) {
  if (context.hooks == nullptr) return kernels.select(context.device, args);
  const Kernel<Args>& kernel = kernels.select(context.device, args, *context.hooks);
  if (context.hooks->chosen) context.hooks->chosen(kernel.name);
  return kernel;
}

// Runs the kernel for `args`. An op that a probe observes has a function op_cost(args).
template <class Args>
void run_op(OpContext& context, const KernelSet<Args>& kernels, const Args& args) {
  const Kernel<Args>& kernel = choose_kernel(context, kernels, args);
  if (kernel.is_fallback) note_fallback(context.device, kernel.name, op_cost(args));
  OpProbe* const probe = context.hooks == nullptr ? nullptr : context.hooks->probe;
  if (probe == nullptr) return kernel.run(context, args);
  const OpCost cost = op_cost(args);
  const int64_t start = op_clock_ns();
  kernel.run(context, args);
  // Errors stay with the stream, whose owner asks for them.
  (void)context.stream.synchronize();
  probe->ran(kernel.name, cost, op_clock_ns() - start);
}

}  // namespace headrace
