// The two files of a batch that has ended, from its journal: what was answered, and what was not.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "server/batch_file.h"

namespace headrace {

struct BatchResultPaths {
  std::string output;  // lines with an HTTP status below 400
  std::string errors;  // the others, and a line for each request that has no answer
};

// Why requests have no answer: what their lines in the error file say.
struct UnansweredReason {
  std::string_view code, message;
};

struct BatchResultCounts {
  size_t output = 0, errors = 0;  // lines; a file without lines is not made
};

// Writes both files, durably; the same again after a kill in the middle. The journal is not
// changed. `journal_path` is the file of `journal`.
Result<BatchResultCounts> write_batch_results(const BatchRequests& requests,
                                              const BatchJournal& journal,
                                              const std::string& journal_path,
                                              const UnansweredReason& reason,
                                              const BatchResultPaths& paths);

}  // namespace headrace
