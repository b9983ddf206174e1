#include "ops/op.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"
#include "ops/rows/residual_add.h"

namespace headrace::op_test {
namespace {

struct TestArgs {
  int* ran;  // the number of the kernel that ran
  bool odd = false;
};
OpCost op_cost(const TestArgs&) { return {.shape = "8", .rows = 2, .bytes = 64, .flops = 32}; }

template <int kNumber>
void run_number(OpContext&, const TestArgs& args) {
  *args.ran = kNumber;
}
bool always(const DeviceTraits&, const TestArgs&) { return true; }
bool if_odd(const DeviceTraits&, const TestArgs& args) { return args.odd; }

constexpr Kernel<TestArgs> kKernels[] = {{"test/best", always, run_number<1>},
                                         {"test/odd", if_odd, run_number<2>},
                                         {"test/reference", always, run_number<3>}};
const KernelSet<TestArgs> kSet({kKernels});

class CallLog final : public OpProbe {
 public:
  void ran(std::string_view kernel, const OpCost& cost, int64_t nanoseconds) override {
    calls.push_back(std::string(kernel) + " " + cost.shape);
    EXPECT_GE(nanoseconds, 0);
    EXPECT_EQ(cost.bytes, 64);
  }
  std::vector<std::string> calls;
};

TEST(Op, TheBestKernelThatFitsRunsUnlessAnotherIsPreferred) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  OpHooks hooks;
  int ran = 0;
  run_op(context, kSet, {&ran});
  EXPECT_EQ(ran, 1);
  context.hooks = &hooks;
  run_op(context, kSet, {&ran});
  EXPECT_EQ(ran, 1);
  hooks.preferred = {"test/odd", "test/reference"};
  run_op(context, kSet, {&ran});
  EXPECT_EQ(ran, 3);
  run_op(context, kSet, {&ran, true});
  EXPECT_EQ(ran, 2);
  hooks.preferred = {"other/odd"};
  run_op(context, kSet, {&ran, true});
  EXPECT_EQ(ran, 1);
}

TEST(Op, AKernelByNameIsNobodysBest) {
  constexpr Kernel<TestArgs> kNamed[] = {{"test/named", always, run_number<4>, Selection::kByName},
                                         {"test/best", always, run_number<1>}};
  constexpr Kernel<TestArgs> kNamedOnly[] = {
      {"test/named", always, run_number<4>, Selection::kByName}};
  const KernelSet<TestArgs> set({kNamed});
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  const OpHooks hooks{.preferred = {"test/named"}};
  int ran = 0;
  run_op(context, set, {&ran});
  EXPECT_EQ(ran, 1);
  context.hooks = &hooks;
  run_op(context, set, {&ran});
  EXPECT_EQ(ran, 4);
  EXPECT_EQ(set.all().size(), 2u);
  EXPECT_EQ(KernelSet<TestArgs>({kNamedOnly}).find({}, {&ran}), nullptr);
}

TEST(Op, AProbeSeesEveryCall) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  CallLog log;
  const OpHooks hooks{.probe = &log, .preferred = {"test/reference"}};
  context.hooks = &hooks;
  int ran = 0;
  run_op(context, kSet, {&ran});
  run_op(context, kSet, {&ran});
  EXPECT_EQ(log.calls, (std::vector<std::string>{"test/reference 8", "test/reference 8"}));
}

TEST(Op, AHookIsToldOfEveryChoice) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  std::vector<std::string> chosen;
  const OpHooks hooks{.preferred = {"test/odd"},
                      .chosen = [&](std::string_view kernel) { chosen.emplace_back(kernel); }};
  context.hooks = &hooks;
  int ran = 0;
  run_op(context, kSet, {&ran});
  run_op(context, kSet, {&ran, true});
  EXPECT_EQ(chosen, (std::vector<std::string>{"test/best", "test/odd"}));
}

struct SizedArgs {
  int size;
};
OpCost op_cost(const SizedArgs& args) { return {.shape = std::to_string(args.size) + " wide"}; }
bool if_small(const DeviceTraits&, const SizedArgs& args) { return args.size < 8; }
bool any_size(const DeviceTraits&, const SizedArgs&) { return true; }
void run_nothing(OpContext&, const SizedArgs&) {}

// Once for each shape, however often it runs; not for what a fast kernel takes.
TEST(Op, AFallbackIsLoggedOncePerShape) {
  constexpr Kernel<SizedArgs> kSized[] = {
      {"sized/fast", if_small, run_nothing},
      {.name = "sized/slow", .supports = any_size, .run = run_nothing, .is_fallback = true}};
  const KernelSet<SizedArgs> set({kSized});
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    for (const int size : {4, 100, 112}) run_op(context, set, {size});
  }
  const std::string log = testing::internal::GetCapturedStderr();
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("\n"), 2) << log;
  EXPECT_EQ(count("warning sized/slow runs for 100 wide: no fast kernel"), 1) << log;
  EXPECT_EQ(count("warning sized/slow runs for 112 wide: no fast kernel"), 1) << log;
}

TEST(Op, NoKernelIsFoundForWhatNoneTakes) {
  constexpr Kernel<SizedArgs> kSmallOnly[] = {{"sized/fast", if_small, run_nothing}};
  const KernelSet<SizedArgs> set({kSmallOnly});
  EXPECT_EQ(set.find({}, {4})->name, "sized/fast");
  EXPECT_EQ(set.find({}, {8}), nullptr);
}

TEST(Op, RowOpsCostWhatTheyReadAndWrite) {
  float x[6] = {}, residual[6] = {};
  const TensorView rows(reinterpret_cast<std::byte*>(x), DType::kF32, Shape{2, 3});
  const ConstTensorView added(reinterpret_cast<const std::byte*>(residual), DType::kF32,
                              Shape{2, 3});
  const OpCost cost = op_cost(ResidualAddArgs{.x = rows, .residual = added});
  EXPECT_EQ(cost.rows, 2);
  EXPECT_EQ(cost.bytes, 3 * 24);
}

}  // namespace
}  // namespace headrace::op_test
