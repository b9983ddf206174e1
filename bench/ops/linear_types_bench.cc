// linear_types_bench: one weight shape in every type, with this machine's best kernel: one row
// (bound by reading the weights) and 512 rows (bound by arithmetic), and what packing costs.
//
//   linear_types_bench [--types Q4_1,Q4_K,...] [--threads N] [--rounds N] [--kernel NAME]
//
// One JSON line a type. Types alternate round by round; times are the best of the rounds, because
// other load only adds, and with one thread those of the thread's own CPU. `of_read` is the share
// of the speed at which plain loads read as many packed bytes on the same threads.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "ops/ceilings/ceiling.h"
#include "ops/linear/linear.h"
#include "ops/packing/random_matrix.h"

namespace headrace {
namespace {

constexpr int64_t kN = 4864, kK = 1024;  // Qwen2.5-0.5B's feed-forward, K in whole blocks of 256
constexpr int64_t kBytesPerType = 160 << 20;  // of weights that a row passes through: beyond caches
constexpr int64_t kPromptRows = 512;

struct Options {
  int threads = 0;
  int rounds = 15;
  std::string kernel = "";  // part of the name; empty: what this machine would choose
  std::string types = "Q4_1,Q8_0,Q5_0,Q4_K,Q6_K,Q4_0,Q5_1,Q2_K,Q3_K,Q5_K,IQ4_NL,IQ4_XS,BF16";
};

struct Type {
  DType dtype;
  std::vector<LinearWeight> copies;
  double pack_seconds = 0;
  std::vector<double> decode, prefill, read;  // seconds
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        device_(create_cpu_device(options.threads)),
        stream_(device_->create_stream()),
        workspace_(std::move(device_->allocate(16 << 20).value())),
        x_(static_cast<size_t>(kPromptRows * kK)),
        y_(static_cast<size_t>(kPromptRows * kN)) {
    Rng rng(2);
    for (float& v : x_) v = static_cast<float>(uniform01(rng.next())) - 0.5f;
    for (const auto& kernel : linear_kernels().all()) {
      const bool named = kernel.name.find(options.kernel) != std::string_view::npos;
      if (run_ == nullptr && named && kernel.supports(device_->traits(), LinearArgs{})) {
        run_ = kernel.run;
      }
    }
    CHECK_MSG(run_ != nullptr, "no kernel of this name runs here");
  }

  void run() {
    for (const DType dtype : kWeightTypes) {
      if (wanted(dtype)) types_.push_back(pack(dtype));
    }
    for (int round = 0; round <= options_.rounds; ++round) {
      for (Type& type : types_) measure(type, round > 0);
    }
    for (Type& type : types_) report(type);
  }

 private:
  double seconds_now() const {
    timespec now;
    const bool alone = device_->pool().thread_count() == 1;
    clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  }

  bool wanted(DType dtype) const {
    const std::string list = "," + options_.types + ",";
    return list.find(fmt::format(",{},", dtype_name(dtype))) != std::string::npos;
  }

  Type pack(DType dtype) {
    Rng rng(1);
    Type type{.dtype = dtype};
    const RandomMatrix matrix(rng, dtype, kN, kK);
    const LinearSource source{matrix.view(), {}};
    const double start = seconds_now();
    for (int64_t bytes = 0; bytes < kBytesPerType; bytes += type.copies[0].packed_bytes()) {
      type.copies.push_back(
          std::move(LinearWeight::pack(*device_, {&source, 1}, LinearCompute::kFast).value()));
    }
    type.pack_seconds = seconds_now() - start;
    return type;
  }

  void measure(Type& type, bool counts) {
    double start = seconds_now();
    for (const LinearWeight& weight : type.copies) multiply(weight, 1);
    const double decode = seconds_now() - start;
    start = seconds_now();
    for (const LinearWeight& weight : type.copies) read(weight);
    const double read = seconds_now() - start;
    start = seconds_now();
    multiply(type.copies[0], kPromptRows);
    const double prefill = seconds_now() - start;
    if (!counts) return;
    type.decode.push_back(decode);
    type.read.push_back(read);
    type.prefill.push_back(prefill);
  }

  void multiply(const LinearWeight& weight, int64_t m) {
    OpContext context{*device_, *stream_, workspace_, mesh_};
    run_(context, {.x = {reinterpret_cast<const std::byte*>(x_.data()), DType::kF32, Shape{m, kK}},
                   .weight = &weight,
                   .bias = nullptr,
                   .y = {reinterpret_cast<std::byte*>(y_.data()), DType::kF32, Shape{m, kN}}});
  }

  void read(const LinearWeight& weight) {
    const auto segment = weight.segments()[0];
    const int64_t bytes = segment.group_count * segment.group_bytes / 1024 * 1024;
    ThreadPool& pool = device_->pool();
    pool.run([&](int thread) {
      const int64_t first = bytes / 1024 * thread / pool.thread_count() * 1024;
      const int64_t last = bytes / 1024 * (thread + 1) / pool.thread_count() * 1024;
      sink_ += read_all(device_->traits().cpu,
                        {segment.data + first, static_cast<size_t>(last - first)});
    });
  }

  static double best(const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  }

  void report(Type& type) {
    const auto copies = static_cast<double>(type.copies.size());
    const double bytes = static_cast<double>(type.copies[0].packed_bytes()) * copies;
    const double file = static_cast<double>(*row_bytes(type.dtype, kN * kK)) * copies;
    const double decode = best(type.decode), prefill = best(type.prefill);
    fmt::print(
        "{{\"bench\": \"linear_types\", \"type\": \"{}\", \"pack_GB/s\": {:.2f}, \"of_file\": "
        "{:.3f}, \"decode_GB/s\": {:.1f}, \"of_read\": {:.2f}, \"prefill_GFLOP/s\": {:.0f}, "
        "\"prefill_of_{}\": {:.2f}}}\n",
        dtype_name(type.dtype), file / type.pack_seconds / 1e9, bytes / file, bytes / decode / 1e9,
        best(type.read) / decode, 2.0 * kPromptRows * kN * kK / prefill / 1e9,
        dtype_name(types_[0].dtype), best(types_[0].prefill) / prefill);
  }

  Options options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
  void (*run_)(OpContext&, const LinearArgs&) = nullptr;
  std::vector<float> x_, y_;
  std::vector<Type> types_;
  std::atomic<uint64_t> sink_ = 0;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--types") options.types = argv[i + 1];
    if (flag == "--kernel") options.kernel = argv[i + 1];
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--rounds") options.rounds = std::atoi(argv[i + 1]);
  }
  return options;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { headrace::Bench(headrace::parse(argc, argv)).run(); }
