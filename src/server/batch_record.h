// A batch of /v1/batches as data: what the API shows of it, and what is kept of it on disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

enum class BatchStatus : uint8_t {
  kValidating,  // not looked at yet: waits for its turn
  kFailed,      // its file was no batch: nothing was run
  kInProgress,
  kFinalizing,  // all is done that will be; its answers are being made files
  kCompleted,
  kExpired,  // its time was over; what was not done is in the error file
  kCancelling,
  kCancelled,
};
inline constexpr int kBatchStatusCount = 8;

std::string_view batch_status_name(BatchStatus status);
// No work is left.
bool is_final(BatchStatus status);

struct BatchRecord {
  std::string id;     // "batch_..."
  std::string owner;  // only its owner sees a batch
  std::string endpoint;
  std::string input_file_id;
  BatchStatus status = BatchStatus::kValidating;
  BatchStatus end = BatchStatus::kCompleted;  // what kFinalizing ends in
  // Chosen when it is finalised, shown when it has ended; empty: no such lines.
  std::string output_file_id, error_file_id;
  int64_t output_seconds = 0;  // its files live so long after they were made; 0: for ever
  std::string error;           // kFailed: why
  int64_t error_line = 0;      // 0: of no line
  int64_t total = 0, completed = 0, failed = 0;  // requests; failed: answered with an error
  // When it became what it is, in seconds of the Unix clock; 0: it never did.
  int64_t created_at = 0, in_progress_at = 0, expires_at = 0, finalizing_at = 0, completed_at = 0,
          failed_at = 0, expired_at = 0, cancelling_at = 0, cancelled_at = 0;
  // Times that work on it was begun without an end in order or a new answer: what a crash leaves.
  int64_t starts = 0;
  int64_t answers_seen = 0;  // in its journal, at the last start
  Json metadata;             // an object of texts, or null

  // Changes the status and notes when.
  void become(BatchStatus next, int64_t now_unix_s);
};

// As the API has it.
Json batch_json(const BatchRecord& record);

// For the disk: all of it.
std::string write_batch_record(const BatchRecord& record);
Result<BatchRecord> read_batch_record(std::string_view text);

}  // namespace headrace
