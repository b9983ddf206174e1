// Times what a mixture of experts runs on a GPU, launches recorded as in a step, rows routed at
// random:
//   experts_bench [shape...] [type] [rows...] [kernel...]   one JSON line for each
//     router, route, sum   the small ops
//     gate_up, down        every kernel of grouped_linear that takes it, or those named, with the
//                          bytes of the experts that have rows; "dense": a product of as many rows
//                          with one expert's matrix, by the kernel that linear and gated_linear
//                          would take
//     layer                all but the router in their order, the best kernels
// Type: BF16, or what experts are quantised to (Q8_0, Q4_0, Q4_K). Shapes: qwen3-30b-a3b,
// mixtral-8x7b. The experts of one layer are more than a cache holds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "ops/linear/gated_linear.h"
#include "ops/linear/grouped_linear.h"
#include "ops/packing/random_matrix.h"
#include "ops/rows/route_experts.h"
#include "ops/rows/row_gather_sum.h"
#include "recorded_time.h"
#include "tensor/half.h"

using namespace headrace;

namespace {

struct MixtureShape {
  const char* name;
  int32_t experts, used;
  int64_t hidden, width;
};
constexpr MixtureShape kShapes[] = {{"qwen3-30b-a3b", 128, 8, 2048, 768},
                                    {"mixtral-8x7b", 8, 2, 4096, 14336}};

std::vector<uint16_t> random_bf16(int64_t count) {
  Rng rng(7);
  std::vector<uint16_t> values(static_cast<size_t>(count));
  for (uint16_t& value : values) {
    value = float_to_bfloat16(static_cast<float>(rng.uniform() - 0.5) * 0.1f);
  }
  return values;
}

// A matrix on the device, of a few random rows over and over.
LinearWeight weight_on(Device& device, int64_t rows, int64_t columns, DType type = DType::kBF16) {
  constexpr int64_t kMade = 512;
  const std::vector<uint16_t> values = random_bf16(kMade * columns);
  const ConstTensorView made{reinterpret_cast<const std::byte*>(values.data()), DType::kBF16,
                             Shape{kMade, columns}};
  std::vector<int32_t> order(static_cast<size_t>(rows));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i * 7 % kMade);
  LinearSource source{made, order};
  if (is_quantised(type)) source.quantise_to = type;
  return std::move(LinearWeight::pack(device, {&source, 1}, LinearCompute::kFast).value());
}

// Everything of one layer, for so many rows at most.
class Layer {
 public:
  Layer(Device& device, Stream& stream, const MixtureShape& shape, DType type, int64_t rows_max)
      : shape_(shape),
        rule_{.experts = shape.experts, .used = shape.used, .normalised = true},
        gate_up_(weight_on(device, shape.experts * 2 * shape.width, shape.hidden, type)),
        down_(weight_on(device, shape.experts * shape.hidden, shape.width, type)),
        one_gate_up_(weight_on(device, 2 * shape.width, shape.hidden)),
        one_down_(weight_on(device, shape.hidden, shape.width)) {
    const std::vector<float> router =
        floats(static_cast<size_t>(shape.experts * shape.hidden), 0.02f);
    const LinearSource source{{reinterpret_cast<const std::byte*>(router.data()), DType::kF32,
                               Shape{shape.experts, shape.hidden}},
                              {}};
    router_ = std::move(LinearWeight::pack(device, {&source, 1}, LinearCompute::kFloat32).value());
    const int64_t listed = rows_max * shape.used;
    const auto take = [&](int64_t bytes) {
      buffers_.push_back(std::move(device.allocate(bytes).value()));
      return buffers_.back().data();
    };
    x_ = take(rows_max * shape.hidden * 2);
    listed_x_ = take(listed * shape.hidden * 2);
    logits_ = take(rows_max * shape.experts * 4);
    activated_ = take(listed * shape.width * 2);
    gate_up_rows_ = take(listed * 2 * shape.width * 2);
    outputs_ = take(listed * shape.hidden * 2);
    y_ = take(rows_max * shape.hidden * 2);
    for (auto* const at : {&starts_, &rows_, &places_, &weights_}) {
      *at = take(4 * (listed + shape.experts + 1));
    }
    const std::vector<uint16_t> inputs = random_bf16(1 << 20);
    for (std::byte* const to : {x_, listed_x_}) {
      const int64_t bytes = (to == x_ ? rows_max : listed) * shape.hidden * 2;
      for (int64_t at = 0; at < bytes; at += 2 << 20) {
        stream.copy_in(to + at, reinterpret_cast<const std::byte*>(inputs.data()),
                       std::min<int64_t>(2 << 20, bytes - at));
      }
    }
    CHECK(stream.synchronize().ok());
  }

