#include "server/batch_service.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/mapped_file.h"
#include "server/batch_job.h"
#include "server/batch_results.h"
#include "server/durable_file.h"
#include "server/random_id.h"
#include "server/server_state.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRecordSuffix = ".json", kInputSuffix = ".input",
                           kJournalSuffix = ".journal", kOutputSuffix = ".output",
                           kErrorsSuffix = ".errors";
constexpr auto kLookForExpired = std::chrono::seconds(1);

constexpr UnansweredReason kExpiredReason = {
    "batch_expired", "This request could not be executed before the completion window expired."};
constexpr UnansweredReason kCancelledReason = {
    "batch_cancelled", "This request was not executed before the batch was cancelled."};

constexpr UnansweredReason kGivenUpReason = {
    "batch_failed", "This request was not executed: the batch was given up after failed starts."};

const UnansweredReason& reason_of(BatchStatus end) {
  if (end == BatchStatus::kFailed) return kGivenUpReason;
  return end == BatchStatus::kCancelled ? kCancelledReason : kExpiredReason;
}

// "line 12" -> 12
int64_t line_of(const std::string& field) {
  int64_t line = 0;
  const size_t digits = field.find_first_of("0123456789");
  if (digits != field.npos) {
    std::from_chars(field.data() + digits, field.data() + field.size(), line);
  }
  return line;
}

void begin_files(BatchRecord& record) {
  record.output_file_id = "file-" + random_hex_id();
  record.error_file_id = "file-" + random_hex_id();
  record.become(BatchStatus::kFinalizing, unix_seconds());
}

Status make_link(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0 || errno == EEXIST) return ok_status();
  return disk_error(to, "cannot be made");
}

}  // namespace

// --- Opening and closing -------------------------------------------------------------------------

Result<std::unique_ptr<BatchService>> BatchService::open(BatchServiceOptions options) {
  HR_RETURN_IF_ERROR(make_folder(options.folder + "/batches"));
  HR_ASSIGN_OR_RETURN(auto files, FileStore::open(options.folder + "/files", options.files));
  std::unique_ptr<BatchService> service(new BatchService(std::move(options), std::move(files)));
  HR_ASSIGN_OR_RETURN(service->uploads_,
                      UploadStore::open(service->options_.folder + "/uploads", *service->files_));
  HR_RETURN_IF_ERROR(service->load());
  service->disk_thread_ = std::thread([raw = service.get()] { raw->disk_loop(); });
  return service;
}

BatchService::BatchService(BatchServiceOptions options, std::unique_ptr<FileStore> files)
    : options_(std::move(options)), files_(std::move(files)) {}

