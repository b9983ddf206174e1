// LayerSource: the weights of a model of which some are replaced, as a layer runs with them once it
// is quantised.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "quantize/matrix_math.h"
#include "weights/weight_source.h"

namespace headrace {

class LayerSource final : public WeightSource {
 public:
  // `base` outlives it.
  explicit LayerSource(const WeightSource& base) : base_(base) {}
  // From here on the tensor has these values, as BF16 (a matrix) or F32 (a vector).
  void replace(const std::string& name, const Matrix& matrix);
  void replace(const std::string& name, std::span<const float> vector);
  void clear() { replaced_.clear(); }

  using WeightSource::get;
  using WeightSource::get_matrix;
  bool has(std::string_view name) const override { return base_.has(name); }
  std::vector<std::string_view> names() const override { return base_.names(); }
  Result<ConstTensorView> get(std::string_view name) const override;
  Result<ConstTensorView> get_matrix(std::string_view name, int64_t index) const override {
    return base_.get_matrix(name, index);
  }
  Result<std::shared_ptr<const RowReader>> rows(std::string_view name,
                                                int64_t index) const override;
  std::optional<WeightInfo> info(std::string_view name) const override;
  std::string name_in_file(std::string_view name) const override {
    return base_.name_in_file(name);
  }
  void release(const ConstTensorView& view) const override;
  void release_rows(const ConstTensorView& view, int64_t first, int64_t last) const override;
  std::string_view description() const override { return base_.description(); }

 private:
  struct Tensor {
    DType dtype;
    Shape shape;
    std::vector<std::byte> bytes;
  };
  const Tensor* find(std::string_view name) const;
  bool is_own(const ConstTensorView& view) const;

  const WeightSource& base_;
  std::map<std::string, Tensor, std::less<>> replaced_;
};

// All values of a tensor of rank 1 or 2 (one row, or as many as it has).
Result<Matrix> read_tensor(ThreadPool& pool, const WeightSource& source, std::string_view name);

}  // namespace headrace
