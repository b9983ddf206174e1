// attention_cpu_bench: attention of one layer on the CPU at the shapes of small models, every
// kernel that this CPU runs: prompts (all rows of a sequence at once), decode (one row a sequence).
//
//   attention_cpu_bench [--threads N] [--kernel NAME] [--rounds N]
//
// One JSON line a measurement: the median of the rounds, kernels alternating; GFLOP/s counts 4 d
// for each key that a row sees (share: of the f32 ceiling taken in the same run), GB/s the cache
// read.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_numbers.h"
#include "ops/ceilings/ceiling.h"

namespace headrace {
namespace {

struct Options {
  int threads = 0;
  std::string kernel;  // part of the name; empty: all
  int rounds = 7;
};

struct Shape3 {
  std::string_view model;
  int32_t heads, kv_heads, dim, window;
};
constexpr Shape3 kShapes[] = {{"SmolLM2-135M", 9, 3, 64, 0},
                              {"Qwen2.5-0.5B", 14, 2, 64, 0},
                              {"Gemma-3-270M, window 512", 4, 1, 256, 512}};

struct Work {
  std::string_view name;
  int32_t sequences, rows, length;
};
constexpr Work kWork[] = {{"prompt 512", 1, 512, 512},
                          {"prompt 4096", 1, 512, 4096},  // its last chunk
                          {"decode at 4096", 1, 1, 4096},
                          {"decode at 16384", 1, 1, 16384},
                          {"decode, 8 at 1024", 8, 1, 1024}};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        device_(
            create_cpu_device(options.threads, CpuFeatures::detect(), CpuBinding::kAuto, false)),
        stream_(device_->create_stream()),
        workspace_(std::move(device_->allocate(64 << 20).value())) {
    flush_denormals_on_this_thread();
  }

  void run() {
    for (const Shape3& shape : kShapes) {
      for (const Work& work : kWork) {
        for (const KvFormat format : {KvFormat::kF16, KvFormat::kInt8}) {
          measure(shape, work, format);
        }
      }
    }
  }

 private:
  // GFLOP/s of f32 multiply-adds on all threads, now.
  double ceiling() {
    for (const ArithmeticCeiling& ceiling : arithmetic_ceilings()) {
      if (ceiling.type != "f32" || !ceiling.supports(device_->traits().cpu)) continue;
      constexpr int64_t kRounds = 500'000;
      const double start = seconds_now();
      std::vector<double> used(static_cast<size_t>(device_->pool().thread_count()));
      device_->pool().run([&](int t) { used[static_cast<size_t>(t)] = ceiling.run(kRounds); });
      return static_cast<double>(ceiling.operations_per_round * kRounds) *
             static_cast<double>(used.size()) / (seconds_now() - start) / 1e9;
    }
    return 0;
  }

  void measure(const Shape3& shape, const Work& work, KvFormat format) {
    KvLayerView kv{.k_format = format,
                   .v_format = format,
                   .kv_heads = shape.kv_heads,
                   .k_dim = shape.dim,
                   .v_dim = shape.dim};
    kv.v_offset = k_part_bytes(kv);
    kv.block_stride = 2 * kv.v_offset;
    const int32_t blocks = (work.length + 15) / 16;
    const Buffer cache =
        std::move(device_->allocate(int64_t{work.sequences} * blocks * kv.block_stride).value());
    kv.base = cache.data();
    Rng rng(1);
    fill(kv, int64_t{work.sequences} * blocks * 16, rng);
    std::vector<std::vector<int32_t>> tables;
    std::vector<AttentionSequence> sequences;
    for (int32_t s = 0; s < work.sequences; ++s) {
      std::vector<int32_t>& table = tables.emplace_back();
      for (int32_t b = 0; b < blocks; ++b) table.push_back(b * work.sequences + s);
    }
    for (int32_t s = 0; s < work.sequences; ++s) {
      sequences.push_back({.row_first = s * work.rows,
                           .row_count = work.rows,
                           .kv_length = work.length,
                           .block_table = tables[static_cast<size_t>(s)].data()});
    }
    const int64_t rows = int64_t{work.sequences} * work.rows;
    const int64_t columns = int64_t{shape.heads} * shape.dim;
    std::vector<float> q(static_cast<size_t>(rows * columns)), out(q.size());
    for (float& v : q) v = static_cast<float>(uniform01(rng.next())) - 0.5f;
    const AttentionArgs args{
        .q = {reinterpret_cast<const std::byte*>(q.data()), DType::kF32, Shape{rows, columns}},
        .kv = kv,
        .sequences = sequences,
        .scale = 0.125f,
        .window = shape.window,
        .out = {reinterpret_cast<std::byte*>(out.data()), DType::kF32, Shape{rows, columns}}};
    time_kernels(shape, work, args);
  }

