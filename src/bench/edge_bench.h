// What the server costs beside the engine: streams of a fake engine, over HTTP or HTTPS, to a
// client on the same machine.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "bench/edge_model.h"

namespace headrace {

inline constexpr int32_t kEdgeStreamsMax = 16000;  // connections of one address to one port

enum class EdgeRoute { kChat, kCompletions };

struct EdgeLoad {
  EdgeRoute route = EdgeRoute::kChat;
  int32_t streams = 1;
  int32_t steps = 1;            // tokens of each
  double steps_per_second = 0;  // 0: as fast as the client takes them
  bool tls = false;
  int http_threads = 2;
};

struct EdgeResult {
  double seconds = 0;  // from the first step to the last byte that the client read
  double tokens_per_second = 0;
  // From the engine's step to the client's read of the token's bytes, of all tokens.
  double delay_ms_p50 = 0, delay_ms_p99 = 0, delay_ms_max = 0;
  // From the engine's step until all streams had its token: of the steps, the first left out where
  // there are others. The shortest is what a step costs that nothing else disturbs.
  double burst_ms_min = 0, burst_ms_p50 = 0, burst_ms_max = 0;
  // CPU time meanwhile. The engine's thread, which plays the model, is not in the server's.
  double server_cpu_seconds = 0, engine_cpu_seconds = 0, client_cpu_seconds = 0;
  double resident_kib_per_stream = 0;  // of the server's process: what the open streams added
};

// Starts a server on a free port of loopback, and a client in a process of its own (fork). Raises
// the limit on open files where that is needed and allowed. REQUIRES: this process has one thread.
// kUnavailable where either side fails, kExhausted where too few files may be open.
Result<EdgeResult> measure_edge(const EdgeModel& model, const EdgeLoad& load);

}  // namespace headrace
