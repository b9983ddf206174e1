#include "bench/bench_ceilings_device.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/rng.h"
#include "bench/workload.h"
#include "ops/ceilings/ceiling.h"
#include "tensor/gemm_library.h"
#include "tensor/half.h"

namespace headrace {
namespace {

constexpr int64_t kMemoryBytes = int64_t{8} << 30;  // 130 times the L2
constexpr int64_t kLinkBytes = int64_t{256} << 20;
constexpr double kRunSeconds = 0.03;  // of one timed run: a launch and a wait are 0.1 % of it

// The matrices of one layer and the head of the 8B shape, [N, K].
struct Matrix {
  int64_t n, k;
};
constexpr std::array kLayer = {Matrix{6144, 4096}, Matrix{4096, 4096}, Matrix{28672, 4096},
                               Matrix{4096, 14336}};
constexpr Matrix kHead = {128256, 4096};
constexpr int64_t kWidest = 28672;
constexpr std::array<int64_t, 11> kRows = {1, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
constexpr int kWeightSets = 3;  // in turn, so that no layer finds its weights in the cache

class DeviceCeilings {
 public:
  DeviceCeilings(Device& device, int repetitions,
                 const std::function<void(const CeilingRow&)>& print)
      : device_(device),
        repetitions_(repetitions),
        print_(print),
        stream_(device.create_stream()) {}

  Status run() {
    HR_RETURN_IF_ERROR(measure_memory());
    HR_RETURN_IF_ERROR(measure_link());
    return measure_products();
  }

 private:
  // Median seconds of one `work()` that starts something on the stream.
  template <class Work>
  Result<double> seconds(const Work& work) {
    HR_ASSIGN_OR_RETURN(const double once, time(work, 1));
    const auto times = static_cast<int>(std::clamp(kRunSeconds / once, 1.0, 10000.0));
    std::vector<double> values;
    for (int i = -1; i < repetitions_; ++i) {
      HR_ASSIGN_OR_RETURN(const double all, time(work, times));
      if (i >= 0) values.push_back(all / times);
    }
    return percentile(values, 0.5);
  }
  template <class Work>
  Result<double> time(const Work& work, int times) {
    HR_RETURN_IF_ERROR(stream_->synchronize());
    const double start = clock_.now_seconds();
    for (int i = 0; i < times; ++i) work();
    HR_RETURN_IF_ERROR(stream_->synchronize());
    return clock_.now_seconds() - start;
  }
  void print_rate(const char* name, int64_t bytes_moved, int64_t bytes, double seconds) {
    print_({name, fmt::format("{} MiB", bytes >> 20),
            static_cast<double>(bytes_moved) * 1e-9 / seconds, "GB/s"});
  }

  Status measure_memory() {
    HR_ASSIGN_OR_RETURN(const Buffer memory, device_.allocate(kMemoryBytes));
    HR_RETURN_IF_ERROR(fill_random(memory));
    const auto bytes = std::span<const std::byte>(memory.data(), static_cast<size_t>(kMemoryBytes));
    HR_ASSIGN_OR_RETURN(const double read, seconds([&] {
                          read_all_cuda(*stream_, device_.traits().sm_count, bytes);
                        }));
    print_rate("read", kMemoryBytes, kMemoryBytes, read);
    const int64_t half = kMemoryBytes / 2;
    HR_ASSIGN_OR_RETURN(const double copy,
                        seconds([&] { stream_->copy(memory.data(), memory.data() + half, half); }));
    print_rate("copy", 2 * half, half, copy);
    return ok_status();
  }

  Status measure_link() {
    HR_ASSIGN_OR_RETURN(const Buffer memory, device_.allocate(kLinkBytes));
    HR_ASSIGN_OR_RETURN(const Buffer host, device_.allocate_host(kLinkBytes));
    std::fill_n(host.data(), kLinkBytes, std::byte{1});
    HR_ASSIGN_OR_RETURN(const double in,
                        seconds([&] { stream_->copy_in(memory.data(), host.data(), kLinkBytes); }));
    print_rate("host_to_device", kLinkBytes, kLinkBytes, in);
    HR_ASSIGN_OR_RETURN(const double out, seconds([&] {
                          stream_->copy_out(host.data(), memory.data(), kLinkBytes);
                        }));
    print_rate("device_to_host", kLinkBytes, kLinkBytes, out);
    return ok_status();
  }

  // Random BF16 of sigma 0.6, one block of 32 MiB after the other: matrix products are faster on
  // zeros.
  Status fill_random(const Buffer& memory) {
    constexpr int64_t kBlockBytes = int64_t{32} << 20;
    if (random_.empty()) {
      Rng rng(7);
      random_.resize(kBlockBytes / 2);
      for (uint16_t& value : random_) {
        value = float_to_bfloat16(static_cast<float>(2 * rng.uniform() - 1));
      }
    }
    for (int64_t at = 0; at < memory.size(); at += kBlockBytes) {
      stream_->copy_in(memory.data() + at, reinterpret_cast<const std::byte*>(random_.data()),
                       std::min(kBlockBytes, memory.size() - at));
    }
    return stream_->synchronize();
  }

  Status measure_products() {
    HR_ASSIGN_OR_RETURN(library_, device_.gemm_library());
    HR_ASSIGN_OR_RETURN(workspace_, device_.allocate(GemmLibrary::kWorkspaceBytes));
    int64_t layer_bytes = 0;
    for (const Matrix& matrix : kLayer) layer_bytes += matrix.n * matrix.k * 2;
    HR_ASSIGN_OR_RETURN(weights_, device_.allocate(kWeightSets * layer_bytes));
    HR_ASSIGN_OR_RETURN(x_, device_.allocate(kRows.back() * kWidest * 2));
    HR_ASSIGN_OR_RETURN(y_, device_.allocate(kRows.back() * kWidest * 2));
    HR_RETURN_IF_ERROR(fill_random(weights_));
    HR_RETURN_IF_ERROR(fill_random(x_));
    for (const int64_t rows : kRows) {
      HR_RETURN_IF_ERROR(print_products("layer_bf16", kLayer, kWeightSets, rows));
    }
    // The head's 1 GiB is its own rotation.
    for (const int64_t rows : {int64_t{1}, int64_t{64}, int64_t{256}}) {
      HR_RETURN_IF_ERROR(print_products("head_bf16", {&kHead, 1}, 1, rows));
    }
    return ok_status();
  }

  // As a graph, so that short products do not wait for their launches.
  Status print_products(const char* name, std::span<const Matrix> matrices, int sets,
                        int64_t rows) {
    const auto start_all = [&] {
      const std::byte* w = weights_.data();
      for (int set = 0; set < sets; ++set) {
        for (const Matrix& matrix : matrices) {
          multiply(matrix, rows, w);
          w += matrix.n * matrix.k * 2;
        }
      }
    };
    start_all();  // algorithms are chosen, kernels loaded
    HR_RETURN_IF_ERROR(stream_->synchronize());
    HR_RETURN_IF_ERROR(stream_->begin_capture());
    start_all();
    HR_ASSIGN_OR_RETURN(const auto graph, stream_->end_capture());
    HR_ASSIGN_OR_RETURN(const double all, seconds([&] { stream_->launch(*graph); }));
    print_({name, fmt::format("M {}", rows), all / sets * 1e3, "ms"});
    return ok_status();
  }

  void multiply(const Matrix& matrix, int64_t rows, const std::byte* w) {
    library_->run(*stream_,
                  {.x = x_.data(),
                   .w = w,
                   .y = y_.data(),
                   .m = rows,
                   .n = matrix.n,
                   .k = matrix.k,
                   .x_stride = matrix.k,
                   .y_stride = matrix.n},
                  workspace_.data());
  }

  Device& device_;
  const int repetitions_;
  const std::function<void(const CeilingRow&)>& print_;
  const SystemClock clock_;
  GemmLibrary* library_ = nullptr;
  Buffer workspace_, weights_, x_, y_;
  std::vector<uint16_t> random_;
  std::unique_ptr<Stream> stream_;  // last: waits for work on the memory above before it goes
};

}  // namespace

Status measure_device_ceilings(Device& device, int repetitions,
                               const std::function<void(const CeilingRow&)>& print) {
  return DeviceCeilings(device, repetitions, print).run();
}

}  // namespace headrace
