// A group of ranks that compute together, each on a device of its own: threads of a process
// (thread_ranks.h) or GPUs (nccl_library.h). Every rank calls the same collectives in the same
// order, with views of the same shape; what they write is there for what follows in the stream.
#pragma once

#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

// Used by one thread at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sums `data` (dense rows) over all ranks, in place: the same bits on every rank.
  virtual void all_reduce_sum(Stream& stream, TensorView data) = 0;
  // Rank r has columns [starts[r], starts[r + 1]) of the rows of `data`, at their place: behind it
  // every rank has all columns. `starts` [size + 1] is the same on every rank.
  virtual void all_gather(Stream& stream, TensorView data, std::span<const int64_t> starts) = 0;
  // The same where only rank 0 reads them. The others' rows stay as they were.
  virtual void gather(Stream& stream, TensorView data, std::span<const int64_t> starts) = 0;
  // Block s of the dense rows of `from` goes to rank s, where it is block rank() of `to`. REQUIRES:
  // rows that size() divides; no overlap
  virtual void all_to_all(Stream& stream, ConstTensorView from, TensorView to) = 0;
  // Dense rows to and from one other rank, which calls the other of the two.
  virtual void send(Stream& stream, ConstTensorView data, int to) = 0;
  virtual void receive(Stream& stream, TensorView data, int from) = 0;
  // Errors of the calls so far and of the links. Any thread.
  virtual Status status() const { return ok_status(); }
};

// A group of one: what all have is what it has.
class SingleRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(Stream&, TensorView) override {}
  void all_gather(Stream&, TensorView, std::span<const int64_t>) override {}
  void gather(Stream&, TensorView, std::span<const int64_t>) override {}
  void all_to_all(Stream& stream, ConstTensorView from, TensorView to) override {
    stream.copy(to.data, from.data, from.rows() * from.row_stride);
  }
  void send(Stream&, ConstTensorView, int) override { CHECK_MSG(false, "there is no other rank"); }
  void receive(Stream&, TensorView, int) override { CHECK_MSG(false, "there is no other rank"); }
};

// A rank of a group of which the others stay away: what they would bring is missing, and nobody is
// waited for. For runs whose results nobody reads.
class LoneRank final : public Communicator {
 public:
  LoneRank(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(Stream&, TensorView) override {}
  void all_gather(Stream&, TensorView, std::span<const int64_t>) override {}
  void gather(Stream&, TensorView, std::span<const int64_t>) override {}
  void all_to_all(Stream&, ConstTensorView, TensorView) override {}
  void send(Stream&, ConstTensorView, int) override {}
  void receive(Stream&, TensorView, int) override {}

 private:
  const int rank_, size_;
};

// The groups one rank belongs to. Never null.
struct Mesh {
  Communicator* tensor;
  Communicator* pipeline;
  Communicator* expert;
};

}  // namespace headrace
