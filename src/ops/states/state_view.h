// Where the states of sequences lie, for ops that go over the rows of a sequence in their order and
// keep something of fixed size of what they have seen. An entry is a state of all layers: one for
// each slot, and the checkpoints behind them.
//
// Each op's order of arithmetic is row by row, so that the bits of rows and states do not depend on
// how a text is cut into steps, nor on where a state was saved and taken up again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace headrace {

// The state behind the sequence's first `tokens` tokens is copied to an entry.
struct StateCopy {
  int32_t tokens = 0;
  int32_t entry = 0;
};

// Rows of one sequence in this step; they are consecutive in the batch.
struct StateSequence {
  int32_t row_first = 0;
  int32_t row_count = 0;
  // Position of the first row. 0: the sequence begins here, whatever its entry holds.
  int32_t position = 0;
  int32_t entry = 0;                 // read at first, written behind the last row
  std::span<const StateCopy> saves;  // ascending, tokens in (position, position + row_count]
};

// The same for a GPU, where a step's sequences and saves lie in its memory.
struct DeviceStateSequence {
  int32_t row_first, row_count, position, entry;
  int32_t save_first, save_count;  // of DeviceStates::saves
};
struct DeviceStates {
  const DeviceStateSequence* sequences = nullptr;  // [count], of every row one
  const StateCopy* saves = nullptr;
  int32_t count = 0;
  int32_t rows_max = 0;  // of a sequence
};

// What an op has of all entries.
struct StateView {
  std::byte* base = nullptr;  // its part of entry 0; aligned to 64 bytes
  int64_t stride = 0;         // bytes from an entry to the next
  std::span<const StateSequence> sequences;
  DeviceStates on_device = {};  // in place of `sequences`, on a GPU

  bool empty() const { return sequences.empty() && on_device.count == 0; }
  float* at(int32_t entry) const { return reinterpret_cast<float*>(base + entry * stride); }
  // What lies `bytes` behind the front.
  StateView behind(int64_t bytes) const { return {base + bytes, stride, sequences, on_device}; }
};

}  // namespace headrace