  static void fill(const KvLayerView& kv, int64_t slots, Rng& rng) {
    std::vector<float> numbers(static_cast<size_t>(kv.k_dim));
    for (int64_t slot = 0; slot < slots; ++slot) {
      for (int32_t head = 0; head < kv.kv_heads; ++head) {
        for (const auto store : {store_key, store_value}) {
          for (float& v : numbers) v = static_cast<float>(uniform01(rng.next())) - 0.5f;
          store(kv, slot, head, numbers.data());
        }
      }
    }
  }

  // Keys that the rows of a batch see, and those that are read at least once.
  static std::pair<double, double> keys(const Shape3& shape, const Work& work) {
    double seen = 0;
    for (int32_t r = 0; r < work.rows; ++r) {
      const int32_t last = work.length - work.rows + r + 1;
      seen += shape.window > 0 ? std::min(shape.window, last) : last;
    }
    const int32_t read =
        shape.window > 0 ? std::min(shape.window + work.rows - 1, work.length) : work.length;
    return {seen * work.sequences, double{1} * read * work.sequences};
  }

  void time_kernels(const Shape3& shape, const Work& work, const AttentionArgs& args) {
    std::vector<const Kernel<AttentionArgs>*> kernels;
    const KernelSet<AttentionArgs> set = attention_kernels();
    for (const Kernel<AttentionArgs>& kernel : set.all()) {
      if (kernel.name.ends_with("reference") || !kernel.supports(device_->traits(), args)) continue;
      if (kernel.name.find(options_.kernel) != std::string_view::npos) kernels.push_back(&kernel);
    }
    std::vector<std::vector<double>> times(kernels.size());
    std::vector<double> peaks;
    OpContext context{*device_, *stream_, workspace_, mesh_};
    for (int round = -1; round < options_.rounds; ++round) {
      for (size_t i = 0; i < kernels.size(); ++i) {
        const double start = seconds_now();
        kernels[i]->run(context, args);
        if (round >= 0) times[i].push_back(seconds_now() - start);
      }
      peaks.push_back(ceiling());
    }
    const auto [seen, read] = keys(shape, work);
    for (size_t i = 0; i < kernels.size(); ++i) {
      std::ranges::sort(times[i]);
      std::ranges::sort(peaks);
      const double seconds = times[i][times[i].size() / 2];
      const double gflops = 4 * seen * shape.heads * shape.dim / seconds / 1e9;
      fmt::print(
          "{{\"bench\": \"attention_cpu\", \"kernel\": \"{}\", \"kv\": \"{}\", \"model\": \"{}\", "
          "\"work\": "
          "\"{}\", "
          "\"us\": {:.1f}, \"GFLOP/s\": {:.0f}, \"share\": {:.2f}, \"GB/s\": {:.1f}}}\n",
          kernels[i]->name, dtype_name(kv_element(args.kv.k_format)), shape.model, work.name,
          seconds * 1e6, gflops, gflops / peaks[peaks.size() / 2],
          read * static_cast<double>(args.kv.block_stride) / 16 / seconds / 1e9);
    }
  }

  Options options_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank rank_;
  Mesh mesh_{&rank_, &rank_, &rank_};
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--rounds") options.rounds = std::atoi(argv[i + 1]);
    if (flag == "--kernel") options.kernel = argv[i + 1];
  }
  return options;
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) { headrace::Bench(headrace::parse(argc, argv)).run(); }