  const MixtureShape& shape() const { return shape_; }

  // Random logits for `rows`; which experts have rows is counted here.
  void draw(Stream& stream, int64_t rows) {
    const std::vector<float> logits = floats(static_cast<size_t>(rows * shape_.experts), 1.0f);
    stream.copy_in(logits_, reinterpret_cast<const std::byte*>(logits.data()),
                   static_cast<int64_t>(logits.size() * 4));
    CHECK(stream.synchronize().ok());
    std::vector<bool> has_rows(static_cast<size_t>(shape_.experts));
    std::vector<int32_t> order(has_rows.size());
    for (int64_t t = 0; t < rows; ++t) {
      const float* const row = &logits[static_cast<size_t>(t * shape_.experts)];
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + shape_.used, order.end(),
                        [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      for (int32_t i = 0; i < shape_.used; ++i) {
        has_rows[static_cast<size_t>(order[static_cast<size_t>(i)])] = true;
      }
    }
    active_ = std::ranges::count(has_rows, true);
  }
  int64_t active() const { return active_; }
  double active_bytes() const {
    return static_cast<double>(gate_up_.packed_bytes() + down_.packed_bytes()) *
           static_cast<double>(active_) / shape_.experts;
  }

  LinearArgs router(int64_t rows) const {
    return {.x = view(x_, rows, shape_.hidden),
            .weight = &router_,
            .bias = nullptr,
            .y = {logits_, DType::kF32, Shape{rows, shape_.experts}}};
  }
  RouteExpertsArgs route(int64_t rows) const {
    const auto listed = static_cast<size_t>(rows * shape_.used);
    return {.rule = rule_,
            .logits = {logits_, DType::kF32, Shape{rows, shape_.experts}},
            .bias = nullptr,
            .out = {.starts = ints(starts_, static_cast<size_t>(shape_.experts) + 1),
                    .rows = ints(rows_, listed),
                    .weights = {reinterpret_cast<float*>(weights_), listed},
                    .places = ints(places_, listed)}};
  }
  GroupedLinearArgs gate_up(int64_t rows) const {
    const auto listed = static_cast<size_t>(rows * shape_.used);
    return {.x = view(x_, rows, shape_.hidden),
            .weight = &gate_up_,
            .starts = ints(starts_, static_cast<size_t>(shape_.experts) + 1),
            .rows = ints(rows_, listed),
            .gate = Activation::kSilu,
            .y = view(activated_, rows * shape_.used, shape_.width)};
  }
  GroupedLinearArgs down(int64_t rows) const {
    return {.x = view(activated_, rows * shape_.used, shape_.width),
            .weight = &down_,
            .starts = ints(starts_, static_cast<size_t>(shape_.experts) + 1),
            .rows = {},
            .gate = std::nullopt,
            .y = view(outputs_, rows * shape_.used, shape_.hidden)};
  }
  RowGatherSumArgs sum(int64_t rows) const {
    const auto listed = static_cast<size_t>(rows * shape_.used);
    return {.x = view(outputs_, rows * shape_.used, shape_.hidden),
            .places = ints(places_, listed),
            .scales = {reinterpret_cast<float*>(weights_), listed},
            .out = view(y_, rows, shape_.hidden)};
  }
  GatedLinearArgs dense_gate_up(int64_t rows) const {
    const int64_t listed = rows * shape_.used;
    return {.x = view(listed_x_, listed, shape_.hidden),
            .weight = &one_gate_up_,
            .bias = nullptr,
            .gate_up = view(gate_up_rows_, listed, 2 * shape_.width),
            .y = view(activated_, listed, shape_.width)};
  }
  LinearArgs dense_down(int64_t rows) const {
    const int64_t listed = rows * shape_.used;
    return {.x = view(activated_, listed, shape_.width),
            .weight = &one_down_,
            .bias = nullptr,
            .y = view(outputs_, listed, shape_.hidden)};
  }

 private:
  static std::vector<float> floats(size_t count, float scale) {
    Rng rng(5);
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(rng.uniform() - 0.5) * scale;
    return values;
  }
  static TensorView view(std::byte* at, int64_t rows, int64_t columns) {
    return {at, DType::kBF16, Shape{rows, columns}};
  }
  static std::span<int32_t> ints(std::byte* at, size_t count) {
    return {reinterpret_cast<int32_t*>(at), count};
  }

  const MixtureShape shape_;
  const RouterRule rule_;
  LinearWeight router_, gate_up_, down_, one_gate_up_, one_down_;
  std::vector<Buffer> buffers_;
  std::byte *x_, *listed_x_, *logits_, *activated_, *gate_up_rows_, *outputs_, *y_;
  std::byte *starts_, *rows_, *places_, *weights_;
  int64_t active_ = 0;
};

struct Timed {
  std::string op, kernel;
  int64_t rows = 0;
  double bytes = 0, flops = 0;
};

// One line: the time of one of some in a row.
template <class Run>
void report(OpContext& context, const Layer& layer, const Timed& timed, const Run& run) {
  for (int i = 0; i < 2; ++i) run();
  const int rounds = std::clamp(static_cast<int>(3e13 / (timed.flops + 1)), 8, 40);
  const auto run_all = [&] {
    for (int i = 0; i < rounds; ++i) run();
  };
  const double us = time_recorded(context, run_all) * 1000.0 / rounds;
  const Status status = context.stream.synchronize();
  std::printf(
      "{\"bench\": \"experts\", \"shape\": \"%s\", \"op\": \"%s\", \"kernel\": \"%s\", "
      "\"rows\": %lld, \"active\": %lld, \"us\": %.2f, \"tb_s\": %.3f, \"tflops\": %.1f%s}\n",
      layer.shape().name, timed.op.c_str(), timed.kernel.c_str(),
      static_cast<long long>(timed.rows), static_cast<long long>(layer.active()), us,
      timed.bytes / us * 1e-6, timed.flops / us * 1e-6, status.ok() ? "" : ", \"error\": true");
  std::fflush(stdout);
}

// Of every kernel that takes it and is asked for; the fallback alone only of one row.
void time_grouped(OpContext& context, const Layer& layer, const char* op,
                  const GroupedLinearArgs& args, int64_t rows,
                  const std::vector<std::string>& named) {
  const int64_t n = args.expert_rows(), k = args.weight->k();
  const double bytes = static_cast<double>(args.weight->packed_bytes()) *
                       static_cast<double>(layer.active()) / layer.shape().experts;
  const double flops = 2.0 * static_cast<double>(args.y.rows() * n * k);
  for (const auto& kernel : grouped_linear_kernels().all()) {
    const std::string name(kernel.name);
    if (!kernel.supports(context.device.traits(), args)) continue;
    if (!named.empty() && std::ranges::find(named, name) == named.end()) continue;
    if (kernel.is_fallback && rows > 1) continue;
    report(context, layer, {op, name, rows, bytes, flops}, [&] { kernel.run(context, args); });
  }
}

template <class Args, class Op>
void time_best(OpContext& context, const Layer& layer, const Timed& timed,
               const KernelSet<Args>& kernels, const Args& args, const Op& op) {
  Timed named = timed;
  named.kernel = kernels.select(context.device, args).name;
  report(context, layer, named, [&] { op(context, args); });
}

void time_rows(OpContext& context, Layer& layer, int64_t rows,
               const std::vector<std::string>& named) {
  const MixtureShape& shape = layer.shape();
  const RouteExpertsArgs route = layer.route(rows);
  const LinearArgs router = layer.router(rows);
  const GroupedLinearArgs gate_up = layer.gate_up(rows), down = layer.down(rows);
  const RowGatherSumArgs sum = layer.sum(rows);
  time_best(context, layer,
            {"router", "", rows, static_cast<double>(router.weight->packed_bytes()),
             2.0 * static_cast<double>(rows * shape.experts * shape.hidden)},
            linear_kernels(), router, linear);
  layer.draw(context.stream, rows);
  time_best(context, layer, {"route", "", rows, static_cast<double>(bytes_of(route.logits)), 0},
            route_experts_kernels(), route, route_experts);
  time_grouped(context, layer, "gate_up", gate_up, rows, named);
  time_grouped(context, layer, "down", down, rows, named);
  time_best(context, layer, {"sum", "", rows, static_cast<double>(bytes_of(sum.x)), 0},
            row_gather_sum_kernels(), sum, row_gather_sum);
  const double listed = static_cast<double>(rows * shape.used);
  const double matrix = static_cast<double>(shape.hidden * shape.width);
  time_best(context, layer, {"dense gate_up", "", rows, 4 * matrix, 4 * listed * matrix},
            gated_linear_kernels(), layer.dense_gate_up(rows), gated_linear);
  time_best(context, layer, {"dense down", "", rows, 2 * matrix, 2 * listed * matrix},
            linear_kernels(), layer.dense_down(rows), linear);
  GroupedLinearArgs down_behind_it = down;
  down_behind_it.follows_another = true;
  report(context, layer, {"layer", "best", rows, layer.active_bytes(), 6 * listed * matrix}, [&] {
    route_experts(context, route);
    grouped_linear(context, gate_up);
    grouped_linear(context, down_behind_it);
    row_gather_sum(context, sum);
  });
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> row_counts;
  std::vector<std::string_view> shapes;
  std::vector<std::string> kernels;
  DType type = DType::kBF16;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto named =
        std::ranges::find_if(kWeightTypes, [&](DType each) { return dtype_name(each) == word; });
    if (named != std::end(kWeightTypes)) {
      type = *named;
    } else if (word.find('/') != std::string_view::npos) {
      kernels.emplace_back(word);
    } else if (std::atoll(argv[i]) > 0) {
      row_counts.push_back(std::atoll(argv[i]));
    } else {
      shapes.push_back(word);
    }
  }
  if (row_counts.empty()) row_counts = {1, 2, 4, 8, 32, 64, 128, 256, 512, 1024, 4096, 16384};
  if (shapes.empty()) shapes = {kShapes[0].name};
  auto device = create_cuda_device(0);
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.status().message().c_str());
    return 1;
  }
  const auto stream = (*device)->create_stream();
  Workspace workspace(std::move((*device)->allocate(256 << 20).value()));
  SingleRank one;
  Mesh mesh{&one, &one, &one};
  OpContext context{**device, *stream, workspace, mesh};
  for (const MixtureShape& shape : kShapes) {
    if (std::ranges::find(shapes, shape.name) == shapes.end()) continue;
    Layer layer(**device, *stream, shape, type, *std::ranges::max_element(row_counts));
    for (const int64_t rows : row_counts) time_rows(context, layer, rows, kernels);
  }
  return 0;
}
