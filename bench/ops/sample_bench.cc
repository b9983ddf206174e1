// Times every kernel of device_sample on a step's logits, normally distributed, f32 and bf16, and
// compares their answers:   sample_bench [rows...]    one JSON line for each kernel, type, mode and
// number of rows
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/rng.h"
#include "ops/op.h"
#include "ops/sampling/device_sample.h"
#include "tensor/half.h"

using namespace headrace;

namespace {

constexpr int64_t kVocabulary = 128256;
constexpr int64_t kSets = 3;  // of logits, taken in turns: none stays in the cache
constexpr float kSigma = 2.0f;

struct Mode {
  const char* name;
  DeviceSampleRow row;
};

DeviceSampleRow greedy() {
  return {.temperature = 0.0f,
          .top_p = 1.0f,
          .min_p = 0.0f,
          .repetition_penalty = 1.0f,
          .presence_penalty = 0.0f,
          .frequency_penalty = 0.0f,
          .top_k = 0,
          .logprobs = -1,
          .random = 0,
          .slot = 0,
          .scored = -1,
          .bias_first = 0,
          .bias_count = 0,
          .top_first = 0,
          .penalises = 0};
}

std::vector<Mode> modes() {
  std::vector<Mode> all{{"greedy", greedy()},     {"temperature", greedy()},
                        {"top-p 0.95", greedy()}, {"top-k 50", greedy()},
                        {"min-p 0.05", greedy()}, {"logprobs 5", greedy()},
                        {"penalties", greedy()},  {"penalties, window", greedy()}};
  for (size_t i = 1; i < 5; ++i) all[i].row.temperature = 1.0f;
  all[2].row.top_p = 0.95f;
  all[3].row.top_k = 50;
  all[4].row.min_p = 0.05f;
  all[5].row.logprobs = 5;
  // Of no weight: what is counted changes no answer of the next kernel.
  all[6].row.penalises = all[7].row.penalises = 1;
  all[7].row.leaves = 7;
  return all;
}

// Of variance 1: the sum of four even ones.
float bell(Rng& rng) {
  double sum = -2.0;
  for (int i = 0; i < 4; ++i) sum += rng.uniform();
  return static_cast<float>(sum * 1.7320508);
}

template <class T>
Buffer on_device(Device& device, Stream& stream, const std::vector<T>& values) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  Buffer buffer = std::move(device.allocate(bytes).value());
  stream.copy_in(buffer.data(), reinterpret_cast<const std::byte*>(values.data()), bytes);
  (void)stream.synchronize();
  return buffer;
}

double microseconds(OpContext& context, const Kernel<DeviceSampleArgs>& kernel,
                    DeviceSampleArgs args, const Buffer& logits) {
  const auto stream = static_cast<cudaStream_t>(context.stream.native());
  constexpr int kRounds = 30;
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  const int64_t set_bytes = args.logits.rows() * args.logits.row_stride;
  for (int round = -3; round < kRounds; ++round) {
    if (round == 0) cudaEventRecord(start, stream);
    args.logits.data = logits.data() + (round + 3) % kSets * set_bytes;
    kernel.run(context, args);
  }
  cudaEventRecord(stop, stream);
  const Status status = context.stream.synchronize();
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, start, stop);
  return status.ok() ? milliseconds * 1e3 / kRounds : -1.0;
}

// What the first set of logits gives.
std::vector<DeviceSampleResult> answers(OpContext& context, const Kernel<DeviceSampleArgs>& kernel,
                                        const DeviceSampleArgs& args) {
  std::vector<DeviceSampleResult> results(static_cast<size_t>(args.logits.rows()));
  kernel.run(context, args);
  context.stream.copy_out(reinterpret_cast<std::byte*>(results.data()),
                          reinterpret_cast<const std::byte*>(args.results),
                          static_cast<int64_t>(results.size() * sizeof(DeviceSampleResult)));
  (void)context.stream.synchronize();
  return results;
}

