// TokenMasks: which tokens the rows of a step may have whose answers have a form. The host makes
// them while the step's forward stage runs, since they need the tokens of the step before; the
// device reads them at one address, so that a recording of the sampling stage reads them too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/token_constraint.h"
#include "tensor/device.h"

namespace headrace {

// Used by the engine thread. The host fills one of several memories, as of the StepArena; the
// device's is protected by the stream's order.
class TokenMasks {
 public:
  // Room for so many masks of a vocabulary, in each of so many steps in flight.
  static Result<TokenMasks> create(Device& device, int32_t count, int32_t vocabulary, int steps);
  static int64_t bytes(int32_t count, int32_t vocabulary) {
    return count * token_mask_words(vocabulary) * static_cast<int64_t>(sizeof(uint32_t));
  }

  // Begins a step. REQUIRES: the step that many steps before has ended on the device
  void start_step() { turn_ = (turn_ + 1) % host_.size(); }
  // A mask of this step, to be written. REQUIRES: index < count
  std::span<uint32_t> on_host(int32_t index) const;
  // The first `count` masks of this step.
  void upload(Stream& stream, int32_t count);
  const uint32_t* on_device() const { return reinterpret_cast<const uint32_t*>(device_.data()); }

 private:
  TokenMasks(int64_t words, int steps) : words_(words), host_(static_cast<size_t>(steps)) {}

  const Buffer& host() const { return host_[turn_]; }

  int64_t words_;  // of a mask
  std::vector<Buffer> host_;
  Buffer device_;
  size_t turn_ = 0;
};

}  // namespace headrace
