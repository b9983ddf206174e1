// linear_bench: linear at the shapes of SmolLM2-135M (Q4_1, head Q8_0) or of a 1.2B model, every
// kernel that this CPU runs; what packing costs; and how far results are from exact ones.
//
//   linear_bench [--threads N] [--type Q4_1] [--kernel NAME] [--rounds N] [--activation-bits 8|16]
//                [--model 135M|1.2B] [--rows 1,8,128,512]
//
// One JSON line a measurement. Times are medians; kernels alternate round by round.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/ceilings/ceiling.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_cpu.h"
#include "ops/packing/random_matrix.h"

namespace headrace {
namespace {

struct Options {
  int threads = 0;
  DType dtype = DType::kQ4_1;
  std::string kernel;  // part of the name; empty: all
  int rounds = 15;
  LinearCompute compute = LinearCompute::kFast;
  bool large = false;
  std::vector<int64_t> row_counts{1, 8, 128, 512};
};

struct LayerShape {
  std::string_view name;
  int64_t n, k;
  int count;  // in the model
};

constexpr int kLayers = 30;
constexpr LayerShape kShapes[] = {{"qkv", 960, 576, kLayers},
                                  {"o", 576, 576, kLayers},
                                  {"gate_up", 3072, 576, kLayers},
                                  {"down", 576, 1536, kLayers},
                                  {"head", 49152, 576, 1}};
constexpr LayerShape kLargeShapes[] = {{"qkv", 3072, 2048, 16},
                                       {"o", 2048, 2048, 16},
                                       {"gate_up", 16384, 2048, 16},
                                       {"down", 2048, 8192, 16},
                                       {"head", 128256, 2048, 1}};
constexpr int64_t kWorkspaceBytes = 64 << 20;  // 512 rows of 8192 floats are 16 MB

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        shapes_(options.large ? std::span(kLargeShapes) : std::span(kShapes)),
        device_(create_cpu_device(options.threads)),
        stream_(device_->create_stream()),
        workspace_(std::move(device_->allocate(kWorkspaceBytes).value())) {}

  void run() {
    pack_weights();
    for (const int64_t m : options_.row_counts) time_kernels(m);
    accuracy();
  }

 private:
  using Run = void (*)(OpContext&, const LinearArgs&);
  struct Candidate {
    std::string name;
    Run run;
  };

  std::vector<Candidate> candidates() const {
    std::vector<Candidate> out;
    for (const auto& kernel : linear_kernels().all()) {
      const bool wanted = kernel.name.find(options_.kernel) != std::string_view::npos;
      if (!wanted || kernel.name.ends_with("reference")) continue;
      if (kernel.supports(device_->traits(), LinearArgs{})) {
        out.push_back({std::string(kernel.name), kernel.run});
      }
    }
    return out;
  }

  // One copy of each layer's weights, as the model has them: a token reads all of it.
  void pack_weights() {
    Rng rng(1);
    double seconds = 0;
    int64_t bytes = 0;
    for (const LayerShape& shape : shapes_) {
      const DType dtype =
          shape.name == "head" && is_quantised(options_.dtype) ? DType::kQ8_0 : options_.dtype;
      const RandomMatrix source(rng, dtype, shape.n, shape.k);
      const LinearSource matrix{source.view(), {}};
      std::vector<LinearWeight> copies;
      for (int i = 0; i < shape.count; ++i) {
        const double start = seconds_now();
        copies.push_back(
            std::move(LinearWeight::pack(*device_, {&matrix, 1}, options_.compute).value()));
        seconds += seconds_now() - start;
        bytes += copies.back().packed_bytes();
      }
      weights_.push_back(std::move(copies));
    }
    model_bytes_ = bytes;
    fmt::print("{{\"bench\": \"linear_pack\", \"type\": \"{}\", \"MB\": {:.1f}, \"ms\": {:.1f}}}\n",
               dtype_name(options_.dtype), static_cast<double>(bytes) / 1e6, seconds * 1e3);
  }

