// cuBLASLt, opened at run time. Row-major y = x w^T is the library's column-major y' = w x' with w
// transposed: its m is our N, its n our M.
#include "tensor/gemm_library.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "tensor/cuda_fault.h"
#include "tensor/gemm_trial.h"
#include "tensor/shared_library.h"

namespace headrace {
namespace {

// The functions of the library that are called, by name.
struct BlasApi {
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

bool load_blas(const SharedLibrary& library, BlasApi& api) {
  return library.find("cublasLtGetVersion", api.version) &&
         library.find("cublasLtCreate", api.create) &&
         library.find("cublasLtDestroy", api.destroy) &&
         library.find("cublasLtMatmul", api.matmul) &&
         library.find("cublasLtMatmulAlgoGetHeuristic", api.get_heuristic) &&
         library.find("cublasLtGetStatusString", api.status_string) &&
         library.find("cublasLtMatmulDescCreate", api.desc_create) &&
         library.find("cublasLtMatmulDescDestroy", api.desc_destroy) &&
         library.find("cublasLtMatmulDescSetAttribute", api.desc_set) &&
         library.find("cublasLtMatrixLayoutCreate", api.layout_create) &&
         library.find("cublasLtMatrixLayoutDestroy", api.layout_destroy) &&
         library.find("cublasLtMatmulPreferenceCreate", api.preference_create) &&
         library.find("cublasLtMatmulPreferenceDestroy", api.preference_destroy) &&
         library.find("cublasLtMatmulPreferenceSetAttribute", api.preference_set);
}

constexpr std::array kBlasPlaces = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
                                    "/usr/local/cuda/lib/libcublasLt.so.13", "libcublasLt.so.12"};

cudaDataType_t blas_type(DType dtype) {
  if (dtype == DType::kBF16) return CUDA_R_16BF;
  if (dtype == DType::kF16) return CUDA_R_16F;
  if (dtype == DType::kF8) return CUDA_R_8F_E4M3;
  CHECK(dtype == DType::kF32);
  return CUDA_R_32F;
}

// The largest power of two up to 256 that divides both.
uint32_t alignment(const std::byte* address, int64_t row_bytes) {
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(address) | static_cast<uint64_t>(row_bytes) | 256;
  return static_cast<uint32_t>(bits & -bits);
}

// From here on every algorithm that shares out K loses to the best that does not (down of an 8B
// model at 256 rows on an H200: 53.9 and 48.5 us), though the library's first choice may be one.
constexpr int64_t kRowsWithoutReduction = 192;

// Of a trial. Fewer elements are timed with the launch, not with the memory (3 us at 4 TB/s).
constexpr int kCandidatesMax = 12;
constexpr int64_t kTrialElementsMin = 2048 * 2048;
// Matrices that no cache holds need no other layer's between two of their runs.
constexpr int64_t kTrialBytesAtOnce = 256 << 20;
constexpr double kRefusedSeconds = 1e9;  // of a candidate that does not take the product

// Which of its errors may come up though the arguments are right.
bool is_blas_fault(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_INITIALIZED || status == CUBLAS_STATUS_ALLOC_FAILED ||
         status == CUBLAS_STATUS_MAPPING_ERROR || status == CUBLAS_STATUS_EXECUTION_FAILED ||
         status == CUBLAS_STATUS_INTERNAL_ERROR;
}

class CublasLt final : public GemmLibrary {
 public:
  CublasLt(const BlasApi& api, cublasLtHandle_t handle) : api_(api), handle_(handle) {}
  ~CublasLt() override {
    for (auto& [key, plan] : plans_) api_.desc_destroy(plan.desc);
    api_.destroy(handle_);
  }

  bool has_float8() const override {
    constexpr size_t kRowScales = 120900;
    return api_.version() >= kRowScales;
  }
  void run(Stream& stream, const GemmArgs& args, std::byte* workspace) override;
  void begin_trial(Stream& stream) override;
  void end_trial() override;

