#include "ops/op.h"

#include <gtest/gtest.h>

#include "ops/op_test_support.h"
#include "ops/residual_add.h"

namespace headrace {
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
constexpr KernelSet<TestArgs> kSet{kKernels};

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
}  // namespace headrace
