// NCCL, opened at run time. Its header is not part of the CUDA toolkit, so the few types that are
// needed stand here; they are of NCCL's binary interface, unchanged since 2.0 (BF16: 2.10).
#include "tensor/nccl_library.h"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "tensor/shared_library.h"

namespace headrace {
namespace {

using NcclComm = void*;
using NcclResult = int;
constexpr NcclResult kNcclSuccess = 0;
constexpr NcclResult kNcclInProgress = 7;
constexpr int kNcclSum = 0;

// The functions of the library that are called, by name.
struct NcclApi {
  NcclResult (*get_version)(int*);
  NcclResult (*get_unique_id)(NcclGroupId*);
  NcclResult (*comm_init_rank)(NcclComm*, int size, NcclGroupId, int rank);
  NcclResult (*comm_abort)(NcclComm);
  NcclResult (*comm_destroy)(NcclComm);
  NcclResult (*comm_async_error)(NcclComm, NcclResult*);
  NcclResult (*all_reduce)(const void* from, void* to, size_t count, int type, int operation,
                           NcclComm, cudaStream_t);
  const char* (*error_string)(NcclResult);
};

bool load_nccl(const SharedLibrary& library, NcclApi& api) {
  return library.find("ncclGetVersion", api.get_version) &&
         library.find("ncclGetUniqueId", api.get_unique_id) &&
         library.find("ncclCommInitRank", api.comm_init_rank) &&
         library.find("ncclCommAbort", api.comm_abort) &&
         library.find("ncclCommDestroy", api.comm_destroy) &&
         library.find("ncclCommGetAsyncError", api.comm_async_error) &&
         library.find("ncclAllReduce", api.all_reduce) &&
         library.find("ncclGetErrorString", api.error_string);
}

constexpr std::array kNcclPlaces = {"libnccl.so.2"};

int nccl_type(DType dtype) {
  if (dtype == DType::kBF16) return 9;
  if (dtype == DType::kF16) return 6;
  CHECK(dtype == DType::kF32);
  return 7;
}

class Rank final : public NcclRank {
 public:
  Rank(const NcclApi& api, NcclComm comm, int rank, int size)
      : api_(api), comm_(comm), rank_(rank), size_(size) {}
  ~Rank() override {
    // Destroying waits for the other ranks' calls; after an error they may never come.
    status().ok() ? api_.comm_destroy(comm_) : api_.comm_abort(comm_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce_sum(Stream& stream, TensorView data) override {
    CHECK(data.rows() == 1 || data.row_stride == row_bytes(data.dtype, data.columns()));
    note(api_.all_reduce(data.data, data.data, static_cast<size_t>(*data.shape.elements()),
                         nccl_type(data.dtype), kNcclSum, comm_,
                         static_cast<cudaStream_t>(stream.native())));
  }

  Status status() const override {
    NcclResult of_links = kNcclSuccess;
    NcclResult first = first_;
    if (first == kNcclSuccess) first = api_.comm_async_error(comm_, &of_links);
    if (first == kNcclSuccess) first = of_links;
    if (first == kNcclSuccess || first == kNcclInProgress) return ok_status();
    return internal_error(
        fmt::format("NCCL, rank {} of {}: {}", rank_, size_, api_.error_string(first)));
  }

 private:
  void note(NcclResult result) {
    NcclResult none = kNcclSuccess;
    if (result != kNcclSuccess) first_.compare_exchange_strong(none, result);
  }

  const NcclApi& api_;
  const NcclComm comm_;
  const int rank_, size_;
  std::atomic<NcclResult> first_ = kNcclSuccess;
};

class Nccl final : public NcclLibrary {
 public:
  explicit Nccl(const NcclApi& api) : api_(api) {}

  int version() const override {
    int version = 0;
    api_.get_version(&version);
    return version;
  }

  Result<NcclGroupId> new_group() const override {
    NcclGroupId id{};
    const NcclResult result = api_.get_unique_id(&id);
    if (result != kNcclSuccess) return failed("cannot name a group", result);
    return id;
  }

  Result<std::unique_ptr<NcclRank>> join(const NcclGroupId& group, int rank, int size,
                                         Stream& stream) const override {
    CHECK(rank >= 0 && rank < size);
    int gpu = 0;
    cudaError_t error = cudaStreamGetDevice(static_cast<cudaStream_t>(stream.native()), &gpu);
    if (error == cudaSuccess) error = cudaSetDevice(gpu);
    if (error != cudaSuccess) {
      return internal_error(
          fmt::format("NCCL: no GPU behind this stream: {}", cudaGetErrorString(error)));
    }
    NcclComm comm = nullptr;
    const NcclResult result = api_.comm_init_rank(&comm, size, group, rank);
    if (result != kNcclSuccess) {
      return failed(fmt::format("rank {} of {} on GPU {} cannot join", rank, size, gpu), result);
    }
    return std::unique_ptr<NcclRank>(std::make_unique<Rank>(api_, comm, rank, size));
  }

 private:
  Status failed(const std::string& what, NcclResult result) const {
    return unavailable(
        fmt::format("NCCL: {}: {} (NCCL_DEBUG=WARN says more)", what, api_.error_string(result)));
  }

  const NcclApi api_;
};

Result<std::unique_ptr<Nccl>> open_once() {
  const SharedLibrary library(kNcclPlaces);
  if (!library.is_open()) {
    return unavailable(fmt::format(
        "NCCL is not there (looked for {}): several GPUs need it. Install libnccl2, or set "
        "LD_LIBRARY_PATH to its folder, or use one GPU",
        places_text(kNcclPlaces)));
  }
  NcclApi api{};
  if (!load_nccl(library, api)) {
    return unavailable("NCCL lacks a function that is needed: 2.10 has all");
  }
  return std::make_unique<Nccl>(api);
}

}  // namespace

Result<const NcclLibrary*> NcclLibrary::open() {
  static const auto library = open_once();
  if (!library.ok()) return library.status();
  return library->get();
}

}  // namespace headrace
