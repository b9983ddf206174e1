// linear_amx_bench: what bounds the kernels of AMX, and which of their constants are best.
//
//   linear_amx_bench [--threads 1,2] [--rows 512] [--rounds N] [--types BF16,Q8_0,Q4_1,Q6_K]
//                    [--model 135M|1.2B] [--wide 0|1] [--probes 0|1] [--copies N]
//
// Probes: parts of the inner loops alone. Then every variant at every product of a layer, taking
// turns round by round beside the kernels without AMX; medians. Every variant must give the bits of
// the first kernel of its arithmetic: another result ends the program with status 1. `of_peak` is
// against the peak measured in the same run on as many threads. --wide 1: rows of x have tails, so
// that some of their blocks are wide. One JSON line a measurement.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linear_amx_variants.h"
#include "ops/ceilings/ceiling.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_cpu.h"
#include "ops/packing/random_matrix.h"

namespace headrace {
namespace {

struct LayerShape {
  std::string_view name;
  int64_t n, k;
};
constexpr LayerShape kSmallLayer[] = {
    {"qkv", 960, 576}, {"o", 576, 576}, {"gate_up", 3072, 576}, {"down", 576, 1536}};
constexpr LayerShape kLargeLayer[] = {
    {"qkv", 3072, 2048}, {"o", 2048, 2048}, {"gate_up", 16384, 2048}, {"down", 2048, 8192}};

struct Options {
  std::vector<int> threads{1, 2};
  int64_t rows = 512;
  int rounds = 5;
  std::string types = "BF16,Q8_0,Q4_1,Q6_K";
  bool large = false;
  bool wide = false;
  bool probes = true;
  int64_t copies = 48;  // of a small matrix, at most
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// A kernel beside others: what multiplies block types and what multiplies floats.
struct Candidate {
  std::string name;
  LinearCpuIsa blocks;
  LinearFloatKernels floats;
};

class Bench {
 public:
  Bench(const Options& options, int threads)
      : options_(options),
        threads_(threads),
        device_(create_cpu_device(threads)),
        stream_(device_->create_stream()),
        workspace_(std::move(device_->allocate(64 << 20).value())) {}

  void run() {
    for (const DType dtype : kWeightTypes) {
      if (("," + options_.types + ",").find(fmt::format(",{},", dtype_name(dtype))) !=
          std::string::npos) {
        time_type(dtype);
      }
    }
  }

  void run_probes() {
    if (!amx()) return;
    for (const AmxProbe& probe : std::span(kAmxProbes, static_cast<size_t>(kAmxProbeCount))) {
      const double peak = peak_of("bf16");
      int64_t rounds = 1;
      double seconds = 0;
      for (; seconds < 0.02; rounds *= 2) seconds = time_probe(probe, rounds);
      std::vector<double> times;
      for (int i = 0; i < 5; ++i) times.push_back(time_probe(probe, rounds));
      const double operations = 2.0 * 16 * 16 * 32 * static_cast<double>(probe.products_per_round) *
                                static_cast<double>(rounds) * threads_;
      const double speed = operations / median(times) / 1e9;
      fmt::print(
          "{{\"bench\": \"amx_probe\", \"probe\": \"{}\", \"threads\": {}, \"GOP/s\": {:.0f}, "
          "\"of_peak\": {:.3f}}}\n",
          probe.name, threads_, speed, speed / peak);
    }
  }

  bool failed() const { return failed_; }

 private:
  bool amx() const {
    const CpuFeatures& cpu = device_->traits().cpu;
    return cpu.amx_int8 && cpu.amx_bf16 && cpu.avx512_vnni && cpu.avx512_bf16;
  }

  double time_probe(const AmxProbe& probe, int64_t rounds) {
    const double start = seconds_now();
    device_->pool().run([&](int) { probe.run(rounds); });
    return seconds_now() - start;
  }

