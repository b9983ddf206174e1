// attention_bench: attention over the paged cache on the GPU: prefill by TFLOP/s (4 d Hq T^2 / 2 a
// causal sequence), decode by bytes of keys and values a second; latents by both (2 (576 + 512) Hq
// a row and key, 1,152 bytes a key).
//
//   attention_bench [--case PART] [--kernel PART] [--kv bf16|fp8|int8|int4|all] [--rounds N]
//                   [--section-bytes N]
//
// --kv: what keys and values are kept as; all: each case with one after the other.
// One JSON line a measurement: the median over graph replays of kLaunches launches each. Blocks are
// scattered; values are random. `plan_us`: making the plan on the host.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "ops/attention/attention.h"
#include "ops/attention/kv_numbers.h"
#include "ops/attention/latent_plan.h"
#include "ops/attention/plan.h"
#include "tensor/float8.h"
#include "tensor/half.h"

namespace headrace {
namespace {

constexpr int kLaunches = 8;

struct Options {
  std::string test_case;  // parts of names; empty: all
  std::string kernel;
  std::string kv = "bf16";
  int rounds = 11;
  int64_t section_bytes = kAttentionSectionBytes;
};

struct Part {
  int32_t count, rows, length;
};

struct Case {
  std::string name;
  int32_t query_heads, kv_heads, head_dim;
  std::vector<Part> parts;
  int32_t window = 0;
  bool split_prompts = false;
  bool latents = false;