  // Seconds of all layers of one shape, one after the other.
  double time_shape(size_t shape, const Candidate& candidate, int64_t m) {
    const LayerShape& layer = shapes_[shape];
    x_.resize(static_cast<size_t>(m * layer.k));
    y_.resize(static_cast<size_t>(m * layer.n));
    Rng rng(2);
    for (float& v : x_) v = static_cast<float>(uniform01(rng.next())) - 0.5f;
    OpContext context{*device_, *stream_, workspace_, mesh_};
    const double start = seconds_now();
    for (const LinearWeight& weight : weights_[shape]) {
      candidate.run(context, arguments(weight, m));
    }
    return seconds_now() - start;
  }

  // Seconds of reading the same bytes and nothing else, each thread the share that it multiplies.
  double time_read(size_t shape) {
    std::vector<uint64_t> sums(static_cast<size_t>(device_->pool().thread_count()));
    const double start = seconds_now();
    for (const LinearWeight& weight : weights_[shape]) {
      const LinearWeight::Segment& segment = weight.segments()[0];
      const auto threads = static_cast<int64_t>(sums.size());
      device_->pool().run([&](int thread) {
        const int64_t first = segment.group_count * thread / threads;
        const int64_t last = segment.group_count * (thread + 1) / threads;
        const auto bytes = static_cast<size_t>((last - first) * segment.group_bytes / 1024 * 1024);
        sums[static_cast<size_t>(thread)] +=
            read_all(device_->traits().cpu, {segment.data + first * segment.group_bytes, bytes});
      });
    }
    const double seconds = seconds_now() - start;
    used_ += std::ranges::max(sums);
    return seconds;
  }

  LinearArgs arguments(const LinearWeight& weight, int64_t m) {
    return {.x = {reinterpret_cast<const std::byte*>(x_.data()), DType::kF32, Shape{m, weight.k()}},
            .weight = &weight,
            .bias = nullptr,
            .y = {reinterpret_cast<std::byte*>(y_.data()), DType::kF32, Shape{m, weight.n()}}};
  }

  void time_kernels(int64_t m) {
    const std::vector<Candidate> list = candidates();
    // [candidate][shape] -> seconds of each round
    std::vector<std::vector<std::vector<double>>> times(
        list.size(), std::vector<std::vector<double>>(shapes_.size()));
    std::vector<double> reads;
    const int rounds = m >= 128 ? std::max(3, options_.rounds / 3) : options_.rounds;
    for (int round = 0; round <= rounds; ++round) {
      double read = 0;
      for (size_t s = 0; s < shapes_.size(); ++s) read += time_read(s);
      if (round > 0) reads.push_back(read);
      for (size_t c = 0; c < list.size(); ++c) {
        for (size_t s = 0; s < shapes_.size(); ++s) {
          // Only the last row of a prompt goes through the head.
          const double t = time_shape(s, list[c], shapes_[s].name == "head" && m > 8 ? 1 : m);
          if (round > 0) times[c][s].push_back(t);
        }
      }
    }
    for (size_t c = 0; c < list.size(); ++c) report(list[c], m, times[c]);
    fmt::print("{{\"bench\": \"read\", \"GB/s\": {:.1f}}}\n",
               static_cast<double>(model_bytes_) / median(reads) / 1e9);
  }

