// One file, over several connections at once, each of which fetches one range after another.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hub/byte_ranges.h"
#include "hub/content_hash.h"
#include "hub/http_fetcher.h"
#include "hub/part_file.h"

namespace headrace {

// What tells versions of a file apart where no hash does, as its server's answers say it.
struct FileVersion {
  std::string etag, last_modified;  // empty: the server does not say

  static FileVersion of(const HubAnswer& answer);
  bool known() const { return !etag.empty() || !last_modified.empty(); }
  // Whether `answer` is of this version, as far as it says: one of the two at least.
  bool is_of(const HubAnswer& answer) const;
  // The stronger of the two that If-Range takes; a weak ETag it does not.
  std::string if_range() const;
  // As a word.
  std::string text() const;
};

struct RemoteFile {
  std::string name;  // for messages
  std::string url;
  std::string token;  // of the host of `url`
  int64_t size = 0;
  HashKind kind = HashKind::kNone;
  std::string hash;
  FileVersion version;         // where there is no hash
  bool replaces = false;       // what lies there is another version
  std::filesystem::path path;  // where it is to be
};

// Tells what came of it earlier from what comes now; empty: nothing does.
std::string identity_of(const RemoteFile& file);

struct DownloadHooks {
  std::function<bool()> stopped;          // any thread; true: end as soon as may be
  std::function<void(int64_t)> progress;  // the calling thread; bytes of this file that are there
  int connections = 8;                    // at most
};

// What an answer of `status` to a request for `name` means, as one line. 429 and 5xx may pass
// (kUnavailable).
Status status_of_answer(int status, const std::string& name, const std::string& url);

class FileDownload {
 public:
  // The whole file under its path, its hash right; at once where it is there. What came before a
  // trouble stays in a part (hub/part_file.h), from which the next run goes on; of a hash that is
  // wrong nothing stays. Bytes that do not come are asked for again, some times without a byte
  // more. Without a hash all bytes are of answers of one version; where the server tells none
  // apart, of one answer. kCorrupt: the version is another one now.
  static Status run(const RemoteFile& file, const DownloadHooks& hooks);

 private:
  FileDownload(const RemoteFile& file, const DownloadHooks& hooks, PartFile& part);
  Status fetch_all();
  // Of the calling thread, while others fetch: hashes what is whole, tells how far it is, saves the
  // ranges.
  void follow();
  Status check_hash();
  void hash_whole();

  // Of a connection's thread.
  void run_connection();
  std::optional<ByteRange> take_range();
  Status fetch_range(HttpFetcher& fetcher, ByteRange range);
  Status check_place(const HubAnswer& answer, ByteRange range);
  Status store(std::string_view bytes, ByteRange& place);
  Status note_answer(const HubAnswer& answer, const std::string& asked, ByteRange left);
  bool give_back(ByteRange range, const Status& status, bool brought_bytes);
  // Of any.
  std::string address();
  int64_t bytes_there();
  void end_with(const Status& status);
  bool ended();

  const RemoteFile& file_;
  const DownloadHooks& hooks_;
  PartFile& part_;
  ContentHash hash_;
  int64_t hashed_ = 0;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  ByteRanges there_, taken_;
  std::string resolved_url_;     // where the hub's address led
  int running_ = 0;              // connections
  int failures_ = 0;             // in a row, without a byte
  double pause_until_ = 0;       // that is waited for after the last of them
  bool begun_anew_ = false;      // what was hashed is no more
  double retry_after_ = 0;       // seconds for which a server asked
  bool without_ranges_ = false;  // whole files only: one connection goes on, from the beginning
  Status status_;                // of the first trouble that ended it
  bool over_ = false;
};

}  // namespace headrace