  // Of the best instruction that multiplies `type`, on all threads.
  double peak_of(std::string_view type) {
    for (const ArithmeticCeiling& ceiling : arithmetic_ceilings()) {
      if (ceiling.type != type || !ceiling.supports(device_->traits().cpu)) continue;
      std::vector<double> speeds;
      for (int i = 0; i < 5; ++i) {
        constexpr int64_t kRounds = 200'000;
        const double start = seconds_now();
        device_->pool().run(
            [&](int thread) { sinks_[static_cast<size_t>(thread)] += ceiling.run(kRounds); });
        const double operations =
            static_cast<double>(kRounds * ceiling.operations_per_round) * threads_;
        speeds.push_back(operations / (seconds_now() - start) / 1e9);
      }
      return median(speeds);
    }
    return 1;
  }

  std::vector<Candidate> candidates(DType dtype) const {
    const CpuFeatures& cpu = device_->traits().cpu;
    std::vector<Candidate> list;
    if (is_quantised(dtype)) {
      list.push_back({"vnni", kLinearAvx512Vnni, kLinearAvx512Floats});
      if (!amx()) return list;
      for (const AmxPanelVariant& variant :
           std::span(kAmxPanelVariants, static_cast<size_t>(kAmxPanelVariantCount))) {
        LinearCpuIsa isa = kLinearAvx512Vnni;
        isa.panels = &variant.kernels;
        list.push_back({fmt::format("amx {}", variant.name), isa, kLinearAvx512Floats});
      }
      return list;
    }
    const auto& plain = cpu.fast_bf16_dot ? kLinearAvx512Bf16Floats : kLinearAvx512Floats;
    if (amx()) {
      for (const AmxTileVariant& variant :
           std::span(kAmxTileVariants, static_cast<size_t>(kAmxTileVariantCount))) {
        LinearFloatKernels floats = plain;
        floats.bf16 = &variant.kernel;
        list.push_back({fmt::format("amx {}", variant.name), kLinearAvx512Vnni, floats});
      }
    }
    list.push_back({"avx512", kLinearAvx512Vnni, plain});
    return list;
  }

  std::span<const LayerShape> shapes() const {
    return options_.large ? std::span(kLargeLayer) : std::span(kSmallLayer);
  }

  void make_rows(int64_t k) {
    Rng rng(2);
    x_.resize(static_cast<size_t>(options_.rows * k));
    for (float& v : x_) {
      v = static_cast<float>(uniform01(rng.next())) - 0.5f;
      if (options_.wide) v /= static_cast<float>(0.05 + uniform01(rng.next()));
    }
  }

  double time_once(const Candidate& candidate, std::span<const LinearWeight> copies) {
    OpContext context{*device_, *stream_, workspace_, mesh_};
    const double start = seconds_now();
    for (const LinearWeight& weight : copies) {
      const LinearArgs args{.x = {reinterpret_cast<const std::byte*>(x_.data()), DType::kF32,
                                  Shape{options_.rows, weight.k()}},
                            .weight = &weight,
                            .bias = nullptr,
                            .y = {reinterpret_cast<std::byte*>(y_.data()), DType::kF32,
                                  Shape{options_.rows, weight.n()}}};
      linear_cpu_tiled(context, args, {candidate.blocks, candidate.floats});
    }
    return seconds_now() - start;
  }

  // Bits of the first candidate whose arithmetic this is: avx512 has another for BF16.
  void check(const Candidate& candidate, std::map<bool, std::vector<float>>& wants) {
    if (candidate.name == "avx512") return;
    std::vector<float>& want = wants[candidate.name.starts_with("amx")];
    if (want.empty()) want = y_;
    if (std::memcmp(want.data(), y_.data(), want.size() * sizeof(float)) == 0) return;
    fmt::print("{{\"error\": \"{}: other bits than the first kernel\"}}\n", candidate.name);
    failed_ = true;
  }

