// A row for each request of a trace, as JSON lines: what bench serve saw and what bench simulate
// predicts, in the same words, so that the two can be laid side by side.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "base/status.h"

namespace headrace {

struct RequestRow {
  std::string policy;          // empty: not known
  double arrival_seconds = 0;  // by the trace
  double ttft_seconds = 0;     // from arrival (bench serve: from sending) to the first token
  double tpot_seconds = 0;     // per later token; 0 of answers of one token
  double completion_seconds = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  std::string tenant;
  std::string error;  // why it was not answered; empty: it was
};

class RequestRowFile {
 public:
  // Replaces the file. An empty path: rows are dropped.
  static Result<RequestRowFile> open(const std::string& path);
  void write(const RequestRow& row);
  // kInvalidArgument: not everything was written (a full disk).
  Status close();

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace headrace
