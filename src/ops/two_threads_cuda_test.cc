// Ops started by one thread while another records them with other sizes, as an engine's thread and
// its recorder's do: products of every kind of weight, attention, sampling. Runs where there is a
// GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ops/attention/attention_cuda_fixture.h"
#include "ops/cuda_fixture.h"
#include "ops/linear/linear.h"
#include "ops/sampling/device_sample_fixture.h"

namespace headrace::two_threads_cuda_test {
namespace {

using namespace attention_cuda_fixture;

constexpr int64_t kRowsMax = 64;
constexpr int kRounds = 40;
constexpr DType kDType = DType::kBF16;

// What a lane launches again and again, and what it gives where nothing runs beside it.
struct Launch {
  std::string name;
  std::function<void(OpContext&)> start;
  std::byte* out;
  int64_t bytes;
  // Of a kernel whose order of sums is not its own: elements of kDType. Others give equal bits.
  bool near = false;
  std::vector<std::byte> expected;
};

// A thread's own stream, scratch memory, inputs and results: the device and weights alone are
// shared.
class Lane {
 public:
  explicit Lane(Device& device)
      : device_(device),
        stream_(device.create_stream()),
        workspace_(std::move(device.allocate(128 << 20).value())) {}

  OpContext context() { return {device_, *stream_, workspace_, mesh_}; }
  Stream& stream() { return *stream_; }
  const std::vector<Launch>& launches() const { return launches_; }

  // Also loads the kernel and lets the library choose, as a step does before it is recorded.
  void add(Launch launch) {
    OpContext one = context();
    launch.start(one);
    launch.expected = read(launch);
    launches_.push_back(std::move(launch));
  }
  template <class T>
  T& keep(std::shared_ptr<T> input) {
    kept_.push_back(input);
    return *input;
  }
  std::byte* results(int64_t bytes) {
    results_.push_back(std::move(device_.allocate(bytes).value()));
    return results_.back().data();
  }

  void check(const Launch& launch) {
    SCOPED_TRACE(launch.name);
    const std::vector<std::byte> actual = read(launch);
    if (launch.near) {
      expect_near(decode(kDType, actual), decode(kDType, launch.expected), 2 * unit_of(kDType),
                  0.05);
    } else {
      EXPECT_TRUE(actual == launch.expected);
    }
    const std::vector<std::byte> poison(actual.size(), kPoison);
    stream_->copy_in(launch.out, poison.data(), launch.bytes);
    EXPECT_TRUE(stream_->synchronize().ok());
  }