 private:
  // What the choice of an algorithm may depend on: row class, N, K, strides, types, accumulation,
  // alignment.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, DType, DType, bool, uint32_t,
                         uint32_t>;
  struct Plan {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatmulAlgo_t algo;
    cublasLtMatmulAlgo_t first;  // the library's own choice
  };
  // Of a plan that is on trial.
  struct Trial {
    std::vector<cublasLtMatmulAlgo_t> algos;  // the plan's own first
    GemmTrial timings;
    std::string name;
  };
  // A candidate's run that is not read yet.
  struct TrialRun {
    Key key;
    int candidate;
    std::unique_ptr<Event> begin, end;
  };
  struct Layouts {
    cublasLtMatrixLayout_t w, x, y;
  };

  std::string text_of(cublasStatus_t status, const char* what, const GemmArgs& args) const {
    return fmt::format("{}: {} (M {}, N {}, K {})", what, api_.status_string(status), args.m,
                       args.n, args.k);
  }
  // Of calls that only describe.
  void expect(cublasStatus_t status, const char* what, const GemmArgs& args) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    CHECK_MSG(false, text_of(status, what, args).c_str());
  }
  // Behind one that has come to nothing: what is no bug fails the stream.
  void fail(Stream& stream, cublasStatus_t status, const char* what, const GemmArgs& args) const;
  Layouts layouts(const GemmArgs& args, int64_t m) const;
  void destroy(const Layouts& layouts) const;
  cublasLtMatmulDesc_t description(const GemmArgs& args) const;
  void set_scales(const GemmArgs& args, cublasLtMatmulDesc_t desc) const;
  static Key key_of(const GemmArgs& args);
  std::optional<Plan> plan(Stream& stream, const GemmArgs& args);
  std::vector<cublasLtMatmulAlgo_t> propose(Stream& stream, const GemmArgs& args,
                                            cublasLtMatmulDesc_t desc, int count,
                                            bool reductions) const;
  cublasStatus_t start(Stream& stream, const GemmArgs& args, std::byte* workspace,
                       const Plan& plan) const;
  bool on_trial(const Stream& stream, const GemmArgs& args);
  void run_trial(Stream& stream, const GemmArgs& args, std::byte* workspace);

  const BlasApi api_;
  const cublasLtHandle_t handle_;
  std::mutex mutex_;  // of all below, and of calls to the library
  std::map<Key, Plan> plans_;
  const Stream* trial_stream_ = nullptr;
  std::map<Key, Trial> trials_;
  std::vector<TrialRun> trial_runs_;
};

CublasLt::Layouts CublasLt::layouts(const GemmArgs& args, int64_t m) const {
  const cudaDataType_t in = blas_type(args.dtype);
  const auto rows_n = static_cast<uint64_t>(args.n), rows_m = static_cast<uint64_t>(m);
  const auto columns = static_cast<uint64_t>(args.k);
  Layouts made{};
  expect(api_.layout_create(&made.w, in, columns, rows_n, args.k), "layout", args);
  expect(api_.layout_create(&made.x, in, columns, rows_m, args.x_stride), "layout", args);
  expect(api_.layout_create(&made.y, blas_type(args.y_dtype), rows_n, rows_m, args.y_stride),
         "layout", args);
  return made;
}

void CublasLt::destroy(const Layouts& layouts) const {
  api_.layout_destroy(layouts.w);
  api_.layout_destroy(layouts.x);
  api_.layout_destroy(layouts.y);
}

cublasLtMatmulDesc_t CublasLt::description(const GemmArgs& args) const {
  cublasLtMatmulDesc_t desc = nullptr;
  expect(api_.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description", args);
  const cublasOperation_t transpose = CUBLAS_OP_T;
  expect(api_.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
         "description", args);
  if (args.dtype != DType::kF8) return desc;
  const cublasLtMatmulMatrixScale_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
  for (const auto side : {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE}) {
    expect(api_.desc_set(desc, side, &by_row, sizeof by_row), "description", args);
  }
  set_scales(args, desc);
  return desc;
}

// Where they lie is part of a description, and differs from call to call.
void CublasLt::set_scales(const GemmArgs& args, cublasLtMatmulDesc_t desc) const {
  if (args.dtype != DType::kF8) return;
  expect(api_.desc_set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &args.w_scales,
                       sizeof args.w_scales),
         "scales", args);
  expect(api_.desc_set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &args.x_scales,
                       sizeof args.x_scales),
         "scales", args);
}

