// Matrices of Hugging Face files whose numbers lie in several tensors: quants, scales, zero points.
// One is read as rows of a block type that kernels multiply, which are made when they are packed
// (RowReader), with nothing lost:
//
//   4 bits, group scales         Q4_0 where all zero points are 8, else Q4_Z
//   8 bits, group scales         Q8_0 where all zero points are 128
//   MXFP4                        E2M1
//   ternary (BitNet)             Q2_K, of columns that 256 divides
//   all others                   F32: NVFP4, act-order whose groups are no runs of columns, 8 bits
//   with
//                                other zero points, FP8, groups that 32 does not divide. Multiplied
//                                in Q8_0 where arithmetic need not be exact
//
// Block types have an f16 scale: those of BF16 files are f16 numbers, too, from 2^-17 up; smaller
// ones, and F32 scales, are rounded to the nearest.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/row_reader.h"
#include "weights/hub_quantisation.h"
#include "weights/safetensors.h"

namespace headrace {

// The tensors of one quantised matrix; nullptr: there is none.
struct HubTensors {
  const SafetensorsTensor* quants = nullptr;  // M.qweight, M.weight_packed, M.weight
  const SafetensorsTensor* scales = nullptr;  // M.scales, M.weight_scale, M.weight_scale_inv
  const SafetensorsTensor* global = nullptr;  // M.weight_scale_2, M.weight_global_scale
  const SafetensorsTensor* zeros = nullptr;   // M.qzeros, M.weight_zero_point
  const SafetensorsTensor* order = nullptr;   // M.g_idx, M.weight_g_idx: the group of each column
  const SafetensorsTensor* shape = nullptr;   // M.weight_shape
};

class HubMatrix : public RowReader {
 public:
  // Looks at names, types and shapes alone, and at `shape`. Errors: "tensor M.scales: what".
  static Result<std::unique_ptr<HubMatrix>> create(const HubTensors& tensors,
                                                   const HubQuantisation& quantisation);

  // Reads scales and zero points, once: refuses those that mean nothing, and chooses dtype(). Any
  // thread. REQUIRES of dtype() and read(): it has returned ok
  virtual Status prepare() const = 0;

  Shape shape() const override { return shape_; }
  const SafetensorsTensor& quants() const { return *tensors_.quants; }
  std::string_view type() const { return type_; }  // "GPTQ-INT4-g128"
  virtual int64_t bytes() const;                   // of it in the file
  std::vector<const SafetensorsTensor*> all_tensors() const;

 protected:
  HubMatrix(const HubTensors& tensors, Shape shape, std::string type)
      : tensors_(tensors), shape_(shape), type_(std::move(type)) {}
  HubTensors tensors_;

 private:
  Shape shape_;
  std::string type_;
};

// Status of a tensor: "tensor NAME: what".
Status hub_tensor_error(const SafetensorsTensor& tensor, std::string_view what);

// What M of "M.qweight" is, and which of the tensors this one is; nullptr: none of a quantised
// matrix.
struct HubTensorName {
  std::string_view matrix;
  const SafetensorsTensor* HubTensors::*member = nullptr;
  bool not_read = false;  // scales of activations and of the KV cache
};
HubTensorName hub_tensor_name(std::string_view name);

}  // namespace headrace