Status BatchService::load() {
  std::vector<BatchRecord> found;
  HR_ASSIGN_OR_RETURN(const auto paths, files_in(options_.folder + "/batches"));
  for (const fs::path& path : paths) {
    if (path.extension() != kRecordSuffix) continue;
    HR_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
    Result<BatchRecord> record = read_batch_record(
        {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
    if (record.ok() && record->id == path.stem()) {
      found.push_back(std::move(*record));
    } else {
      log_warning("{}: is no batch: left out", path.string());
    }
  }
  std::sort(found.begin(), found.end(), [](const BatchRecord& a, const BatchRecord& b) {
    return std::tie(a.created_at, a.id) < std::tie(b.created_at, b.id);
  });
  for (BatchRecord& record : found) {
    if (is_final(record.status)) unlink_work(record.id);  // a kill may have come before it
    auto job = std::make_shared<Job>();
    job->record = std::move(record);
    job->stop = job->record.status == BatchStatus::kCancelling;
    job->serial = next_serial_++;
    jobs_.emplace(job->record.id, job);
  }
  return ok_status();
}

std::string BatchService::path_of(const std::string& id, std::string_view suffix) const {
  return fmt::format("{}/batches/{}{}", options_.folder, id, suffix);
}

void BatchService::unlink_work(const std::string& id) const {
  for (const std::string_view suffix :
       {kInputSuffix, kJournalSuffix, kOutputSuffix, kErrorsSuffix}) {
    ::unlink(path_of(id, suffix).c_str());
  }
}

void BatchService::start(ServerState& state) {
  state_ = &state;
  for (int i = 0; i < options_.jobs_at_once; ++i) {
    workers_.emplace_back([this] { work_loop(); });
  }
}

void BatchService::begin_stop() {
  std::lock_guard lock(mutex_);
  stopping_ = true;
  for (const auto& [_, job] : jobs_) job->stop = true;
  wake_.notify_all();
}

void BatchService::stop() {
  begin_stop();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
  disk_closed_ = true;
  disk_tasks_.close();
  if (disk_thread_.joinable()) disk_thread_.join();
}

// --- What clients ask for ------------------------------------------------------------------------

Result<BatchRecord> BatchService::create(BatchRecord record) {
  const auto input = files_->find(record.owner, record.input_file_id);
  if (!input) return not_found("there is no file of that id", "input_file_id");
  if (input->purpose != "batch") {
    return invalid_argument("the file's purpose must be batch", "input_file_id");
  }
  record.id = "batch_" + random_hex_id();
  record.created_at = unix_seconds();
  record.expires_at = record.created_at + options_.window_seconds;
  auto job = std::make_shared<Job>();
  job->record = record;
  job->taken = true;  // until it is on the disk
  {
    std::lock_guard lock(mutex_);
    const auto open = std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
      const BatchRecord& other = entry.second->record;
      return other.owner == record.owner && !is_final(other.status);
    });
    if (stopping_) return unavailable("the server is shutting down");
    if (static_cast<size_t>(open) >= options_.open_max) {
      return exhausted(fmt::format("{} batches have not ended, which is the most", open));
    }
    job->serial = next_serial_++;
    jobs_.emplace(record.id, job);
  }
  // The link keeps the requests should the client delete its file.
  Status status = make_link(files_->content_path(input->id), path_of(record.id, kInputSuffix));
  if (status.ok()) {
    status = write_durably(path_of(record.id, kRecordSuffix), write_batch_record(record));
  }
  if (!status.ok()) {
    unlink_work(record.id);
    std::lock_guard lock(mutex_);
    jobs_.erase(record.id);
    return status;
  }
  forget_oldest(record.owner);
  std::lock_guard lock(mutex_);
  job->taken = false;
  wake_.notify_all();
  return record;
}

// Beyond kept_max, those that ended and were made first.
void BatchService::forget_oldest(const std::string& owner) {
  std::vector<std::pair<uint64_t, std::string>> ended;
  size_t count = 0;
  std::lock_guard lock(mutex_);
  for (const auto& [id, job] : jobs_) {
    if (job->record.owner != owner) continue;
    ++count;
    if (is_final(job->record.status)) ended.emplace_back(job->serial, id);
  }
  std::sort(ended.begin(), ended.end());
  for (const auto& [_, id] : ended) {
    if (count-- <= options_.kept_max) return;
    jobs_.erase(id);
    ::unlink(path_of(id, kRecordSuffix).c_str());
  }
}

std::optional<BatchRecord> BatchService::find(const std::string& owner,
                                              const std::string& id) const {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second->record.owner != owner) return std::nullopt;
  return found->second->record;
}

Result<BatchPage> BatchService::list(const std::string& owner, const std::string& after,
                                     size_t limit) const {
  std::vector<const Job*> mine;
  std::lock_guard lock(mutex_);
  for (const auto& [_, job] : jobs_) {
    if (job->record.owner == owner) mine.push_back(job.get());
  }
  std::sort(mine.begin(), mine.end(),
            [](const Job* a, const Job* b) { return a->serial > b->serial; });
  auto first = mine.begin();
  if (!after.empty()) {
    first = std::find_if(mine.begin(), mine.end(),
                         [&](const Job* job) { return job->record.id == after; });
    if (first == mine.end()) return invalid_argument("after names no batch", "after");
    ++first;
  }
  BatchPage page;
  for (; first != mine.end() && page.batches.size() < limit; ++first) {
    page.batches.push_back((*first)->record);
  }
  page.has_more = first != mine.end();
  return page;
}