CublasLt::Key CublasLt::key_of(const GemmArgs& args) {
  const int64_t x_bytes = args.x_stride * dtype_info(args.dtype).block_bytes;
  const int64_t y_bytes = args.y_stride * dtype_info(args.y_dtype).block_bytes;
  return {gemm_row_class(args.m),
          args.n,
          args.k,
          args.x_stride,
          args.y_stride,
          args.dtype,
          args.y_dtype,
          args.accumulate,
          alignment(args.x, x_bytes),
          alignment(args.y, y_bytes)};
}

// A lost device says why itself; the library's words for it are others.
void CublasLt::fail(Stream& stream, cublasStatus_t status, const char* what,
                    const GemmArgs& args) const {
  const cudaError_t device = cuda_device_state();
  if (is_cuda_fault(device)) return stream.fail(cuda_fault(device));
  CHECK_MSG(is_blas_fault(status), text_of(status, what, args).c_str());
  stream.fail(internal_error("cuBLASLt: " + text_of(status, what, args)));
}

// At least one algorithm, the library's first choice first; none where the stream has failed.
std::vector<cublasLtMatmulAlgo_t> CublasLt::propose(Stream& stream, const GemmArgs& args,
                                                    cublasLtMatmulDesc_t desc, int count,
                                                    bool reductions) const {
  const Key key = key_of(args);
  cublasLtMatmulPreference_t preference = nullptr;
  expect(api_.preference_create(&preference), "preference", args);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    expect(api_.preference_set(preference, attribute, &value, sizeof value), "preference", args);
  };
  const auto [x_alignment, y_alignment] = std::pair(std::get<8>(key), std::get<9>(key));
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, y_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, y_alignment);
  if (!reductions) {
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  }
  const Layouts shape = layouts(args, gemm_row_class(args.m));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status = api_.get_heuristic(
      handle_, desc, shape.w, shape.x, shape.y, shape.y, preference, count, results.data(), &found);
  destroy(shape);
  api_.preference_destroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail(stream, status, "no algorithm", args);
    return {};
  }
  CHECK(found > 0);
  std::vector<cublasLtMatmulAlgo_t> algos;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algos.push_back(result.algo);
  }
  CHECK(!algos.empty());
  return algos;
}

// Empty where the stream has failed.
std::optional<CublasLt::Plan> CublasLt::plan(Stream& stream, const GemmArgs& args) {
  const Key key = key_of(args);
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  const bool reductions = gemm_row_class(args.m) < kRowsWithoutReduction;
  Plan plan{.desc = description(args), .algo = {}, .first = {}};
  const std::vector<cublasLtMatmulAlgo_t> algos = propose(stream, args, plan.desc, 1, reductions);
  if (algos.empty()) {
    api_.desc_destroy(plan.desc);
    return std::nullopt;
  }
  plan.algo = plan.first = algos.front();
  plans_.emplace(key, plan);
  return plan;
}

cublasStatus_t CublasLt::start(Stream& stream, const GemmArgs& args, std::byte* workspace,
                               const Plan& plan) const {
  const Layouts shape = layouts(args, args.m);
  set_scales(args, plan.desc);
  const float one = 1.0f, beta = args.accumulate ? 1.0f : 0.0f;
  const cublasStatus_t status = api_.matmul(
      handle_, plan.desc, &one, args.w, shape.w, args.x, shape.x, &beta, args.y, shape.y, args.y,
      shape.y, &plan.algo, workspace, kWorkspaceBytes, static_cast<cudaStream_t>(stream.native()));
  destroy(shape);
  return status;
}

void CublasLt::run(Stream& stream, const GemmArgs& args, std::byte* workspace) {
  const std::lock_guard lock(mutex_);
  if (on_trial(stream, args)) return run_trial(stream, args, workspace);
  std::optional<Plan> chosen = plan(stream, args);
  if (!chosen.has_value()) return;
  if (start(stream, args, workspace, *chosen) == CUBLAS_STATUS_SUCCESS) return;
  // What won a trial was proposed for the most rows of its class; it may refuse fewer.
  chosen->algo = chosen->first;
  const cublasStatus_t status = start(stream, args, workspace, *chosen);
  if (status != CUBLAS_STATUS_SUCCESS) fail(stream, status, "matrix product", args);
}

// ---- trials -------------------------------------------------------------------------------------

void CublasLt::begin_trial(Stream& stream) {
  const std::lock_guard lock(mutex_);
  trial_stream_ = &stream;
}