 private:
  std::vector<std::byte> read(const Launch& launch) {
    std::vector<std::byte> values(static_cast<size_t>(launch.bytes));
    stream_->copy_out(values.data(), launch.out, launch.bytes);
    const Status status = stream_->synchronize();
    EXPECT_TRUE(status.ok()) << launch.name << ": " << status.message();
    return values;
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank one_;
  Mesh mesh_{&one_, &one_, &one_};
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<Buffer> results_;
  std::vector<Launch> launches_;
};

LinearWeight random_weight(TestDevice& cuda, int64_t n, int64_t k, std::optional<DType> type) {
  Rng rng(static_cast<uint64_t>(n + k));
  std::vector<float> values = rounded_floats(rng, kDType, n * k, 0.05f);
  LinearSource source{TensorView(reinterpret_cast<std::byte*>(values.data()), DType::kF32, {n, k}),
                      {}};
  source.quantise_to = type;
  return std::move(LinearWeight::pack(cuda.device(), {&source, 1}, LinearCompute::kFast).value());
}

// Every kernel by which x is multiplied, of the rows of steps.
void add_products(TestDevice& cuda, Lane& lane, const LinearWeight& weight) {
  Rng rng(7);
  const std::vector<float> values = rounded_floats(rng, kDType, kRowsMax * weight.k());
  const auto& x =
      lane.keep(std::make_shared<CudaMatrix>(cuda, kDType, kRowsMax, weight.k(), 0, &values));
  std::byte* const y = lane.results(kRowsMax * weight.n() * dtype_info(kDType).block_bytes);
  for (const int64_t rows : {1, 2, 3, 5, 8, 9, 16, 17, 32, 64}) {
    const LinearArgs args{.x = x.view().row_range(0, rows),
                          .weight = &weight,
                          .y = TensorView(y, kDType, Shape{rows, weight.n()}),
                          .output = LinearOutput::kStore};
    for (const auto& kernel : linear_kernels().all()) {
      if (!takes(cuda, kernel, args)) continue;
      lane.add({.name = std::string(kernel.name) + " M" + std::to_string(rows) + " N" +
                        std::to_string(weight.n()) + " K" + std::to_string(weight.k()),
                .start = [&kernel, args](OpContext& context) { kernel.run(context, args); },
                .out = y,
                .bytes = rows * weight.n() * dtype_info(kDType).block_bytes,
                .near = true,
                .expected = {}});
    }
  }
}

void add_attention(TestDevice& cuda, Lane& lane, const CudaCase& c) {
  auto& problem = lane.keep(std::make_shared<Problem>(c));
  auto& on_device = lane.keep(std::make_shared<OnDevice>(cuda, problem));
  const AttentionArgs args = on_device.arguments();
  for (const auto& kernel : attention_cuda_kernels()) {
    if (!on_device.supports(kernel)) continue;
    lane.add({.name = std::string(kernel.name) + " " + c.name(),
              .start = [&kernel, args](OpContext& context) { kernel.run(context, args); },
              .out = args.out.data,
              .bytes = args.out.rows() * args.out.row_stride,
              .expected = {}});
  }
}

// Rows that draw, each by its own law.
void add_sampling(TestDevice& cuda, Lane& lane, int64_t vocabulary, int rows) {
  Rng rng(5);
  SampleCall call{.vocabulary = vocabulary};
  for (int row = 0; row < rows; ++row) {
    call.add(random_floats(rng, vocabulary, 2.0f), {.temperature = row % 3 == 0 ? 0.0f : 0.8f,
                                                    .top_k = row % 3 == 2 ? 40 : 0,
                                                    .top_p = row % 3 == 1 ? 0.9f : 1.0f,
                                                    .seed = static_cast<uint64_t>(row),
                                                    .logprobs = row % 2 == 0 ? 5 : -1});
  }
  const auto& logits = lane.keep(
      std::make_shared<CudaMatrix>(cuda, DType::kF32, rows, vocabulary, call.gap, &call.logits));
  const auto& rows_on = lane.keep(std::make_shared<CudaArray<DeviceSampleRow>>(cuda, call.rows));
  const auto& biases = lane.keep(std::make_shared<CudaArray<DeviceLogitBias>>(cuda, call.biases));
  const auto& words =
      lane.keep(std::make_shared<CudaArray<uint32_t>>(cuda, std::vector<uint32_t>(64)));
  const auto& last = lane.keep(
      std::make_shared<CudaArray<TokenId>>(cuda, std::vector<TokenId>(static_cast<size_t>(rows))));
  const auto& tops = lane.keep(std::make_shared<CudaArray<DeviceTopLogprob>>(
      cuda, std::vector<DeviceTopLogprob>(64 * static_cast<size_t>(rows))));
  const int64_t bytes = rows * static_cast<int64_t>(sizeof(DeviceSampleResult));
  std::byte* const results = lane.results(bytes);
  const DeviceSampleArgs args{.logits = logits.view(),
                              .rows = rows_on.data(),
                              .biases = biases.data(),
                              .masks = words.data(),
                              .token_counts = reinterpret_cast<uint16_t*>(words.data()),
                              .last_tokens = last.data(),
                              .results = reinterpret_cast<DeviceSampleResult*>(results),
                              .tops = tops.data()};
  for (const auto& kernel : device_sample_kernels().all()) {
    if (!kernel.supports(cuda.device().traits(), args)) continue;
    lane.add({.name = std::string(kernel.name) + " V" + std::to_string(vocabulary) + " rows " +
                      std::to_string(rows),
              .start = [&kernel, args](OpContext& context) { kernel.run(context, args); },
              .out = results,
              .bytes = bytes,
              .expected = {}});
  }
}

class TwoThreadsCuda : public testing::Test {
 protected:
  void SetUp() override {
    auto created = create_cuda_device(0);
    if (!created.ok()) GTEST_SKIP() << "not run: " << created.status().message();
    cuda_.emplace(std::move(*created), 256 << 20);
  }
  TestDevice& cuda() { return *cuda_; }

