// The tensor types that a GGUF file can name: id, name and block layout of each (ggml's type
// table). Every known type has its size here, so that a file can be checked and listed even where a
// type cannot be read; those can that are a DType's name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace headrace {

struct GgufType {
  uint32_t id;
  std::string_view name;
  int32_t block_elements;  // 0: removed from the format, its layout is not defined any more
  int32_t block_bytes;
  std::optional<DType> dtype = {};  // empty: known, not readable
};

// nullptr for an id that no version of the format has named. Any thread.
const GgufType* find_gguf_type(uint32_t id);
std::span<const GgufType> gguf_types();

}  // namespace headrace
