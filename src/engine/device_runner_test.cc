// The order in which a step goes to a GPU, on a null device whose stream keeps a list of its calls.
#include "engine/device_runner.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/null_model.h"

namespace headrace::device_runner_test {
namespace {

using Calls = std::vector<std::string>;

// The stream of steps: the first that is made. What others do is not listed.
class ListingStream final : public Stream {
 public:
  ListingStream(std::unique_ptr<Stream> stream, Calls* calls)
      : stream_(std::move(stream)), calls_(calls) {}

  void copy_in(std::byte* to, const std::byte* from, int64_t bytes) override {
    add("copy in");
    stream_->copy_in(to, from, bytes);
  }
  void copy_out(std::byte* to, const std::byte* from, int64_t bytes) override {
    add("copy out");
    stream_->copy_out(to, from, bytes);
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    add("copy");
    stream_->copy(to, from, bytes);
  }
  void fill_zero(std::byte* to, int64_t bytes) override {
    add("zero");
    stream_->fill_zero(to, bytes);
  }
  void call(std::function<void()> work) override {
    add("kernel");
    stream_->call(std::move(work));
  }
  std::unique_ptr<Event> record() override { return stream_->record(); }
  std::unique_ptr<Event> create_timer() override { return stream_->create_timer(); }
  void record(Event& timer) override {
    add("record");
    stream_->record(timer);
  }
  void wait(const Event& event) override {
    add("wait");
    stream_->wait(event);
  }
  Status synchronize() override { return stream_->synchronize(); }
  Status status() override { return stream_->status(); }
  void fail(Status error) override { stream_->fail(std::move(error)); }
  Status begin_capture() override { return stream_->begin_capture(); }
  Result<std::unique_ptr<Graph>> end_capture() override { return stream_->end_capture(); }
  void launch(const Graph& graph) override {
    add("launch");
    stream_->launch(graph);
  }
  void* native() const override { return nullptr; }

 private:
  void add(const char* call) {
    if (calls_ != nullptr) calls_->emplace_back(call);
  }
  const std::unique_ptr<Stream> stream_;
  Calls* const calls_;
};

class ListingDevice final : public Device {
 public:
  const DeviceTraits& traits() const override { return device_->traits(); }
  Result<Buffer> allocate(int64_t bytes) override { return device_->allocate(bytes); }
  Result<Buffer> allocate_host(int64_t bytes) override { return device_->allocate_host(bytes); }
  std::unique_ptr<Stream> create_stream() override {
    return std::make_unique<ListingStream>(device_->create_stream(), listing_ ? &calls_ : nullptr);
  }
  int64_t free_bytes() const override { return device_->free_bytes(); }
  ThreadPool& pool() override { return device_->pool(); }
  Result<GemmLibrary*> gemm_library() override { return device_->gemm_library(); }

  // Of streams that are made from now on.
  void list(bool listing) { listing_ = listing; }
  Calls take_calls() { return std::exchange(calls_, {}); }

 private:
  void release(std::byte*, int64_t, MemoryKind) override {}  // buffers are the null device's

  const std::unique_ptr<Device> device_ = create_null_device({});
  bool listing_ = false;
  Calls calls_;
};

class DeviceRunnerTest : public ::testing::Test {
 protected:
  void create(bool graphs) {
    const ModelRunnerOptions options{.max_num_seqs = 2,
                                     .max_num_batched_tokens = 32,
                                     .max_model_len = 64,
                                     .block_count = 8,
                                     .graphs = graphs,
                                     .graphs_at_start = graphs};
    KvPlan plan = plan_kv(model_.spec(), {KvFormat::kBF16}, 16);
    auto memory =
        KvMemory::create(KvMemoryKind::kPaged, device_,
                         {.page_bytes = plan.page_bytes, .page_count = options.block_count + 1});
    KvStorage storage =
        KvStorage::create(device_, model_.spec(), std::move(plan), std::move(memory).value());
    device_.list(true);
    runner_ = create_device_runner(device_, model_, std::move(storage), options).value();
    device_.list(false);
    (void)device_.take_calls();
  }
  // The calls of a step, until its result is there.
  Calls run(const StepPlan& plan) {
    (void)device_.take_calls();
    const Ticket ticket = runner_->submit_forward(plan);
    runner_->submit_sample(ticket);
    EXPECT_TRUE(runner_->wait(ticket).ok());
    return device_.take_calls();
  }
  StepPlan prompt(const SamplingParams& sampling) const {
    const auto request = std::make_shared<Request>();
    request->prompt.assign(20, 1);
    request->sampling = sampling;
    StepPlan plan;
    plan.admitted.push_back({.sequence = SequenceId(1),
                             .slot = SlotId(0),
                             .request = request,
                             .tokens = request->prompt,
                             .blocks = {{.group = 0, .blocks = {BlockId(0), BlockId(1)}}}});
    plan.work.push_back(work(0, 20));
    plan.token_count = 20;
    return plan;
  }
  static StepPlan decode(int32_t position) {
    StepPlan plan;
    plan.work.push_back(work(position, 1));
    plan.token_count = 1;
    return plan;
  }
  static Work work(int32_t first, int32_t count) {
    return {.sequence = SequenceId(1),
            .slot = SlotId(0),
            .first = first,
            .count = count,
            .rows = LogitRows::kLast,
            .samples = true};
  }

  ListingDevice device_;
  const NullModel model_{{.architecture = "null",
                          .vocab_size = 100,
                          .hidden_size = 64,
                          .layer_count = 1,
                          .query_heads = 4,
                          .context_length = 64,
                          .kv = {{.kv_heads = 2, .k_dim = 64, .v_dim = 64}}}};
  std::unique_ptr<Runner> runner_;
};

// The input, the mark of the step's begin, sampling, the mark of its end, the results.
const Calls kStep = {"copy in", "record", "kernel", "record", "copy out", "record"};

TEST_F(DeviceRunnerTest, AStepIsAnUploadItsKernelsAndItsResults) {
  create(/*graphs=*/false);
  EXPECT_EQ(run(prompt({})), kStep);
  EXPECT_EQ(run(decode(20)), kStep);
}

// A page is copied before it is written, and a slot's counts are zeroed before tokens are counted.
TEST_F(DeviceRunnerTest, PagesAndCountsComeBeforeTheInput) {
  create(/*graphs=*/false);
  StepPlan plan = prompt({.presence_penalty = 1.0f});
  plan.copies.push_back({.from = BlockId(3), .to = BlockId(1)});
  Calls expected = kStep;
  expected.insert(expected.begin(), {"copy", "zero"});
  EXPECT_EQ(run(plan), expected);
}

TEST_F(DeviceRunnerTest, ARecordedStepIsTwoLaunches) {
  create(/*graphs=*/true);
  EXPECT_EQ(run(prompt({})), kStep);
  const Calls recorded = {"copy in", "record", "launch", "launch", "record", "copy out", "record"};
  EXPECT_EQ(run(decode(20)), recorded);
}

}  // namespace
}  // namespace headrace::device_runner_test
