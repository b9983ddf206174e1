// Batches of /v1/batches: kept in a folder, run beside live traffic as batch jobs (batch_job.h), a
// few at a time, the owner with the fewest under way first.
//
//   FOLDER/files/           FileStore        FOLDER/uploads/  UploadStore
//   FOLDER/batches/ID.json  BatchRecord      ID.input  the requests (a link to the uploaded file)
//                                            ID.journal  the answers so far
//
// Every step is on the disk before it is told, and can be repeated: a killed server goes on where
// it was, with no answer lost and none given twice. What the disk does not take (full, gone) is
// logged, put off and tried again; nothing is dropped. A batch that took the process with it, again
// and again and without a new answer, is given up with the answers it has.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bounded_queue.h"
#include "base/status.h"
#include "server/batch_file.h"
#include "server/batch_record.h"
#include "server/file_store.h"
#include "server/upload_store.h"

namespace headrace {

struct ServerState;

struct BatchServiceOptions {
  std::string folder;                  // empty: the server keeps no files and runs no batches
  FileLimits files;                    // of each owner
  size_t requests_max = 50'000;        // of one batch
  size_t open_max = 64;                // batches of one owner that have not ended
  size_t kept_max = 1000;              // of one owner; the oldest that have ended are forgotten
  int64_t window_seconds = 24 * 3600;  // then a batch expires
  int jobs_at_once = 2;
  double retry_seconds = 10;  // after an error of the disk or the engine
  int64_t starts_max = 8;     // of a batch, each ended by a crash or an exception without an answer
};

struct BatchPage {
  std::vector<BatchRecord> batches;
  bool has_more = false;
};

struct BatchCounts {
  std::array<size_t, kBatchStatusCount> batches{};  // by status
  size_t files = 0;
  int64_t bytes = 0;  // of files
};

class BatchService {
 public:
  // Makes the folders and reads what is there. Errors name them.
  static Result<std::unique_ptr<BatchService>> open(BatchServiceOptions options);
  ~BatchService() { stop(); }

  // Begins to run batches. `state` outlives stop(). REQUIRES: state.model() is set. Once.
  void start(ServerState& state);
  // Jobs under way let go of their requests; the next start goes on with them. Any thread.
  void begin_stop();
  // The same, and waits for it; nothing that was handed to run_on_disk() runs after it.
  void stop();

  FileStore& files() { return *files_; }
  // Of tasks of run_on_disk() alone.
  UploadStore& uploads() { return *uploads_; }
  // Runs `task` on a thread that may wait for the disk; false when too many wait or after stop().
  // Any thread.
  bool run_on_disk(std::function<void()> task) { return disk_tasks_.try_push(std::move(task)); }

  // A new batch of `record`'s owner, endpoint, input file and metadata. kInvalidArgument when the
  // owner has no such file or too many open batches. Waits for the disk.
  Result<BatchRecord> create(BatchRecord record);
  // All below: any thread.
  std::optional<BatchRecord> find(const std::string& owner, const std::string& id) const;
  // The newest first, behind `after`. kInvalidArgument when that is no batch of the owner.
  Result<BatchPage> list(const std::string& owner, const std::string& after, size_t limit) const;
  // What runs is let go, answers so far are made files. kNotFound; kInvalidArgument when it has
  // ended.
  Result<BatchRecord> cancel(const std::string& owner, const std::string& id);
  BatchCounts counts() const;

 private:
  using Clock = std::chrono::steady_clock;
  // All but `stop` and `writing` under the mutex.
  struct Job {
    BatchRecord record;
    std::mutex writing;   // of the record: one change at a time, on disk and here
    uint64_t serial = 0;  // in order of creation
    bool taken = false;   // a worker has it
    bool expired = false;
    Clock::time_point not_before = Clock::time_point::min();
    std::atomic<bool> stop{false};  // let go of what runs
  };
  using JobPointer = std::shared_ptr<Job>;

  BatchService(BatchServiceOptions options, std::unique_ptr<FileStore> files);
  Status load();
  std::string path_of(const std::string& id, std::string_view suffix) const;

  void disk_loop();
  void expire_due(int64_t now_unix_s);
  void forget_oldest(const std::string& owner);

  void work_loop();
  JobPointer take_next();
  bool may_run(const Job& job) const;
  void give_back(const JobPointer& job, const Status& status);

  // Brings a job as far as it goes now. An error puts it off.
  Status attempt(Job& job);
  Status advance(Job& job);
  Status run(Job& job);
  Status run_requests(Job& job, const BatchRequests& requests);
  Status finalise(Job& job);
  Status fail(Job& job, const Status& why);
  Status give_up(Job& job);
  Result<BatchRequests> open_requests(const BatchRecord& record) const;
  bool stopping() const;
  BatchRecord snapshot(const Job& job) const;
  // Changes the record, on the disk before in memory.
  Status change(Job& job, const std::function<void(BatchRecord&)>& edit);
  void unlink_work(const std::string& id) const;

  const BatchServiceOptions options_;
  const std::unique_ptr<FileStore> files_;
  std::unique_ptr<UploadStore> uploads_;  // the disk thread's
  ServerState* state_ = nullptr;

  mutable std::mutex mutex_;  // of all below; never held while the disk is written or a job runs
  std::condition_variable wake_;
  std::map<std::string, JobPointer> jobs_;
  uint64_t next_serial_ = 0;
  bool stopping_ = false;

  BoundedQueue<std::function<void()>> disk_tasks_{256};
  std::atomic<bool> disk_closed_{false};
  std::thread disk_thread_;
  std::vector<std::thread> workers_;
};

}  // namespace headrace
