// A group of ranks that compute together. With one rank every collective is the identity; groups
// of GPUs: nccl_library.h. No model is split over ranks yet.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/device.h"

namespace headrace {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Sums `data` (dense rows) over all ranks, in place: the same bits on every rank.
  virtual void all_reduce_sum(Stream& stream, TensorView data) = 0;
};

class SingleRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_reduce_sum(Stream&, TensorView) override {}
};

// The groups one rank belongs to. Never null.
struct Mesh {
  Communicator* tensor;
  Communicator* pipeline;
  Communicator* expert;
};

}  // namespace headrace