  void time_type(DType dtype) {
    const std::vector<Candidate> list = candidates(dtype);
    const double peak = peak_of(is_quantised(dtype) ? "int8" : "bf16");
    std::vector<double> seconds(list.size());
    double operations = 0;
    for (const LayerShape& shape : shapes()) {
      if (shape.k % dtype_info(dtype).block_elements != 0) continue;
      const std::vector<double> times = time_shape(dtype, shape, list);
      const double work = 2.0 * static_cast<double>(options_.rows * shape.n * shape.k);
      for (size_t c = 0; c < list.size(); ++c) {
        report(dtype, shape.name, list[c], work / times[c] / 1e9, peak);
        seconds[c] += times[c];
      }
      operations += work;
    }
    for (size_t c = 0; c < list.size(); ++c) {
      report(dtype, "layer", list[c], operations / seconds[c] / 1e9, peak);
    }
  }

  void report(DType dtype, std::string_view shape, const Candidate& candidate, double speed,
              double peak) {
    fmt::print(
        "{{\"bench\": \"linear_amx\", \"model\": \"{}\", \"type\": \"{}\", \"layer\": \"{}\", "
        "\"kernel\": \"{}\", \"threads\": {}, \"rows\": {}, \"wide\": {}, \"GOP/s\": {:.0f}, "
        "\"of_peak\": {:.3f}}}\n",
        options_.large ? "1.2B" : "135M", dtype_name(dtype), shape, candidate.name, threads_,
        options_.rows, options_.wide ? 1 : 0, speed, speed / peak);
    std::fflush(stdout);
  }

  // Seconds of one product by each candidate.
  std::vector<double> time_shape(DType dtype, const LayerShape& shape,
                                 std::span<const Candidate> list) {
    Rng rng(1);
    const RandomMatrix matrix(rng, dtype, shape.n, shape.k);
    const LinearSource source{matrix.view(), {}};
    std::vector<LinearWeight> copies;
    // More than the caches hold, as the layers of a model are.
    const int64_t bytes = shape.n * shape.k * (is_quantised(dtype) ? 1 : 2);
    for (int64_t i = 0; i < std::clamp<int64_t>((192 << 20) / bytes, 1, options_.copies); ++i) {
      copies.push_back(
          std::move(LinearWeight::pack(*device_, {&source, 1}, LinearCompute::kFast).value()));
    }
    make_rows(shape.k);
    y_.assign(static_cast<size_t>(options_.rows * shape.n), 0);
    std::vector<std::vector<double>> times(list.size());
    std::map<bool, std::vector<float>> want;
    for (int round = 0; round <= options_.rounds; ++round) {
      for (size_t c = 0; c < list.size(); ++c) {
        const double taken = time_once(list[c], copies);
        if (round == 0) check(list[c], want);
        if (round > 0) times[c].push_back(taken / static_cast<double>(copies.size()));
      }
    }
    std::vector<double> medians;
    for (const auto& all : times) medians.push_back(median(all));
    return medians;
  }

  Options options_;
  int threads_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
  std::vector<float> x_, y_;
  double sinks_[256] = {};  // so that no loop is left out
  bool failed_ = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i], value = argv[i + 1];
    if (flag == "--rows") options.rows = std::max(1L, std::atol(argv[i + 1]));
    if (flag == "--rounds") options.rounds = std::max(1, std::atoi(argv[i + 1]));
    if (flag == "--types") options.types = value;
    if (flag == "--model") options.large = value == "1.2B";
    if (flag == "--wide") options.wide = value == "1";
    if (flag == "--copies") options.copies = std::max(1L, std::atol(argv[i + 1]));
    if (flag == "--probes") options.probes = value == "1";
    if (flag == "--threads") {
      options.threads.clear();
      for (const char* at = argv[i + 1]; *at != 0;) {
        char* end = nullptr;
        options.threads.push_back(
            static_cast<int>(std::clamp(std::strtol(at, &end, 10), 1L, 256L)));
        at = *end == ',' ? end + 1 : "";
      }
    }
  }
  return options;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  const headrace::Options options = headrace::parse(argc, argv);
  bool failed = false;
  for (const int threads : options.threads) {
    headrace::Bench bench(options, threads);
    if (options.probes) bench.run_probes();
    bench.run();
    failed = failed || bench.failed();
  }
  return failed ? 1 : 0;
}