bool CublasLt::on_trial(const Stream& stream, const GemmArgs& args) {
  if (trial_stream_ != &stream) return false;
  if (args.n * args.k < kTrialElementsMin) return false;
  const auto trial = trials_.find(key_of(args));
  return trial == trials_.end() || !trial->second.timings.complete();
}

void CublasLt::run_trial(Stream& stream, const GemmArgs& args, std::byte* workspace) {
  const Key key = key_of(args);
  std::optional<Plan> chosen = plan(stream, args);
  if (!chosen.has_value()) return;
  auto trial = trials_.find(key);
  if (trial == trials_.end()) {
    // The plan's own algorithm, then what is proposed with sums shared out and without.
    std::vector<cublasLtMatmulAlgo_t> algos = {chosen->algo};
    for (const bool reductions : {true, false}) {
      for (const cublasLtMatmulAlgo_t& algo :
           propose(stream, args, chosen->desc, kCandidatesMax / 2, reductions)) {
        const bool known = std::any_of(algos.begin(), algos.end(), [&](const auto& other) {
          return std::memcmp(&other, &algo, sizeof algo) == 0;
        });
        if (!known) algos.push_back(algo);
      }
    }
    const int count = static_cast<int>(algos.size());
    std::string name = fmt::format("{} x {}, {} rows", args.n, args.k, gemm_row_class(args.m));
    trial = trials_.emplace(key, Trial{std::move(algos), GemmTrial(count), std::move(name)}).first;
  }
  Trial& running = trial->second;
  const int64_t bytes = args.n * args.k * dtype_info(args.dtype).block_bytes;
  const bool once = bytes < kTrialBytesAtOnce || args.accumulate;  // a sum can be added once only
  const int runs = once ? 1 : static_cast<int>(running.algos.size()) * GemmTrial::kSamples;
  for (int i = 0; i < runs; ++i) {
    const int candidate = running.timings.next();
    running.timings.start(candidate);
    chosen->algo = running.algos[static_cast<size_t>(candidate)];
    TrialRun run{key, candidate, stream.create_timer(), stream.create_timer()};
    stream.record(*run.begin);
    const cublasStatus_t status = start(stream, args, workspace, *chosen);
    if (status != CUBLAS_STATUS_SUCCESS) {
      running.timings.add(candidate, kRefusedSeconds);
      // A lost device refuses all of them, without end.
      if (is_cuda_fault(cuda_device_state())) return fail(stream, status, "matrix product", args);
      --i;  // y is still to be computed
      continue;
    }
    stream.record(*run.end);
    trial_runs_.push_back(std::move(run));
  }
}

void CublasLt::end_trial() {
  const std::lock_guard lock(mutex_);
  trial_stream_ = nullptr;
  for (const TrialRun& run : trial_runs_) {
    trials_.at(run.key).timings.add(run.candidate, run.end->seconds_since(*run.begin));
  }
  trial_runs_.clear();
  for (auto& [key, trial] : trials_) {
    if (!trial.timings.complete() || trial.algos.empty()) continue;
    const int best = trial.timings.best();
    log_debug("matrix product {}: {:.1f} us by the library's choice, {:.1f} by candidate {} of {}",
              trial.name, 1e6 * trial.timings.seconds(0), 1e6 * trial.timings.seconds(best), best,
              trial.algos.size());
    plans_.at(key).algo = trial.algos[static_cast<size_t>(best)];
    trial.algos.clear();  // decided
  }
}

}  // namespace

Result<std::unique_ptr<GemmLibrary>> GemmLibrary::open() {
  const SharedLibrary library(kBlasPlaces);
  if (!library.is_open()) {
    return unavailable(fmt::format(
        "cuBLASLt is not there (looked for {}): install CUDA's libcublas, or set LD_LIBRARY_PATH "
        "to its folder, or use --device cpu",
        places_text(kBlasPlaces)));
  }
  BlasApi api{};
  cublasLtHandle_t handle = nullptr;
  if (!load_blas(library, api)) return unavailable("cuBLASLt lacks a function that is needed");
  if (const cublasStatus_t status = api.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return unavailable(fmt::format("cuBLASLt does not start: {}", api.status_string(status)));
  }
  return std::unique_ptr<GemmLibrary>(std::make_unique<CublasLt>(api, handle));
}

}  // namespace headrace
