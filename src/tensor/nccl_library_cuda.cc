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
  NcclResult (*broadcast)(const void* from, void* to, size_t count, int type, int root, NcclComm,
                          cudaStream_t);
  NcclResult (*send)(const void* from, size_t count, int type, int rank, NcclComm, cudaStream_t);
  NcclResult (*receive)(void* to, size_t count, int type, int rank, NcclComm, cudaStream_t);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
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
         library.find("ncclBroadcast", api.broadcast) && library.find("ncclSend", api.send) &&
         library.find("ncclRecv", api.receive) && library.find("ncclGroupStart", api.group_start) &&
         library.find("ncclGroupEnd", api.group_end) &&
         library.find("ncclGetErrorString", api.error_string);
}

constexpr std::array kNcclPlaces = {"libnccl.so.2"};

int nccl_type(DType dtype) {
  if (dtype == DType::kBF16) return 9;
  if (dtype == DType::kF16) return 6;
  CHECK(dtype == DType::kF32);
  return 7;
}

bool lies_densely(const ConstTensorView& view) {
  return view.rows() <= 1 || view.row_stride == row_bytes(view.dtype, view.columns());
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
    CHECK(lies_densely(data));
    note(api_.all_reduce(data.data, data.data, static_cast<size_t>(*data.shape.elements()),
                         nccl_type(data.dtype), kNcclSum, comm_,
                         static_cast<cudaStream_t>(stream.native())));
  }

  // A row's columns of one rank at a time are what lies in one piece.
  void all_gather(Stream& stream, TensorView data, std::span<const int64_t> starts) override {
    const auto on = static_cast<cudaStream_t>(stream.native());
    note(api_.group_start());
    for (int64_t row = 0; row < data.rows(); ++row) {
      for (int r = 0; r < size_; ++r) {
        const Piece piece = columns_of(data, row, starts, r);
        if (piece.count == 0) continue;
        note(api_.broadcast(piece.data, piece.data, piece.count, nccl_type(data.dtype), r, comm_,
                            on));
      }
    }
    note(api_.group_end());
  }

  void gather(Stream& stream, TensorView data, std::span<const int64_t> starts) override {
    note(api_.group_start());
    for (int64_t row = 0; row < data.rows(); ++row) {
      for (int r = 1; r < size_; ++r) {
        const Piece piece = columns_of(data, row, starts, r);
        if (piece.count == 0) continue;
        if (rank_ == 0) receive_piece(stream, piece, data.dtype, r);
        if (rank_ == r) send_piece(stream, piece, data.dtype, 0);
      }
    }
    note(api_.group_end());
  }

  void all_to_all(Stream& stream, ConstTensorView from, TensorView to) override {
    CHECK(from.rows() % size_ == 0 && from.rows() == to.rows() && lies_densely(from) &&
          lies_densely(to));
    const int64_t elements = from.rows() / size_ * from.columns();
    const int64_t bytes = from.rows() / size_ * from.row_stride;
    note(api_.group_start());
    for (int r = 0; r < size_; ++r) {
      const auto count = static_cast<size_t>(elements);
      send_piece(stream, {from.data + r * bytes, count}, from.dtype, r);
      receive_piece(stream, {to.data + r * bytes, count}, to.dtype, r);
    }
    note(api_.group_end());
  }

  void send(Stream& stream, ConstTensorView data, int to) override {
    CHECK(lies_densely(data));
    send_piece(stream, {data.data, static_cast<size_t>(*data.shape.elements())}, data.dtype, to);
  }
  void receive(Stream& stream, TensorView data, int from) override {
    CHECK(lies_densely(data));
    receive_piece(stream, {data.data, static_cast<size_t>(*data.shape.elements())}, data.dtype,
                  from);
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
  // Elements that lie in one piece.
  template <class Byte>
  struct PieceOf {
    Byte* data;
    size_t count;
  };
  using Piece = PieceOf<std::byte>;
  using ConstPiece = PieceOf<const std::byte>;

  static Piece columns_of(const TensorView& data, int64_t row, std::span<const int64_t> starts,
                          int rank) {
    const int64_t first = starts[static_cast<size_t>(rank)];
    return {data.row(row) + first * dtype_info(data.dtype).block_bytes,
            static_cast<size_t>(starts[static_cast<size_t>(rank) + 1] - first)};
  }
  void send_piece(Stream& stream, const ConstPiece& piece, DType dtype, int to) {
    note(api_.send(piece.data, piece.count, nccl_type(dtype), to, comm_,
                   static_cast<cudaStream_t>(stream.native())));
  }
  void send_piece(Stream& stream, const Piece& piece, DType dtype, int to) {
    send_piece(stream, ConstPiece{piece.data, piece.count}, dtype, to);
  }
  void receive_piece(Stream& stream, const Piece& piece, DType dtype, int from) {
    note(api_.receive(piece.data, piece.count, nccl_type(dtype), from, comm_,
                      static_cast<cudaStream_t>(stream.native())));
  }

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