  // One lane launches all while the other records and replays them from the last to the first.
  void run_beside(const std::function<void(Lane&)>& fill, size_t least) {
    Lane eager(cuda().device()), recorder(cuda().device());
    fill(eager);
    fill(recorder);
    ASSERT_GE(eager.launches().size(), least);
    std::atomic<bool> recorder_ended = false;
    std::thread recording([&] {
      for (int round = 0; round < kRounds && !HasFailure(); ++round) record_all(recorder);
      recorder_ended = true;
    });
    OpContext context = eager.context();
    while (!recorder_ended && !HasFailure()) {
      for (const Launch& launch : eager.launches()) {
        launch.start(context);
        eager.check(launch);
      }
    }
    recording.join();
  }

 private:
  static void record_all(Lane& lane) {
    OpContext context = lane.context();
    for (size_t i = lane.launches().size(); i-- > 0;) {
      const Launch& launch = lane.launches()[i];
      ASSERT_TRUE(lane.stream().begin_capture().ok());
      launch.start(context);
      auto graph = lane.stream().end_capture();
      ASSERT_TRUE(graph.ok()) << launch.name << ": " << graph.status().message();
      lane.stream().launch(**graph);
      lane.check(launch);
    }
  }

  std::optional<TestDevice> cuda_;
};

// Kernels take shared memory by K and by the rows.
TEST_F(TwoThreadsCuda, ProductsOfEveryFormat) {
  std::vector<LinearWeight> weights;
  for (const std::optional<DType> type :
       {std::optional<DType>(), std::optional(DType::kF8), std::optional(DType::kQ4_K),
        std::optional(DType::kQ8_0), std::optional(DType::kQ4_1)}) {
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1024, 1024}, {512, 4096}, {768, 2048}}) {
      weights.push_back(random_weight(cuda(), n, k, type));
    }
  }
  run_beside(
      [&](Lane& lane) {
        for (const LinearWeight& weight : weights) add_products(cuda(), lane, weight);
      },
      200);
}

TEST_F(TwoThreadsCuda, Attention) {
  const std::vector<Part> decodes(9, {1, 300}), prompts{{70, 70}, {130, 260}, {1, 900}};
  run_beside(
      [&](Lane& lane) {
        for (const Heads heads : {Heads{8, 2, 128}, {8, 8, 64}, {4, 1, 256}, {4, 1, 512}}) {
          for (const auto& kept : {std::optional<KvFormat>(), std::optional(KvFormat::kFp8)}) {
            add_attention(cuda(), lane, {.heads = heads, .parts = decodes, .kept = kept});
            add_attention(cuda(), lane, {.heads = heads, .parts = prompts, .kept = kept});
          }
        }
      },
      16);
}

TEST_F(TwoThreadsCuda, Sampling) {
  run_beside(
      [&](Lane& lane) {
        for (const int64_t vocabulary : {1000, 32001, 151936}) {
          for (const int rows : {1, 7, 33}) add_sampling(cuda(), lane, vocabulary, rows);
        }
      },
      9);
}

// Beside one another, as in a step.
TEST_F(TwoThreadsCuda, AllOfThem) {
  const LinearWeight float8 = random_weight(cuda(), 1024, 4096, DType::kF8);
  const LinearWeight packed = random_weight(cuda(), 1024, 4096, DType::kQ4_K);
  run_beside(
      [&](Lane& lane) {
        add_products(cuda(), lane, float8);
        add_attention(cuda(), lane, {.heads = {8, 2, 128}, .parts = {{1, 300}, {40, 40}}});
        add_products(cuda(), lane, packed);
        add_sampling(cuda(), lane, 32000, 4);
      },
      30);
}

}  // namespace
}  // namespace headrace::two_threads_cuda_test