  int32_t value_dim() const { return latents ? kLatentValueDim : head_dim; }
};

void add_latents(std::vector<Case>& all) {
  const auto add = [&](std::string_view name, int32_t heads, std::vector<Part> parts) {
    all.push_back({fmt::format("latents q{} {}", heads, name), heads, 1, kLatentKeyDim,
                   std::move(parts), 0, false, true});
  };
  for (const int32_t heads : {16, 128}) {
    add("1x400", heads, {{1, 1, 400}});
    add("1x8k", heads, {{1, 1, 8192}});
    add("32x200", heads, {{32, 1, 200}});
    add("128x1k", heads, {{128, 1, 1024}});
    add("64x8k", heads, {{64, 1, 8192}});
    add("32x32k", heads, {{32, 1, 32768}});
    add("8x64k", heads, {{8, 1, 65536}});
    add("skew 255x500 1x64k", heads, {{1, 1, 65536}, {255, 1, 500}});
    add("prompt 1x2k", heads, {{1, 2048, 2048}});
    add("prompt 1x8k", heads, {{1, 8192, 8192}});
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  add_latents(all);
  const auto prefill = [&](int32_t hq, int32_t hkv, int32_t dim, int32_t length, int32_t window) {
    all.push_back({fmt::format("prefill d{} q{} kv{} {}x{} window {}", dim, hq, hkv,
                               std::max(1, 16384 / length), length, window),
                   hq,
                   hkv,
                   dim,
                   {{std::max(1, 16384 / length), length, length}},
                   window});
  };
  for (const int32_t length : {512, 1024, 4096, 16384, 32768}) {
    prefill(32, 8, 128, length, 0);
    prefill(32, 8, 64, length, 0);
    prefill(16, 8, 256, length, 0);
  }
  prefill(32, 32, 128, 4096, 0);
  prefill(32, 8, 96, 4096, 0);
  prefill(32, 8, 128, 16384, 1024);
  const auto decode = [&](std::string_view name, int32_t hq, int32_t hkv, int32_t dim,
                          std::vector<Part> parts, int32_t window = 0) {
    all.push_back({fmt::format("decode d{} q{} kv{} {}", dim, hq, hkv, name), hq, hkv, dim,
                   std::move(parts), window});
  };
  for (const int32_t dim : {64, 128, 256}) decode("256x1k", 32, 8, dim, {{256, 1, 1024}});
  decode("256x1k", 64, 4, 128, {{256, 1, 1024}});
  decode("256x1k", 8, 8, 128, {{256, 1, 1024}});
  decode("256x1k window 256", 32, 8, 128, {{256, 1, 1024}}, 256);
  decode("256x~200", 32, 8, 128, {{128, 1, 160}, {128, 1, 260}});
  for (const int32_t count : {32, 64, 96, 128, 256}) {
    decode(fmt::format("{}x256", count), 32, 8, 128, {{count, 1, 256}});
  }
  decode("64x1k", 32, 8, 128, {{64, 1, 1024}});
  decode("8x1k", 32, 8, 128, {{8, 1, 1024}});
  decode("1x400", 32, 8, 128, {{1, 1, 400}});
  decode("1x8k", 32, 8, 128, {{1, 1, 8192}});
  decode("1x128k", 32, 8, 128, {{1, 1, 131072}});
  for (const auto& [hq, hkv, dim] :
       {std::tuple{32, 8, 128}, std::tuple{64, 8, 64}, std::tuple{16, 8, 256},
        std::tuple{32, 8, 80}, std::tuple{32, 8, 96}, std::tuple{64, 4, 128}}) {
    decode("32x8k", hq, hkv, dim, {{32, 1, 8192}});
    decode("4x32k", hq, hkv, dim, {{4, 1, 32768}});
  }
  decode("skew 255x500 1x64k", 32, 8, 128, {{1, 1, 65536}, {255, 1, 500}});
  decode("skew 64 of 100..6400", 32, 8, 128,
         {{16, 1, 100}, {16, 1, 800}, {16, 1, 3200}, {16, 1, 6400}});
  decode("mixed 64x1k + 512 of 4k", 32, 8, 128, {{64, 1, 1024}, {1, 512, 4096}});
  // The end of a prompt behind the rest, whole and with its keys shared out.
  for (const auto& [hq, hkv, dim] :
       {std::tuple{32, 8, 128}, std::tuple{32, 8, 64}, std::tuple{16, 8, 256}}) {
    for (const int32_t context : {8192, 32768}) {
      for (const int32_t rows : {32, 64, 128, 256, 512}) {
        if (dim != 128 && rows % 128 != 64) continue;
        for (const bool split : {false, true}) {
          all.push_back({fmt::format("chunk d{} q{} kv{} {} of {}{}", dim, hq, hkv, rows, context,
                                     split ? " split" : ""),
                         hq,
                         hkv,
                         dim,
                         {{1, rows, context}},
                         0,
                         split});
        }
      }
    }
  }
  return all;
}

// Values of deviation 1.
template <class T>
std::vector<T> random_values(T (*encode)(float)) {
  Rng rng(9);
  std::vector<T> made(size_t{8} << 20);
  for (T& value : made) {
    float sum = -2.0f;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(rng.uniform());
    value = encode(sum * 1.7f);
  }
  return made;
}

// Fills device memory with these, over and over.
template <class T>
void fill(Stream& stream, const Buffer& buffer, const std::vector<T>& values) {
  const auto size = static_cast<int64_t>(values.size() * sizeof(T));
  for (int64_t at = 0; at < buffer.size(); at += size) {
    stream.copy_in(buffer.data() + at, reinterpret_cast<const std::byte*>(values.data()),
                   std::min(size, buffer.size() - at));
  }
}
void fill_random(Stream& stream, const Buffer& buffer) {
  static const std::vector<uint16_t> kValues = random_values(float_to_bfloat16);
  fill(stream, buffer, kValues);
}
void fill_random_fp8(Stream& stream, const Buffer& buffer) {
  static const std::vector<uint8_t> kValues = random_values(float_to_e4m3);
  fill(stream, buffer, kValues);
}
// Blocks of integers with their scales, over and over.
void fill_random_integers(Stream& stream, const Buffer& buffer, KvLayerView kv) {
  constexpr int32_t kBlocks = 64;
  std::vector<std::byte> blocks(static_cast<size_t>(kBlocks * kv.block_stride));
  kv.base = blocks.data();
  const std::vector<float> numbers = random_values(+[](float value) { return value; });
  size_t next = 0;
  for (int64_t slot = 0; slot < kBlocks * kv.block_tokens; ++slot) {
    for (int32_t head = 0; head < kv.kv_heads; ++head) {
      for (const auto store : {store_key, store_value}) {
        store(kv, slot, head, numbers.data() + next);
        next = (next + static_cast<size_t>(kv.k_dim)) % (numbers.size() / 2);
      }
    }
  }
  fill(stream, buffer, blocks);
  CHECK(stream.synchronize().ok());
}

struct Kept {
  std::string_view name;
  KvFormat format;
};
constexpr Kept kKept[] = {{"bf16", KvFormat::kBF16},
                          {"fp8", KvFormat::kFp8},
                          {"int8", KvFormat::kInt8Head},
                          {"int4", KvFormat::kInt4Head}};

// A case's memory on the device.
struct Setting {
  Buffer cache, unpacked, q, out, tables, arena, workspace_memory;
  AttentionPlan plan;
  AttentionArgs args;
  double plan_us = 0;
  double flops = 0;
  double bytes = 0;
};

void count_work(const Case& c, Setting& setting) {
  for (const Part& part : c.parts) {
    for (int32_t r = 0; r < part.rows; ++r) {
      const double seen = part.length - part.rows + r + 0.5;
      const double keys = c.window > 0 ? std::min<double>(seen, c.window) : seen;
      setting.flops += 2.0 * (c.head_dim + c.value_dim()) * c.query_heads * keys * part.count;
    }
    const double keys =
        c.window > 0 ? std::min(part.length, part.rows - 1 + c.window) : part.length;
    setting.bytes += (c.latents ? 2.0 : 4.0) * c.head_dim * c.kv_heads * keys * part.count;
  }
}

KvLayerView make_cache(Device& device, Stream& stream, const Case& c, int64_t blocks,
                       KvFormat format, Setting& setting) {
  KvLayerView kv = alike_kv(format, KeyLayout::kRows, c.kv_heads, c.head_dim);
  kv.block_stride = c.latents ? k_part_bytes(kv) : 2 * kv.v_offset;
  kv.v_aliases_k = c.latents;
  kv.v_dim = c.value_dim();
  setting.cache = std::move(device.allocate(blocks * kv.block_stride).value());
  kv.base = setting.cache.data();
  if (format == KvFormat::kBF16) {
    fill_random(stream, setting.cache);
    return kv;
  }
  if (format == KvFormat::kFp8) {
    fill_random_fp8(stream, setting.cache);
  } else {
    fill_random_integers(stream, setting.cache, kv);
  }
  const int64_t unpacked_bytes = unpacked_kv(kv, DType::kBF16).block_stride;
  setting.unpacked = std::move(device.allocate(blocks * unpacked_bytes).value());
  kv.unpacked = setting.unpacked.data();
  return kv;
}

Setting make(Device& device, Stream& stream, const Case& c, int64_t section_bytes,
             KvFormat format) {
  Setting setting;
  const auto allocate = [&](int64_t bytes) { return std::move(device.allocate(bytes).value()); };
  int32_t rows = 0, sequences = 0, blocks = 0;
  for (const Part& part : c.parts) {
    rows += part.count * part.rows;
    sequences += part.count;
    blocks += part.count * ((part.length + 15) / 16);
  }
  const KvLayerView kv = make_cache(device, stream, c, blocks, format, setting);

  std::vector<int32_t> table(static_cast<size_t>(blocks));
  std::iota(table.begin(), table.end(), 0);
  Rng rng(4);
  for (size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[rng.below(i)]);
  setting.tables = allocate(blocks * 4);
  stream.copy_in(setting.tables.data(), reinterpret_cast<std::byte*>(table.data()), blocks * 4);

  std::vector<AttentionSequence> batch;
  const auto* tables = reinterpret_cast<const int32_t*>(setting.tables.data());
  int32_t row = 0;
  for (const Part& part : c.parts) {
    for (int32_t i = 0; i < part.count; ++i) {
      batch.push_back({row, part.rows, part.length, tables});
      row += part.rows;
      tables += (part.length + 15) / 16;
    }
  }
  const AttentionPlanShape shape{.query_heads = c.query_heads,
                                 .kv_heads = c.kv_heads,
                                 .head_dim = c.head_dim,
                                 .window = c.window,
                                 .sm_count = device.traits().sm_count,
                                 .rows_max = rows,
                                 .sequences_max = sequences,
                                 .split_prompts = c.split_prompts,
                                 .latents = c.latents,
                                 .section_bytes = section_bytes};
  std::vector<std::byte> arena(static_cast<size_t>(attention_plan_bytes(shape)));
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    setting.plan = plan_attention(shape, batch, arena);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    setting.plan_us = i == 0 ? took.count() : std::min(setting.plan_us, took.count());
  }
  setting.arena = allocate(setting.plan.bytes);
  stream.copy_in(setting.arena.data(), arena.data(), setting.plan.bytes);
  setting.plan.device = setting.arena.data();
  setting.workspace_memory = allocate(attention_partial_bytes(shape) + 4096);

  const int64_t columns = int64_t{c.query_heads} * c.head_dim;
  const int64_t stride = columns + 2 * int64_t{c.kv_heads} * c.head_dim;
  setting.q = allocate(rows * stride * 2);
  fill_random(stream, setting.q);
  const int64_t out_columns = int64_t{c.query_heads} * c.value_dim();
  setting.out = allocate(rows * out_columns * 2);
  setting.args = {.q = TensorView(setting.q.data(), DType::kBF16, Shape{rows, columns}, stride * 2),
                  .kv = kv,
                  .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                  .window = c.window,
                  .out = TensorView(setting.out.data(), DType::kBF16, Shape{rows, out_columns})};
  count_work(c, setting);
  const double kept_bytes = static_cast<double>(kv_head_bytes(format, c.head_dim, 16));
  setting.bytes *= kept_bytes / (2.0 * 16 * c.head_dim);
  return setting;
}

void check(cudaError_t error) { CHECK_MSG(error == cudaSuccess, cudaGetErrorString(error)); }

// Microseconds of one launch.
double measure(OpContext& context, const Kernel<AttentionArgs>& kernel, const AttentionArgs& args,
               int rounds) {
  const auto stream = static_cast<cudaStream_t>(context.stream.native());
  kernel.run(context, args);
  CHECK(context.stream.synchronize().ok());
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kLaunches; ++i) kernel.run(context, args);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t start, end;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    check(cudaEventRecord(start, stream));
    check(cudaGraphLaunch(executable, stream));
    check(cudaEventRecord(end, stream));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, end));
    times.push_back(ms * 1e3 / kLaunches);
  }
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void run_case(Device& device, Stream& stream, const Options& options, const Case& c,
              const Kept& kept) {
  SingleRank one;
  Mesh mesh{&one, &one, &one};
  Setting setting = make(device, stream, c, options.section_bytes, kept.format);
  setting.args.plan = &setting.plan;
  Workspace workspace(std::move(setting.workspace_memory));
  OpContext context{device, stream, workspace, mesh};
  for (const auto& kernel : attention_cuda_kernels()) {
    const bool reference = kernel.name.find("reference") != std::string_view::npos;
    if (options.kernel.empty() ? reference
                               : kernel.name.find(options.kernel) == std::string_view::npos) {
      continue;
    }
    if (!kernel.supports(device.traits(), setting.args)) continue;
    const double us = measure(context, kernel, setting.args, options.rounds);
    fmt::print(
        "{{\"case\": \"{}\", \"kernel\": \"{}\", \"kv\": \"{}\", \"section_mb\": {}, \"us\": "
        "{:.2f}, "
        "\"tflops\": {:.1f}, \"gb_s\": {:.0f}, \"plan_us\": {:.1f}}}\n",
        c.name, kernel.name, kept.name, options.section_bytes >> 20, us, setting.flops / us * 1e-6,
        setting.bytes / us * 1e-3, setting.plan_us);
    std::fflush(stdout);
  }
}

void run(const Options& options) {
  auto created = create_cuda_device(0);
  CHECK_MSG(created.ok(), created.status().message().c_str());
  const std::unique_ptr<Stream> stream = (*created)->create_stream();
  for (const Case& c : cases()) {
    if (c.name.find(options.test_case) == std::string::npos) continue;
    for (const Kept& kept : kKept) {
      if (options.kv != kept.name && options.kv != "all") continue;
      if (c.latents && kept.format != KvFormat::kBF16) continue;
      run_case(**created, *stream, options, c, kept);
    }
  }
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  headrace::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--case") options.test_case = argv[i + 1];
    if (flag == "--kernel") options.kernel = argv[i + 1];
    if (flag == "--kv") options.kv = argv[i + 1];
    if (flag == "--rounds") options.rounds = std::atoi(argv[i + 1]);
    if (flag == "--section-bytes") options.section_bytes = std::atoll(argv[i + 1]);
  }
  headrace::run(options);
}