  void report(const Candidate& candidate, int64_t m,
              const std::vector<std::vector<double>>& times) {
    double total = 0, flops = 0;
    for (size_t s = 0; s < shapes_.size(); ++s) {
      const LayerShape& shape = shapes_[s];
      const int64_t rows = shape.name == "head" && m > 8 ? 1 : m;
      const double seconds = median(times[s]);
      const double work = 2.0 * static_cast<double>(rows * shape.n * shape.k * shape.count);
      const double bytes = static_cast<double>(weights_[s][0].packed_bytes()) * shape.count;
      fmt::print(
          "{{\"bench\": \"linear\", \"kernel\": \"{}\", \"layer\": \"{}\", \"m\": {}, \"us\": "
          "{:.1f}, \"GB/s\": {:.1f}, \"GFLOP/s\": {:.0f}}}\n",
          candidate.name, shape.name, rows, seconds / shape.count * 1e6, bytes / seconds / 1e9,
          work / seconds / 1e9);
      total += seconds;
      flops += work;
    }
    fmt::print(
        "{{\"bench\": \"linear_model\", \"kernel\": \"{}\", \"m\": {}, \"ms\": {:.3f}, "
        "\"tokens/s\": {:.0f}, \"GB/s\": {:.1f}, \"GFLOP/s\": {:.0f}}}\n",
        candidate.name, m, total * 1e3, static_cast<double>(m) / total,
        static_cast<double>(model_bytes_) / total / 1e9, flops / total / 1e9);
  }

  // Error against exact weights and activations in double, relative to the outputs' size.
  void accuracy() {
    constexpr size_t kShape = 3;  // down: the longest sum
    const LinearWeight& weight = weights_[kShape][0];
    constexpr int64_t kRows = 8;
    x_.resize(static_cast<size_t>(kRows * weight.k()));
    Rng rng(3);
    // Activations of a transformer have tails: a product of uniforms has some.
    for (float& v : x_) {
      v = static_cast<float>((uniform01(rng.next()) - 0.5) / (0.05 + uniform01(rng.next())));
    }
    std::vector<double> exact(static_cast<size_t>(kRows * weight.n()));
    std::vector<float> row(static_cast<size_t>(weight.k()));
    double squares = 0;
    for (int64_t n = 0; n < weight.n(); ++n) {
      weight.read_row(n, row.data());
      for (int64_t m = 0; m < kRows; ++m) {
        double sum = 0;
        for (int64_t c = 0; c < weight.k(); ++c) {
          sum += double{row[static_cast<size_t>(c)]} * x_[static_cast<size_t>(m * weight.k() + c)];
        }
        exact[static_cast<size_t>(m * weight.n() + n)] = sum;
        squares += sum * sum;
      }
    }
    y_.resize(exact.size());
    OpContext context{*device_, *stream_, workspace_, mesh_};
    for (const Candidate& candidate : candidates()) {
      candidate.run(context, arguments(weight, kRows));
      double errors = 0;
      for (size_t i = 0; i < exact.size(); ++i) errors += std::pow(y_[i] - exact[i], 2);
      fmt::print(
          "{{\"bench\": \"linear_accuracy\", \"kernel\": \"{}\", \"relative_rms\": {:.2e}}}\n",
          candidate.name, std::sqrt(errors / squares));
    }
  }

  Options options_;
  std::span<const LayerShape> shapes_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
  std::vector<std::vector<LinearWeight>> weights_;  // by shape, then layer
  int64_t model_bytes_ = 0;
  std::vector<float> x_, y_;
  uint64_t used_ = 0;  // so that no reading is left out
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i], value = argv[i + 1];
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--rounds") options.rounds = std::atoi(argv[i + 1]);
    if (flag == "--activation-bits" && value == "16") options.compute = LinearCompute::kFastWide;
    if (flag == "--kernel") options.kernel = value;
    if (flag == "--model") options.large = value == "1.2B";
    if (flag == "--rows") {
      options.row_counts.clear();
      for (const char* at = argv[i + 1]; *at != 0;) {
        char* end = nullptr;
        options.row_counts.push_back(std::max(1L, std::strtol(at, &end, 10)));
        at = *end == ',' ? end + 1 : "";
      }
    }
    if (flag == "--type") {
      for (size_t t = 0; t < kDTypeInfo.size(); ++t) {
        if (kDTypeInfo[t].name == value) options.dtype = static_cast<DType>(t);
      }
    }
  }
  return options;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { headrace::Bench(headrace::parse(argc, argv)).run(); }
