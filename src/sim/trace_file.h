// Traces from files: comma-separated rows under a header, or a JSON object a line. The columns that
// are read, and what others call them, are rows of a table (trace_file.cc; docs/traces.md):
//
//   arrival,input,output                       seconds, tokens, tokens; more columns are optional
//   TIMESTAMP,ContextTokens,GeneratedTokens    Azure's LLM inference traces: a date and a time
//   {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]}
//                                              Mooncake's: milliseconds; a hash for 512 tokens
//
// Arrivals count from the earliest. Rows come out in the order of their arrival.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/named.h"
#include "base/status.h"
#include "sim/trace.h"

namespace headrace {

// Tokens of a prompt that one prefix hash stands for; the last one of a row may stand for less.
inline constexpr int32_t kTokensPerHash = 512;

// kInvalidArgument: "NAME, line 17: output is \"-3\": ...": what is wrong with which field of which
// row, and what it must be.
Result<std::vector<TraceRequest>> parse_trace(std::string_view text, std::string_view name);

// What becomes of requests that no context of max_model_len tokens holds.
enum class TooLong {
  kRefuse,  // kInvalidArgument
  kCut,     // prompts, and answers, are shortened
  kDrop,
};
inline constexpr Named<TooLong> kTooLongNames[] = {
    {"refuse", TooLong::kRefuse}, {"cut", TooLong::kCut}, {"drop", TooLong::kDrop}};
Status fit_trace(std::vector<TraceRequest>& trace, int32_t max_model_len, TooLong too_long);

// The trace that options.kind names: a kind of make_trace(), or a file. Of a file the first
// options.requests rows (0: all), at options.rate on average (0: as they came), fitted to
// options.max_model_len.
Result<std::vector<TraceRequest>> open_trace(const TraceOptions& options,
                                             TooLong too_long = TooLong::kRefuse);

}  // namespace headrace