Result<BatchRecord> BatchService::cancel(const std::string& owner, const std::string& id) {
  JobPointer job;
  {
    std::lock_guard lock(mutex_);
    const auto found = jobs_.find(id);
    if (found != jobs_.end() && found->second->record.owner == owner) job = found->second;
    if (!job) return not_found("there is no batch of that id");
    const BatchStatus status = job->record.status;
    if (is_final(status) || status == BatchStatus::kFinalizing) {
      return invalid_argument(
          fmt::format("a batch that is {} cannot be cancelled", batch_status_name(status)));
    }
  }
  HR_RETURN_IF_ERROR(change(*job, [](BatchRecord& record) {
    // The worker may have been faster.
    const bool late = is_final(record.status) || record.status == BatchStatus::kFinalizing;
    if (!late) record.become(BatchStatus::kCancelling, unix_seconds());
  }));
  std::lock_guard lock(mutex_);
  job->stop = true;
  job->not_before = Clock::time_point::min();
  wake_.notify_all();
  return job->record;
}

BatchCounts BatchService::counts() const {
  BatchCounts counts;
  counts.files = files_->file_count();
  counts.bytes = files_->bytes_total();
  std::lock_guard lock(mutex_);
  for (const auto& [_, job] : jobs_) ++counts.batches[static_cast<size_t>(job->record.status)];
  return counts;
}

// --- The thread that waits for the disk ----------------------------------------------------------

void BatchService::disk_loop() {
  auto looked = Clock::now();
  while (!disk_closed_ || disk_tasks_.size() > 0) {
    const auto task = disk_tasks_.pop_for(kLookForExpired);
    try {
      if (task) (*task)();
      if (Clock::now() - looked < kLookForExpired) continue;
      looked = Clock::now();
      expire_due(unix_seconds());
      files_->remove_expired(unix_seconds());
      uploads_->remove_expired(unix_seconds());
    } catch (const std::exception& error) {
      log_error("a task of the disk's thread threw: {}", error.what());
    }
  }
}

void BatchService::expire_due(int64_t now_unix_s) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  for (const auto& [_, job] : jobs_) {
    const BatchRecord& record = job->record;
    if (is_final(record.status) || job->expired || record.expires_at > now_unix_s) continue;
    job->expired = true;
    job->stop = true;
    wake_.notify_all();
  }
}

// --- Workers -------------------------------------------------------------------------------------

void BatchService::work_loop() {
  while (const JobPointer job = take_next()) {
    Status status;
    try {
      status = attempt(*job);
    } catch (const std::exception& error) {
      status = internal_error(fmt::format("an exception: {}", error.what()));
    }
    give_back(job, status);
  }
}

// The key of its owner is still one of the server's, or there is nothing left to run.
bool BatchService::may_run(const Job& job) const {
  if (job.taken || is_final(job.record.status) || Clock::now() < job.not_before) return false;
  return job.stop || job.record.owner.empty() || state_->keys.find_name(job.record.owner) >= 0;
}

// Of the owners with the fewest jobs under way, the oldest job. Null: the service stops.
BatchService::JobPointer BatchService::take_next() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    std::map<std::string, size_t> under_way;
    for (const auto& [_, job] : jobs_) under_way[job->record.owner] += job->taken ? 1 : 0;
    JobPointer best;
    const auto rank = [&](const Job& job) {
      return std::pair(under_way[job.record.owner], job.serial);
    };
    for (const auto& [_, job] : jobs_) {
      if (may_run(*job) && (!best || rank(*job) < rank(*best))) best = job;
    }
    if (best) {
      best->taken = true;
      return best;
    }
    wake_.wait_for(lock, kLookForExpired);  // also for jobs that were put off
  }
  return nullptr;
}

