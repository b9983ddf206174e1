// The client of `bench edge`: many event streams, read by one thread that does as little as it can,
// in a process of its own, so that its time and memory are not the server's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace headrace {

// What both processes see: one stands in memory that they share.
struct EdgeBoard {
  std::atomic<uint16_t> port{0};                 // of the server, which listens; 0: not yet
  std::atomic<int32_t> heads{0};                 // of answers, that the client has read
  std::atomic<int64_t> events_taken{0};          // of all streams, with a token each
  std::atomic<int64_t> first_ns{0}, last_ns{0};  // when the client read the first and last of them
  std::atomic<int64_t> client_cpu_ns{0};         // of the client's process, from the first read on
  std::atomic<bool> done{false};
  std::array<char, 256> error{};  // of the client; empty: none. Written before `done`
};

struct EdgeClientOptions {
  int32_t streams = 1;
  int32_t steps = 1;          // events with a token of each stream
  int32_t events_before = 0;  // of each stream, in front of those
  bool tls = false;
  std::string path;
  std::string body;  // of each request, JSON
};

// Opens the streams, waits for the heads, and reads until all have ended. `step_ns`: when the
// engine published each step, on the SystemClock; `delays_ns` gets, by stream and step, how much
// later its bytes were read. Both are shared memory. Tells errors on the board.
void run_edge_client(const EdgeClientOptions& options, EdgeBoard& board,
                     std::span<const std::atomic<int64_t>> step_ns,
                     std::span<std::atomic<int32_t>> delays_ns);

}  // namespace headrace
