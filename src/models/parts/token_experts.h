// The experts of a mixture that the token of a row says (DeepSeek V4's first layers): a table with
// a row for each token.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "models/parts/layer_part.h"

namespace headrace {

struct TokenExpertsSpec {
  int32_t vocab = 0;   // tokens; 0: a router chooses
  int64_t column = 0;  // of what is carried, where a row's token stands
};

class TokenExperts {
 public:
  Status load(LayerTensors& tensors, const TokenExpertsSpec& spec, int32_t used, int32_t experts) {
    spec_ = spec;
    used_ = used;
    if (spec_.vocab == 0) return ok_status();
    HR_ASSIGN_OR_RETURN(table_, tensors.whole_numbers("ffn_gate_tid2eid.weight",
                                                      Shape{spec_.vocab, used}, experts));
    return ok_status();
  }
  // The experts of each row of `carried`, at `to` [rows, used]; null: a router chooses.
  const int32_t* look_up(const ConstTensorView& carried, int32_t* to) const {
    if (spec_.vocab == 0) return nullptr;
    for (int64_t t = 0; t < carried.rows(); ++t) {
      const auto token = std::bit_cast<int32_t>(f32_row(carried, t)[spec_.column]);
      CHECK(token >= 0 && token < spec_.vocab);
      std::copy_n(table_.data() + int64_t{token} * used_, used_, to + t * used_);
    }
    return to;
  }

 private:
  TokenExpertsSpec spec_;
  int32_t used_ = 0;
  std::vector<int32_t> table_;  // [vocab, used]
};

}  // namespace headrace
