#include "hub/file_download.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"

namespace headrace {
namespace {

constexpr int64_t kRangeBytes = int64_t{16} << 20;  // asked for at once: a second of a fast line
constexpr size_t kHashBytes = size_t{4} << 20;
constexpr int kFailuresMax = 6;
constexpr double kFirstPauseSeconds = 0.2, kPauseSecondsMax = 10;
constexpr double kRetryAfterSecondsMax = 120;  // longer than that nobody waits at a prompt
constexpr double kSaveSeconds = 1;
constexpr auto kFollowPause = std::chrono::milliseconds(50);

bool may_pass(const Status& status) { return status.code() == StatusCode::kUnavailable; }

}  // namespace

Status status_of_answer(int status, const std::string& name, const std::string& url) {
  const std::string host(origin_of_url(url));
  if (status == 401 || status == 403) {
    return invalid_argument(fmt::format(
        "{}: {} refuses it ({}): it is private or gated, or there is no such model; ask for access "
        "on its page, then set HF_TOKEN to a token of yours",
        name, host, status));
  }
  if (status == 404) return not_found(fmt::format("{}: {} has no such model or file", name, host));
  const std::string line = fmt::format("{}: {} answers with status {}", name, host, status);
  const bool passes = status == 408 || status == 429 || status >= 500;
  return passes ? unavailable(line) : invalid_argument(line);
}

FileVersion FileVersion::of(const HubAnswer& answer) {
  FileVersion version{.etag = answer.header("etag"),
                      .last_modified = answer.header("last-modified")};
  const auto is_no_text = [](unsigned char c) { return std::isprint(c) == 0; };
  std::erase_if(version.etag, is_no_text);
  std::erase_if(version.last_modified, is_no_text);
  return version;
}

bool FileVersion::is_of(const HubAnswer& answer) const {
  const FileVersion other = of(answer);
  // An answer to If-Range may leave the date out.
  return other.known() && (other.etag.empty() || other.etag == etag) &&
         (other.last_modified.empty() || other.last_modified == last_modified);
}

std::string FileVersion::if_range() const { return etag.starts_with('"') ? etag : last_modified; }

std::string FileVersion::text() const {
  std::string word = etag + last_modified;
  std::erase(word, ' ');
  return word;
}

std::string identity_of(const RemoteFile& file) {
  if (file.kind != HashKind::kNone) return file.hash;
  return file.version.known() ? fmt::format("{}-{}", file.size, file.version.text()) : "";
}

Status FileDownload::run(const RemoteFile& file, const DownloadHooks& hooks) {
  HR_ASSIGN_OR_RETURN(const std::unique_ptr<PartFile> part,
                      PartFile::open(file.path, identity_of(file), hooks.stopped));
  std::error_code error;
  if (!file.replaces && std::filesystem::exists(file.path, error)) {
    part->discard();
    return ok_status();
  }
  FileDownload download(file, hooks, *part);
  HR_RETURN_IF_ERROR(download.fetch_all());
  HR_RETURN_IF_ERROR(download.check_hash());
  return part->finish(file.size);
}

FileDownload::FileDownload(const RemoteFile& file, const DownloadHooks& hooks, PartFile& part)
    : file_(file),
      hooks_(hooks),
      part_(part),
      hash_(file.kind, file.size),
      there_(part.read_ranges(file.size)),
      without_ranges_(identity_of(file).empty()) {}

Status FileDownload::fetch_all() {
  const int64_t left = file_.size - there_.total();
  const auto ranges = (left + kRangeBytes - 1) / kRangeBytes;
  const int most = without_ranges_ ? 1 : hooks_.connections;
  const auto count = static_cast<int>(std::clamp<int64_t>(ranges, 0, most));
  running_ = count;
  std::vector<std::thread> connections;
  for (int i = 0; i < count; ++i) connections.emplace_back([this] { run_connection(); });
  follow();
  for (std::thread& each : connections) each.join();
  if (there_.total() == file_.size) return ok_status();
  const Status saved = part_.save_ranges(there_);
  if (hooks_.stopped()) {
    return unavailable(
        fmt::format("{}: interrupted; {}", file_.name,
                    identity_of(file_).empty()
                        ? "its server tells no versions of it apart, so the next pull begins anew"
                        : "what came is kept, and the next pull goes on from it"));
  }
  return status_.ok() ? saved : status_;
}

void FileDownload::follow() {
  const SystemClock clock;
  double saved_at = clock.now_seconds();
  std::unique_lock lock(mutex_);
  while (running_ > 0) {
    changed_.wait_for(lock, kFollowPause);
    const ByteRanges there = there_;
    lock.unlock();
    hash_whole();
    if (hooks_.progress) hooks_.progress(there.total());
    if (clock.now_seconds() - saved_at > kSaveSeconds) {
      // A state that was not saved costs bytes, no more.
      (void)part_.save_ranges(there).ok();
      saved_at = clock.now_seconds();
    }
    lock.lock();
  }
}

void FileDownload::hash_whole() {
  while (file_.kind != HashKind::kNone) {
    int64_t whole = 0;
    bool anew = false;
    {
      const std::lock_guard lock(mutex_);
      whole = there_.whole();
      anew = std::exchange(begun_anew_, false);
    }
    if (anew) {
      hash_ = ContentHash(file_.kind, file_.size);
      hashed_ = 0;
      continue;
    }
    if (whole == hashed_) return;
    const auto bytes = part_.read(hashed_, std::min<size_t>(kHashBytes, whole - hashed_));
    if (!bytes.ok()) return end_with(bytes.status());
    hash_.add(*bytes);
    hashed_ += static_cast<int64_t>(bytes->size());
  }
}

Status FileDownload::check_hash() {
  hash_whole();
  if (!status_.ok()) return status_;
  const std::string hash = hash_.finish();
  if (hash == file_.hash) return ok_status();
  part_.discard();
  return corrupt(
      fmt::format("{}: what came has another hash than {} says ({}, not {}): it was thrown "
                  "away; pull it again",
                  file_.name, origin_of_url(file_.url), hash, file_.hash));
}

void FileDownload::run_connection() {
  const auto fetcher = HttpFetcher::open([this] { return ended(); });
  if (!fetcher.ok()) end_with(fetcher.status());
  while (!ended()) {
    const std::optional<ByteRange> range = take_range();
    if (!range) break;
    const int64_t before = bytes_there();
    const Status status = fetch_range(**fetcher, *range);
    const bool more = give_back(*range, status, bytes_there() > before);
    if (!more) break;
  }
  const std::lock_guard lock(mutex_);
  --running_;
  changed_.notify_all();
}

// Empty: all are there, or the download is over.
std::optional<ByteRange> FileDownload::take_range() {
  std::unique_lock lock(mutex_);
  while (!over_ && there_.total() < file_.size && !hooks_.stopped()) {
    std::optional<ByteRange> range = there_.gap(taken_, file_.size, kRangeBytes);
    if (without_ranges_) range = ByteRange{0, file_.size};
    if (range && !(without_ranges_ && taken_.total() > 0)) {
      taken_.add(*range);
      if (without_ranges_ && there_.total() > 0) {
        there_ = {};  // all bytes come again, and are hashed again
        begun_anew_ = true;
      }
      return range;
    }
    changed_.wait_for(lock, kFollowPause);  // the range of another may come back
  }
  return std::nullopt;
}

Status FileDownload::fetch_range(HttpFetcher& fetcher, ByteRange range) {
  HttpFetch fetch{.url = address(), .token = {}, .accept = {}, .range = {}, .if_range = {}};
  if (origin_of_url(fetch.url) == origin_of_url(file_.url)) fetch.token = file_.token;
  if (range != ByteRange{0, file_.size}) fetch.range = range;
  if (fetch.range && file_.kind == HashKind::kNone) fetch.if_range = file_.version.if_range();
  std::optional<Status> trouble;  // none before the first byte
  const auto answer = fetcher.get(fetch, [&](const HubAnswer& from, std::string_view bytes) {
    if (!trouble) trouble = check_place(from, range);
    if (trouble->ok()) trouble = store(bytes, range);
    return trouble->ok() && range.first < range.second;
  });
  if (trouble && !trouble->ok()) return *trouble;
  if (!answer.ok()) return answer.status();
  return note_answer(*answer, fetch.url, range);
}

// Whether the bytes that `answer` brings are those of `range`, and of the same version.
Status FileDownload::check_place(const HubAnswer& answer, ByteRange range) {
  int64_t total = answer.content_length().value_or(file_.size), first = 0;
  if (answer.status == 206) {
    std::tie(first, total) = answer.content_range().value_or(ByteRange{-1, -1});
  }
  const std::string host(origin_of_url(answer.url));
  if (file_.kind == HashKind::kNone && file_.version.known() && !file_.version.is_of(answer)) {
    return corrupt(fmt::format(
        "{}: {} has another version of it than when this began: pull it again", file_.name, host));
  }
  if (total != file_.size) {
    return unavailable(fmt::format("{}: {} says that the file has {} bytes, and it has {}",
                                   file_.name, host, total, file_.size));
  }
  if (first == range.first && (answer.status == 206 || range.second == file_.size)) {
    return ok_status();
  }
  if (answer.status == 206) {
    return unavailable(
        fmt::format("{}: {} sends other bytes than it was asked for", file_.name, host));
  }
  const std::lock_guard lock(mutex_);
  without_ranges_ = true;
  return unavailable(fmt::format("{}: {} sends whole files only", file_.name, host));
}

// `place` shrinks by what was stored. Bytes behind its end are none of ours.
Status FileDownload::store(std::string_view bytes, ByteRange& place) {
  bytes = bytes.substr(0, static_cast<size_t>(place.second - place.first));
  HR_RETURN_IF_ERROR(part_.write(place.first, bytes));
  const int64_t end = place.first + static_cast<int64_t>(bytes.size());
  const std::lock_guard lock(mutex_);
  there_.add({place.first, end});
  place.first = end;
  return ok_status();
}

// What is left of a range is in `left`.
Status FileDownload::note_answer(const HubAnswer& answer, const std::string& asked,
                                 ByteRange left) {
  const std::lock_guard lock(mutex_);
  const bool came = answer.status == 200 || answer.status == 206;
  if (came) {
    resolved_url_ = answer.url;
    if (left.first == left.second) return ok_status();
    return unavailable(
        fmt::format("{}: {} ended before the file did", file_.name, origin_of_url(answer.url)));
  }
  // The address of a hub's storage is good for an hour.
  const bool resolved = asked != file_.url;
  resolved_url_.clear();
  retry_after_ = answer.retry_after().value_or(0);
  const Status status = status_of_answer(answer.status, file_.name, answer.url);
  return resolved ? unavailable(status.message()) : status;
}

// Of a range that was taken. False: the download is over.
bool FileDownload::give_back(ByteRange range, const Status& status, bool brought_bytes) {
  std::unique_lock lock(mutex_);
  taken_.remove(range);
  changed_.notify_all();
  const bool turned =
      without_ranges_ && range != ByteRange{0, file_.size};  // it asks otherwise now
  if (status.ok() || turned) return !over_;
  // What fails while another's failure is waited for is the same trouble.
  const SystemClock clock;
  const double now = clock.now_seconds();
  if (brought_bytes || now >= pause_until_) failures_ = brought_bytes ? 1 : failures_ + 1;
  double pause = std::min(kFirstPauseSeconds * std::exp2(failures_ - 1), kPauseSecondsMax);
  pause = std::max(pause, std::exchange(retry_after_, 0));
  if (!may_pass(status) || failures_ > kFailuresMax || pause > kRetryAfterSecondsMax) {
    if (status_.ok()) status_ = status;
    over_ = true;
  }
  if (brought_bytes || now >= pause_until_) pause_until_ = now + pause;
  while (!over_ && clock.now_seconds() < pause_until_ && !hooks_.stopped()) {
    changed_.wait_for(lock, kFollowPause);
  }
  return !over_;
}

std::string FileDownload::address() {
  const std::lock_guard lock(mutex_);
  return resolved_url_.empty() ? file_.url : resolved_url_;
}

int64_t FileDownload::bytes_there() {
  const std::lock_guard lock(mutex_);
  return there_.total();
}

void FileDownload::end_with(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = status;
  over_ = true;
  changed_.notify_all();
}

bool FileDownload::ended() {
  const std::lock_guard lock(mutex_);
  return over_ || hooks_.stopped();
}

}  // namespace headrace
