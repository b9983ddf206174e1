// What a request may put over the model's weights: the seam between whoever loads adapters
// (models), whoever lets requests choose them (engine, server) and whoever computes with them.
#pragma once

#include <cstdint>

namespace headrace {

// Const once it is loaded: any thread. It goes with the last request that uses it.
class Adapter {
 public:
  virtual ~Adapter() = default;
  // Of what it holds, whatever it is called and whichever process loaded it: prefixes are shared
  // only inside one. Never 0, which is the base model.
  virtual uint64_t key() const = 0;
  virtual int64_t bytes() const = 0;  // in memory
  virtual int32_t rank() const = 0;   // its largest
};

}  // namespace headrace
