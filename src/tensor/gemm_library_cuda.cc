// cuBLASLt behind dlopen. Row-major y = x w^T is the library's column-major y' = w x' with w
// transposed: its m is our N, its n our M.
#include "tensor/gemm_library.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include <fmt/format.h>

namespace headrace {
namespace {

// The functions of the library that are called, by name.
struct Api {
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

template <class Function>
bool load(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

bool load_all(void* library, Api& api) {
  return load(library, "cublasLtCreate", api.create) &&
         load(library, "cublasLtDestroy", api.destroy) &&
         load(library, "cublasLtMatmul", api.matmul) &&
         load(library, "cublasLtMatmulAlgoGetHeuristic", api.get_heuristic) &&
         load(library, "cublasLtGetStatusString", api.status_string) &&
         load(library, "cublasLtMatmulDescCreate", api.desc_create) &&
         load(library, "cublasLtMatmulDescDestroy", api.desc_destroy) &&
         load(library, "cublasLtMatmulDescSetAttribute", api.desc_set) &&
         load(library, "cublasLtMatrixLayoutCreate", api.layout_create) &&
         load(library, "cublasLtMatrixLayoutDestroy", api.layout_destroy) &&
         load(library, "cublasLtMatmulPreferenceCreate", api.preference_create) &&
         load(library, "cublasLtMatmulPreferenceDestroy", api.preference_destroy) &&
         load(library, "cublasLtMatmulPreferenceSetAttribute", api.preference_set);
}

constexpr std::array kPlaces = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
                                "/usr/local/cuda/lib/libcublasLt.so.13", "libcublasLt.so.12"};

void* open_library() {
  for (const char* place : kPlaces) {
    if (void* library = dlopen(place, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  }
  return nullptr;
}

cudaDataType_t library_type(DType dtype) {
  if (dtype == DType::kBF16) return CUDA_R_16BF;
  if (dtype == DType::kF16) return CUDA_R_16F;
  CHECK(dtype == DType::kF32);
  return CUDA_R_32F;
}

// The largest power of two up to 256 that divides both.
uint32_t alignment(const std::byte* address, int64_t row_bytes) {
  const uint64_t bits =
      reinterpret_cast<uintptr_t>(address) | static_cast<uint64_t>(row_bytes) | 256;
  return static_cast<uint32_t>(bits & -bits);
}

// From here on every algorithm that shares out K loses to the best that does not (down of an 8B model
// at 256 rows on an H200: 53.9 and 48.5 us), though the library's first choice may be one.
constexpr int64_t kRowsWithoutReduction = 192;

class CublasLt final : public GemmLibrary {
 public:
  CublasLt(const Api& api, cublasLtHandle_t handle) : api_(api), handle_(handle) {}
  ~CublasLt() override {
    for (auto& [key, plan] : plans_) api_.desc_destroy(plan.desc);
    api_.destroy(handle_);
  }

  void run(Stream& stream, const GemmArgs& args, std::byte* workspace) override;

 private:
  // What the choice of an algorithm may depend on: row class, N, K, strides, types, accumulation,
  // alignment.
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, DType, DType, bool, uint32_t,
                         uint32_t>;
  struct Plan {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatmulAlgo_t algo;
  };
  struct Layouts {
    cublasLtMatrixLayout_t w, x, y;
  };

  void expect(cublasStatus_t status, const char* what, const GemmArgs& args) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    const std::string text = fmt::format("{}: {} (M {}, N {}, K {})", what,
                                         api_.status_string(status), args.m, args.n, args.k);
    CHECK_MSG(false, text.c_str());
  }
  Layouts layouts(const GemmArgs& args, int64_t m) const;
  void destroy(const Layouts& layouts) const;
  cublasLtMatmulDesc_t description(const GemmArgs& args) const;
  const Plan& plan(const GemmArgs& args);

  const Api api_;
  const cublasLtHandle_t handle_;
  std::mutex mutex_;
  std::map<Key, Plan> plans_;  // an entry stays where it is
};

CublasLt::Layouts CublasLt::layouts(const GemmArgs& args, int64_t m) const {
  const cudaDataType_t in = library_type(args.dtype);
  const auto rows_n = static_cast<uint64_t>(args.n), rows_m = static_cast<uint64_t>(m);
  const auto columns = static_cast<uint64_t>(args.k);
  Layouts made{};
  expect(api_.layout_create(&made.w, in, columns, rows_n, args.k), "layout", args);
  expect(api_.layout_create(&made.x, in, columns, rows_m, args.x_stride), "layout", args);
  expect(api_.layout_create(&made.y, library_type(args.y_dtype), rows_n, rows_m, args.y_stride),
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
  return desc;
}

const CublasLt::Plan& CublasLt::plan(const GemmArgs& args) {
  const int64_t m = gemm_row_class(args.m);
  const int64_t x_bytes = args.x_stride * dtype_info(args.dtype).block_bytes;
  const int64_t y_bytes = args.y_stride * dtype_info(args.y_dtype).block_bytes;
  const uint32_t x_alignment = alignment(args.x, x_bytes), y_alignment = alignment(args.y, y_bytes);
  const Key key{m,          args.n,       args.k,          args.x_stride, args.y_stride,
                args.dtype, args.y_dtype, args.accumulate, x_alignment,   y_alignment};
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = plans_.try_emplace(key);
  Plan& plan = at->second;
  if (!fresh) return plan;
  plan.desc = description(args);
  cublasLtMatmulPreference_t preference = nullptr;
  expect(api_.preference_create(&preference), "preference", args);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    expect(api_.preference_set(preference, attribute, &value, sizeof value), "preference", args);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, x_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, y_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, y_alignment);
  if (m >= kRowsWithoutReduction) {
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  }
  const Layouts shape = layouts(args, m);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  expect(api_.get_heuristic(handle_, plan.desc, shape.w, shape.x, shape.y, shape.y, preference, 1,
                            &result, &found),
         "no algorithm", args);
  CHECK(found == 1);
  plan.algo = result.algo;
  destroy(shape);
  api_.preference_destroy(preference);
  return plan;
}

void CublasLt::run(Stream& stream, const GemmArgs& args, std::byte* workspace) {
  const Plan& chosen = plan(args);
  const Layouts shape = layouts(args, args.m);
  const float one = 1.0f, beta = args.accumulate ? 1.0f : 0.0f;
  expect(api_.matmul(handle_, chosen.desc, &one, args.w, shape.w, args.x, shape.x, &beta, args.y,
                     shape.y, args.y, shape.y, &chosen.algo, workspace, kWorkspaceBytes,
                     static_cast<cudaStream_t>(stream.native())),
         "matrix product", args);
  destroy(shape);
}

}  // namespace

Result<std::unique_ptr<GemmLibrary>> GemmLibrary::open() {
  void* library = open_library();
  if (library == nullptr) {
    std::string places;
    for (const char* place : kPlaces) places += (places.empty() ? "" : ", ") + std::string(place);
    return unavailable(fmt::format(
        "cuBLASLt is not there (looked for {}): install CUDA's libcublas, or set LD_LIBRARY_PATH "
        "to its folder, or use --device cpu",
        places));
  }
  Api api{};
  cublasLtHandle_t handle = nullptr;
  if (!load_all(library, api)) return unavailable("cuBLASLt lacks a function that is needed");
  if (const cublasStatus_t status = api.create(&handle); status != CUBLAS_STATUS_SUCCESS) {
    return unavailable(fmt::format("cuBLASLt does not start: {}", api.status_string(status)));
  }
  return std::unique_ptr<GemmLibrary>(std::make_unique<CublasLt>(api, handle));
}

}  // namespace headrace