// Every kernel that takes `args`; their answers have the same bits, or the line says so.
void time_kernels(OpContext& context, const char* mode, const DeviceSampleArgs& args,
                  const Buffer& logits) {
  std::vector<DeviceSampleResult> expected;
  for (const auto& kernel : device_sample_kernels().all()) {
    if (!kernel.supports(context.device.traits(), args)) continue;
    const std::vector<DeviceSampleResult> found = answers(context, kernel, args);
    if (expected.empty()) expected = found;
    int differ = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      const bool same = found[i].token == expected[i].token &&
                        found[i].fault == expected[i].fault &&
                        found[i].logprob == expected[i].logprob;
      differ += same ? 0 : 1;
    }
    const double us = microseconds(context, kernel, args, logits);
    const double bytes =
        static_cast<double>(args.logits.rows()) * static_cast<double>(args.logits.row_stride);
    std::printf(
        "{\"bench\": \"sample\", \"kernel\": \"%.*s\", \"logits\": \"%s\", \"mode\": \"%s\", "
        "\"rows\": %lld, \"us\": %.1f, \"tb_s\": %.2f, \"rows_that_differ\": %d}\n",
        static_cast<int>(kernel.name.size()), kernel.name.data(),
        args.logits.dtype == DType::kF32 ? "f32" : "bf16", mode,
        static_cast<long long>(args.logits.rows()), us, bytes / us * 1e-6, differ);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> row_counts;
  for (int i = 1; i < argc; ++i) row_counts.push_back(std::atoll(argv[i]));
  if (row_counts.empty()) row_counts = {1, 64, 256};
  auto device = create_cuda_device(0);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().message().c_str());
    return 1;
  }
  const auto stream = (*device)->create_stream();
  Workspace workspace(std::move((*device)->allocate(1 << 20).value()));
  SingleRank one;
  Mesh mesh{&one, &one, &one};
  OpContext context{**device, *stream, workspace, mesh};
  for (const int64_t rows : row_counts) {
    Rng rng(5);
    std::vector<float> values(static_cast<size_t>(kSets * rows * kVocabulary));
    for (float& value : values) value = kSigma * bell(rng);
    const Buffer logits = on_device(**device, *stream, values);
    std::vector<uint16_t> rounded;
    for (const float value : values) rounded.push_back(float_to_bfloat16(value));
    const Buffer halves = on_device(**device, *stream, rounded);
    const Buffer last = std::move((*device)->allocate(rows * 4).value());
    const Buffer results = std::move(
        (*device)->allocate(rows * static_cast<int64_t>(sizeof(DeviceSampleResult))).value());
    const Buffer tops = std::move(
        (*device)->allocate(rows * 8 * static_cast<int64_t>(sizeof(DeviceTopLogprob))).value());
    const Buffer counts = on_device(**device, *stream,
                                    std::vector<uint16_t>(static_cast<size_t>(rows * kVocabulary)));
    for (const Mode& mode : modes()) {
      std::vector<DeviceSampleRow> described(static_cast<size_t>(rows), mode.row);
      for (int64_t r = 0; r < rows; ++r) {
        auto& row = described[static_cast<size_t>(r)];
        row.slot = static_cast<int32_t>(r);
        row.random = rng.next();
        row.top_first = static_cast<int32_t>(8 * r);
      }
      const Buffer rows_on = on_device(**device, *stream, described);
      const DeviceSampleArgs args{.logits = {logits.data(), DType::kF32, Shape{rows, kVocabulary}},
                                  .rows = reinterpret_cast<const DeviceSampleRow*>(rows_on.data()),
                                  .biases = nullptr,
                                  .token_counts = reinterpret_cast<uint16_t*>(counts.data()),
                                  .last_tokens = reinterpret_cast<TokenId*>(last.data()),
                                  .results = reinterpret_cast<DeviceSampleResult*>(results.data()),
                                  .tops = reinterpret_cast<DeviceTopLogprob*>(tops.data())};
      time_kernels(context, mode.name, args, logits);
      DeviceSampleArgs half_args = args;
      half_args.logits = {halves.data(), DType::kBF16, Shape{rows, kVocabulary}};
      time_kernels(context, mode.name, half_args, halves);
    }
  }
  return 0;
}
