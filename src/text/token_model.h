// The last stage of encoding: one piece of text -> token ids. One class for each way of choosing
// them; the table of names is in tokenizer_recipe.cc.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace headrace {

// Const methods: any thread.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the ids of one piece: any bytes. Never a control token's. REQUIRES: piece.size() < 2^31
  virtual void encode(std::string_view piece, std::vector<TokenId>& out) const = 0;

  // Whether text that holds `byte` can come back out of its ids; else it is dropped or unknown.
  virtual bool has_byte(uint8_t byte) const = 0;
};

}  // namespace headrace
