// LayerTensors: where a layer gets its tensors, by the names that GGUF files give them. What has
// weights asks for them in one function: run over a list it says which tensors there are, run over
// a source it gets them, so that the two cannot differ.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "models/layer_weights.h"

namespace headrace {

// Matrices of a file, or some rows or columns of them, that lie in one, one below the other.
struct MatrixStack {
  struct Rows {
    std::string name;  // of the tensor in its layer, without ".weight": "attn_q"
    int64_t count = 0;
    std::vector<int32_t> order = {};  // empty: as in the file; else row r is the file's order[r]
    // Where these are not all rows of the tensor: they are those from `first` on, of `of`; `order`
    // counts from `first`.
    int64_t first = 0;
    int64_t of = 0;  // 0: all
    // > 0: the tensor is a stack of so many matrices of in_file() rows, and this is matrix
    // `expert`.
    int32_t experts = 0;
    int32_t expert = 0;
    bool bare = false;  // the others of the stack have biases, it has none

    int64_t in_file() const { return of > 0 ? of : count; }
    // Of what is asked for, these alone. REQUIRES: no order
    void take(int64_t from, int64_t taken) {
      of = in_file();
      first += from;
      count = taken;
    }
  };
  std::vector<Rows> rows;
  int64_t columns = 0;
  bool bias = false;  // each has one, name.bias, whose values lie in the order of the rows
  int64_t first_column = 0;
  int64_t of_columns = 0;   // of the tensors; 0: `columns`
  bool exact = false;       // multiplied in f32, whatever the model computes in; never quantised
  bool dense = false;       // GPU: a matrix of the model's activation type, whatever a file has
  bool of_experts = false;  // GPU: packed if all rows have one block type, else as `dense`
  bool adapts = false;      // adapters may add to its product, which the branch computes

  int64_t columns_in_file() const { return of_columns > 0 ? of_columns : columns; }
  Shape shape_in_file(const Rows& of) const {
    if (of.experts == 0) return {of.in_file(), columns_in_file()};
    return {of.experts, of.in_file(), columns_in_file()};
  }
  void take_columns(int64_t from, int64_t taken) {
    of_columns = columns_in_file();
    first_column = from;
    columns = taken;
  }
};

class LayerTensors {
 public:
  virtual ~LayerTensors() = default;
  // Whether what is asked for goes to a GPU: a part may want it in other stacks there.
  virtual bool on_gpu() const { return false; }
  // Errors name the source and the tensor. What is returned goes to where it stays at once: on a
  // GPU its memory is still being filled.
  virtual Result<LinearLayer> matrix(const MatrixStack& stack) = 0;
  virtual Result<DeviceVector> vector(const std::string& name, int64_t count) = 0;
  // Zeros where a file does not have it.
  virtual Result<DeviceVector> vector_or_zeros(const std::string& name, int64_t count) {
    return vector(name, count);
  }
  // In the host's memory: small ones that a part lays out in a way of its own.
  virtual Result<std::vector<float>> values(const std::string& name, const Shape& shape) = 0;

  // Whole numbers below `end`, no two of a row alike.
  virtual Result<std::vector<int32_t>> whole_numbers(const std::string& name, const Shape& shape,
                                                     int32_t end) {
    HR_ASSIGN_OR_RETURN(const std::vector<float> read, values(name, shape));
    std::vector<int32_t> numbers;
    for (const float number : read) {
      const auto in_row = static_cast<int64_t>(numbers.size()) % shape[shape.rank() - 1];
      const auto whole =
          number >= 0 && number < static_cast<float>(end) ? static_cast<int32_t>(number) : -1;
      const bool again = std::find(numbers.end() - in_row, numbers.end(), whole) != numbers.end();
      if (whole < 0 || static_cast<float>(whole) != number || again) {
        return corrupt(fmt::format("tensor {}: {} is no whole number below {}, or twice in a row",
                                   name, number, end));
      }
      numbers.push_back(whole);
    }
    return numbers;
  }

  // CPU: a table of which rows are looked up, as the file has it; valid as long as the source. (On
  // a GPU it is a matrix().)
  virtual Result<ConstTensorView> table(const std::string& /*name*/, const Shape& /*shape*/) {
    return unsupported("this model's parts look no rows up");
  }

  // A matrix that a part makes of what values() gave it, where no tensor is what it multiplies by.
  virtual Result<LinearLayer> made(const Shape& /*shape*/, std::span<const float> /*values*/) {
    return unsupported("this model's parts make no matrices");
  }

  // A vector that a part makes of what values() gave it.
  virtual Result<DeviceVector> made_vector(std::span<const float> /*values*/) {
    return unsupported("this model's parts make no vectors");
  }
  // What several layers have in common: the tensors of one of them, under names that begin with
  // `prefix` there, and a place for what the first that asks makes of these.
  struct Shared {
    std::unique_ptr<LayerTensors> tensors;
    std::shared_ptr<void>& made;
  };
  virtual Shared shared(int32_t /*block*/, const char* /*prefix*/) {
    CHECK_MSG(false, "this model's parts share no tensors");
  }

  // A vector of no tensor.
  virtual Result<DeviceVector> constant(int64_t /*count*/, float /*value*/) {
    return DeviceVector();
  }

  // Weight, and bias of a LayerNorm, of as many `columns` as rows have.
  Status read_norm(const std::string& name, int64_t columns, NormWeights& norm) {
    if (norm.kind == NormKind::kNone) return ok_status();
    if (is_bare(norm.kind)) {
      HR_ASSIGN_OR_RETURN(norm.weight, constant(columns, 1.0f));
    } else if (norm.scale != 1.0f) {
      HR_ASSIGN_OR_RETURN(std::vector<float> weight, values(name + ".weight", Shape{columns}));
      for (float& value : weight) value *= norm.scale;
      HR_ASSIGN_OR_RETURN(norm.weight, made_vector(weight));
    } else {
      HR_ASSIGN_OR_RETURN(norm.weight, vector(name + ".weight", columns));
    }
    if (norm.kind == NormKind::kLayer) {
      HR_ASSIGN_OR_RETURN(norm.bias, vector(name + ".bias", columns));
    } else if (is_layer_norm(norm.kind)) {
      HR_ASSIGN_OR_RETURN(norm.bias, constant(columns, 0.0f));
    }
    return norm.gate.rank > 0 ? read_gate(name, columns, norm.gate) : ok_status();
  }

 private:
  Status read_gate(const std::string& name, int64_t columns, NormGate& gate) {
    MatrixStack down{.columns = columns}, up{.columns = gate.rank};
    down.rows = {{name + "_gate.a", gate.rank}};
    up.rows = {{name + "_gate.b", columns}};
    HR_ASSIGN_OR_RETURN(gate.down, matrix(down));
    HR_ASSIGN_OR_RETURN(gate.up, matrix(up));
    return ok_status();
  }
};

}  // namespace headrace
