// KernelTrace: which kernels ran on the GPU, and how long each took, by the device's own clock;
// also those that a graph started. CUPTI does it, opened at run time: a program without it starts
// all the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace headrace {

struct KernelRun {
  std::string name;  // as the compiler spells it (mangled)
  int64_t start_ns = 0, end_ns = 0;
  uint32_t gpu = 0;
};

// One at a time in a process. Everything that any thread runs on the GPU is recorded; a kernel
// costs a microsecond more meanwhile.
class KernelTrace {
 public:
  // kUnavailable where CUPTI is not there, kUnsupported in a build without CUDA.
  static Result<std::unique_ptr<KernelTrace>> start();
  virtual ~KernelTrace() = default;  // ends it
  // What ran since start() or the last take(), in order of its start; of several GPUs on the first,
  // since ranks of a model compute alike. REQUIRES: the devices are idle
  virtual Result<std::vector<KernelRun>> take() = 0;
};

// "attention_decode" of "_ZN8headrace3gpu16attention_decodeI...": what a kernel is called without
// namespaces, types and arguments; numbers that spell out a tile size are left in.
std::string kernel_family(const std::string& mangled);

}  // namespace headrace