void BatchService::give_back(const JobPointer& job, const Status& status) {
  std::lock_guard lock(mutex_);
  job->taken = false;
  if (status.ok()) return;
  log_error("{}: put off for {} s: {}", job->record.id, options_.retry_seconds, status.message());
  job->not_before =
      Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(options_.retry_seconds * 1e3));
}

BatchRecord BatchService::snapshot(const Job& job) const {
  std::lock_guard lock(mutex_);
  return job.record;
}

Status BatchService::change(Job& job, const std::function<void(BatchRecord&)>& edit) {
  std::lock_guard writing(job.writing);
  BatchRecord record = snapshot(job);
  edit(record);
  HR_RETURN_IF_ERROR(write_durably(path_of(record.id, kRecordSuffix), write_batch_record(record)));
  std::lock_guard lock(mutex_);
  job.record = std::move(record);
  return ok_status();
}

bool BatchService::stopping() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

// The start is on the disk before the work is looked at, so that a crash has been counted; an end
// in order takes it back. An exception counts as a crash: the same line would throw it again.
Status BatchService::attempt(Job& job) {
  HR_RETURN_IF_ERROR(change(job, [](BatchRecord& now) { ++now.starts; }));
  const Status status = snapshot(job).starts > options_.starts_max ? give_up(job) : advance(job);
  if (is_final(snapshot(job).status)) return status;
  const Status noted = change(job, [](BatchRecord& now) { now.starts = 0; });
  return status.ok() ? noted : status;
}

// What has been answered becomes files, unless that is what cannot be done.
Status BatchService::give_up(Job& job) {
  const BatchRecord record = snapshot(job);
  const std::string why = fmt::format(
      "given up: the server ended {} times while it worked on this batch, without a "
      "new answer; send what is left as smaller batches",
      options_.starts_max);
  log_error("{}: {}", record.id, why);
  const bool answers =
      record.status == BatchStatus::kInProgress || record.status == BatchStatus::kCancelling;
  if (!answers) return fail(job, invalid_argument(why));
  HR_RETURN_IF_ERROR(change(job, [&](BatchRecord& now) {
    now.error = why;
    now.end = BatchStatus::kFailed;
    now.starts = 0;
    begin_files(now);
  }));
  return finalise(job);
}

Status BatchService::advance(Job& job) {
  if (snapshot(job).status != BatchStatus::kFinalizing) HR_RETURN_IF_ERROR(run(job));
  if (snapshot(job).status == BatchStatus::kFinalizing) return finalise(job);
  return ok_status();
}

// What is told of the file names lines, not places of this machine.
Result<BatchRequests> BatchService::open_requests(const BatchRecord& record) const {
  const std::string path = path_of(record.id, kInputSuffix);
  Result<BatchRequests> requests = BatchRequests::open(path, {.json = state_->json_limits(),
                                                              .requests_max = options_.requests_max,
                                                              .url = record.endpoint});
  if (requests.ok()) return requests;
  std::string message = requests.status().message();
  if (message.starts_with(path + ": ")) message.erase(0, path.size() + 2);
  return Status(requests.status().code(), std::move(message), requests.status().field());
}

Status BatchService::fail(Job& job, const Status& why) {
  if (why.code() == StatusCode::kInternal) return why;  // of the disk: tried again
  HR_RETURN_IF_ERROR(change(job, [&](BatchRecord& record) {
    record.error = why.message();
    record.error_line = line_of(why.field());
    record.become(BatchStatus::kFailed, unix_seconds());
  }));
  unlink_work(snapshot(job).id);
  return ok_status();
}

Status BatchService::run(Job& job) {
  const BatchRecord record = snapshot(job);
  const Result<BatchRequests> requests = open_requests(record);
  if (!requests.ok()) return fail(job, requests.status());
  if (record.status == BatchStatus::kValidating) {
    HR_RETURN_IF_ERROR(change(job, [&](BatchRecord& now) {
      now.total = static_cast<int64_t>(requests->size());
      // Unless it was cancelled meanwhile.
      if (now.status == BatchStatus::kValidating) {
        now.become(BatchStatus::kInProgress, unix_seconds());
      }
    }));
  }
  return run_requests(job, *requests);
}

