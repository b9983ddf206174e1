// Ops started by one thread while another records them with other sizes, as an engine's thread and
// its recorder's do. Runs where there is a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/linear/linear.h"

namespace headrace {
namespace {

constexpr int64_t kRowsMax = 64;
constexpr int kRounds = 60;
constexpr DType kDType = DType::kBF16;

// A stream and scratch memory of a thread's own.
class Lane {
 public:
  explicit Lane(Device& device)
      : device_(device),
        stream_(device.create_stream()),
        workspace_(std::move(device.allocate(64 << 20).value())) {}

  OpContext context() { return {device_, *stream_, workspace_, mesh_}; }
  Stream& stream() { return *stream_; }
  std::vector<std::byte> read(const std::byte* from, int64_t bytes) {
    std::vector<std::byte> values(static_cast<size_t>(bytes));
    stream_->copy_out(values.data(), from, bytes);
    const Status status = stream_->synchronize();
    EXPECT_TRUE(status.ok()) << status.message();
    return values;
  }

 private:
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Workspace workspace_;
  SingleRank one_;
  Mesh mesh_{&one_, &one_, &one_};
};

// One product by one kernel, and what it gives where nothing runs beside it.
struct Product {
  const Kernel<LinearArgs>* kernel;
  const LinearWeight* weight;
  TensorView x;
  std::vector<float> expected;

  int64_t y_bytes() const { return x.rows() * weight->n() * dtype_info(kDType).block_bytes; }
  LinearArgs args(std::byte* y) const {
    return {.x = x,
            .weight = weight,
            .y = TensorView(y, kDType, Shape{x.rows(), weight->n()}),
            .output = LinearOutput::kStore};
  }
  void start(Lane& lane, std::byte* y) const {
    OpContext context = lane.context();
    kernel->run(context, args(y));
  }
  void check(Lane& lane, const std::byte* y) const {
    SCOPED_TRACE(std::string(kernel->name) + " M " + std::to_string(x.rows()) + " N " +
                 std::to_string(weight->n()) + " K " + std::to_string(weight->k()));
    expect_near(decode(kDType, lane.read(y, y_bytes())), expected, 2 * unit_of(kDType), 0.05);
  }
};

class TwoThreadsCuda : public testing::Test {
 protected:
  void SetUp() override {
    auto created = create_cuda_device(0);
    if (!created.ok()) GTEST_SKIP() << "not run: " << created.status().message();
    cuda_.emplace(std::move(*created), 64 << 20);
    make(*cuda_);
  }
  void make(TestDevice& cuda) {
    Rng rng(7);
    // Products of a step: kernels take shared memory by K and by the rows.
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{1024, 1024}, {512, 4096}, {768, 2048}}) {
      weights_.push_back(packed(cuda, rng, n, k));
      const std::vector<float> values = rounded_floats(rng, kDType, kRowsMax * k);
      xs_.push_back(std::make_unique<CudaMatrix>(cuda, kDType, kRowsMax, k, 0, &values));
    }
    Lane lane(cuda.device());
    y_bytes_ = kRowsMax * 1024 * dtype_info(kDType).block_bytes;
    const Buffer y = std::move(cuda.device().allocate(y_bytes_).value());
    for (size_t i = 0; i < weights_.size(); ++i) {
      for (const int64_t rows : {1, 2, 3, 5, 8, 9, 16, 17, 32, 64}) add(cuda, lane, y, i, rows);
    }
  }

  LinearWeight packed(TestDevice& cuda, Rng& rng, int64_t n, int64_t k) {
    std::vector<float> values = rounded_floats(rng, kDType, n * k, 0.05f);
    const std::vector<LinearSource> sources{
        {TensorView(reinterpret_cast<std::byte*>(values.data()), DType::kF32, {n, k}), {}}};
    return std::move(LinearWeight::pack(cuda.device(), sources, LinearCompute::kFast).value());
  }

  // Also loads the kernel and lets the library choose, as a step does before it is recorded.
  void add(TestDevice& cuda, Lane& lane, const Buffer& y, size_t i, int64_t rows) {
    for (const auto& kernel : linear_kernels().all()) {
      Product product{&kernel, &weights_[i], xs_[i]->view().row_range(0, rows), {}};
      DeviceTraits invariant = cuda.device().traits();
      invariant.batch_invariant = true;
      if (!kernel.supports(cuda.device().traits(), product.args(y.data())) &&
          !kernel.supports(invariant, product.args(y.data()))) {
        continue;
      }
      product.start(lane, y.data());
      product.expected = decode(kDType, lane.read(y.data(), product.y_bytes()));
      products_.push_back(std::move(product));
    }
  }

  std::optional<TestDevice> cuda_;  // first: all below is memory of it
  std::vector<LinearWeight> weights_;
  std::vector<std::unique_ptr<CudaMatrix>> xs_;
  std::vector<Product> products_;
  int64_t y_bytes_ = 0;
};

TEST_F(TwoThreadsCuda, EagerLaunchesBesideRecordings) {
  Device& device = cuda_->device();
  ASSERT_GT(products_.size(), 40u);
  std::atomic<bool> recorder_ended = false;
  std::thread recorder([&] {
    Lane lane(device);
    const Buffer y = std::move(device.allocate(y_bytes_).value());
    for (int round = 0; round < kRounds && !HasFailure(); ++round) {
      for (size_t i = products_.size(); i-- > 0;) {  // the other way round: other sizes
        ASSERT_TRUE(lane.stream().begin_capture().ok());
        products_[i].start(lane, y.data());
        auto graph = lane.stream().end_capture();
        ASSERT_TRUE(graph.ok()) << graph.status().message();
        lane.stream().launch(**graph);
        products_[i].check(lane, y.data());
      }
    }
    recorder_ended = true;
  });
  Lane lane(device);
  const Buffer y = std::move(device.allocate(y_bytes_).value());
  while (!recorder_ended && !HasFailure()) {
    for (const Product& product : products_) {
      product.start(lane, y.data());
      product.check(lane, y.data());
    }
  }
  recorder.join();
}

}  // namespace
}  // namespace headrace
