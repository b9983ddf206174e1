// The flags that say which trace a bench replays: the same for bench simulate, which replays it in
// virtual time, and bench serve, which sends it to a server.
#pragma once

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "sim/trace_file.h"

namespace headrace {

struct TraceFlags {
  TraceOptions options;
  TooLong too_long = TooLong::kRefuse;
};

// --trace, --arrivals, --burstiness, --period, --max-model-len, --too-long.
void add_trace_flags(CLI::App& app, TraceFlags& flags, const std::string& group);
Result<std::vector<TraceRequest>> open_trace(const TraceFlags& flags);

}  // namespace headrace
