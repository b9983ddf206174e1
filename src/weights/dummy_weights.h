// Random weights for `--load-format dummy`: a model of any size from its configuration alone. Fit
// for measuring speed and memory, never for judging answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/tensor_view.h"
#include "tensor/thread_pool.h"
#include "weights/weight_source.h"

namespace headrace {

// A tensor that a model declares: a matrix in the type asked for, a vector in F32 (as model files
// keep norm weights).
struct DummyTensor {
  std::string name;
  Shape shape;         // rank 1 to 3, every dimension >= 1
  float scale = 1.0f;  // of all its elements
  bool exact = false;  // F32, whatever the type of matrices
  int32_t below = 0;   // > 0: whole numbers below this by turns. REQUIRES: exact, no stack
};

struct DummyOptions {
  DType dtype = DType::kBF16;  // of matrices
  uint64_t seed = 0;
  int32_t threads = 1;
};

// Every tensor has memory of its own, so that reading all weights costs what it does with a real
// file. Element i of a matrix is normal with sigma 0.02, a pure function of (seed, name, i). A
// vector is 1 + that: RMSNorm weights of trained models lie around 1, and around 0 every layer
// would multiply its input by 0.02 and activations would vanish. Both times the tensor's scale.
//
// A tensor is made when get() first asks for it and freed by release(), so that a loader that packs
// tensor by tensor never holds two copies of the model.
class DummyWeightSource final : public WeightSource {
 public:
  // kInvalidArgument naming a tensor whose rows are no whole blocks of the type, or are too many.
  static Result<std::unique_ptr<DummyWeightSource>> create(std::vector<DummyTensor> tensors,
                                                           const DummyOptions& options);
  using WeightSource::get;
  using WeightSource::get_matrix;
  bool has(std::string_view name) const override;
  std::vector<std::string_view> names() const override;
  std::optional<WeightInfo> info(std::string_view name) const override;  // makes nothing
  Result<ConstTensorView> get(std::string_view name) const override;
  Result<ConstTensorView> get_matrix(std::string_view name, int64_t index) const override;
  void release(const ConstTensorView& view) const override;
  std::string_view description() const override { return "dummy weights"; }

 private:
  struct Entry {
    std::string name;
    Shape shape;
    float scale;
    int32_t below;
    DType dtype;
    size_t bytes;
    std::unique_ptr<std::byte[]> memory = nullptr;  // empty until get()
    // By their numbers, those of a stack that get_matrix() gave.
    std::map<int64_t, std::unique_ptr<std::byte[]>> matrices = {};
  };
  DummyWeightSource(std::vector<Entry> entries, const DummyOptions& options);
  Entry* find(std::string_view name) const;

  const uint64_t seed_;
  mutable std::mutex mutex_;            // guards entries_' memory and the pool
  mutable std::vector<Entry> entries_;  // sorted by name
  mutable ThreadPool pool_;
};

// All elements of `tensor`, as above, less `offset`, as `dtype` at `out`, which has room for them.
// One caller of the pool at a time.
void fill_dummy_tensor(ThreadPool& pool, uint64_t seed, const DummyTensor& tensor, float offset,
                       DType dtype, std::byte* out);
// The same of its elements [first, first + count), whole blocks of the type.
void fill_dummy_elements(ThreadPool& pool, uint64_t seed, const DummyTensor& tensor, float offset,
                         DType dtype, int64_t first, int64_t count, std::byte* out);
// What element i of tensor `name` is: sigma 0.02, mean 0, scale 1.
float dummy_weight(uint64_t seed, std::string_view name, int64_t i);

}  // namespace headrace