Status BatchService::run_requests(Job& job, const BatchRequests& requests) {
  const BatchRecord record = snapshot(job);
  HR_ASSIGN_OR_RETURN(BatchJournal journal,
                      BatchJournal::open(path_of(record.id, kJournalSuffix), requests));
  if (const auto answers = static_cast<int64_t>(journal.done_count());
      answers > record.answers_seen) {
    HR_RETURN_IF_ERROR(change(job, [&](BatchRecord& now) {
      now.answers_seen = answers;
      now.starts = 1;
    }));
  }
  const size_t in_flight =
      batch_in_flight(*state_->model()) / static_cast<size_t>(options_.jobs_at_once);
  const BatchOptions options{.in_flight_max = std::max<size_t>(1, in_flight),
                             .caller = {.key = state_->keys.find_name(record.owner)}};
  const auto count = [&](BatchRecord& now) {
    now.total = static_cast<int64_t>(requests.size());
    now.failed = static_cast<int64_t>(journal.refused_count());
    now.completed = static_cast<int64_t>(journal.done_count()) - now.failed;
  };
  const auto progress =
      run_batch(*state_, requests, journal, options, job.stop, [&](const BatchProgress&) {
        std::lock_guard lock(mutex_);
        count(job.record);  // on the disk is the journal
      });
  if (!progress.ok()) return progress.status();
  const bool all_done = journal.done_count() == requests.size();
  if (!all_done && stopping()) return ok_status();
  return change(job, [&](BatchRecord& now) {
    count(now);
    const bool cancelled = now.status == BatchStatus::kCancelling;
    now.end = cancelled  ? BatchStatus::kCancelled
              : all_done ? BatchStatus::kCompleted
                         : BatchStatus::kExpired;
    begin_files(now);
  });
}

// From the journal again after a kill at any place: the files have their ids already.
Status BatchService::finalise(Job& job) {
  const BatchRecord record = snapshot(job);
  const std::string journal_path = path_of(record.id, kJournalSuffix);
  HR_ASSIGN_OR_RETURN(const BatchRequests requests, open_requests(record));
  HR_ASSIGN_OR_RETURN(const BatchJournal journal, BatchJournal::open(journal_path, requests));
  const BatchResultPaths paths{path_of(record.id, kOutputSuffix),
                               path_of(record.id, kErrorsSuffix)};
  HR_ASSIGN_OR_RETURN(
      const BatchResultCounts lines,
      write_batch_results(requests, journal, journal_path, reason_of(record.end), paths));
  const auto adopt = [&](const std::string& id, std::string_view suffix, const std::string& path) {
    StoredFile file{.id = id,
                    .owner = record.owner,
                    .filename = fmt::format("{}_{}.jsonl", record.id, suffix),
                    .purpose = "batch_output",
                    .created_unix_s = unix_seconds()};
    if (record.output_seconds > 0) file.expires_unix_s = unix_seconds() + record.output_seconds;
    return files_->adopt(std::move(file), path).status();
  };
  if (lines.output > 0) HR_RETURN_IF_ERROR(adopt(record.output_file_id, "output", paths.output));
  if (lines.errors > 0) HR_RETURN_IF_ERROR(adopt(record.error_file_id, "error", paths.errors));
  HR_RETURN_IF_ERROR(change(job, [&](BatchRecord& now) {
    if (lines.output == 0) now.output_file_id.clear();
    if (lines.errors == 0) now.error_file_id.clear();
    now.become(now.end, unix_seconds());
  }));
  unlink_work(record.id);
  log_info("{}: {}: {} of {} requests answered, {} of them refused", record.id,
           batch_status_name(record.end), journal.done_count(), requests.size(),
           journal.refused_count());
  return ok_status();
}

}  // namespace headrace
