// The two files of a batch job, as OpenAI's batch API has them: requests, one JSON object a line,
// and answers, one a line in the order in which they are done.
//
// The file of answers is the job's journal: a line is written in one piece when its request is
// done, and a job that is started again on the same two files does what is not there yet. So a job
// that was killed loses no answer and repeats none.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/status.h"

namespace headrace {

// One line of the requests. The views live as long as the BatchRequests.
struct BatchRequest {
  std::string custom_id;
  std::string_view line;    // {"custom_id": ..., "method": "POST", "url": ..., "body": {...}}
  std::string_view url;     // one of kBatchUrls
  int64_t declared_tokens;  // the body's max_tokens or what it is called; without one more than any
};

// What a batch may call: of a model that generates the first three, of one of vectors the last.
inline constexpr std::string_view kResponsesUrl = "/v1/responses";
inline constexpr std::string_view kEmbeddingsUrl = "/v1/embeddings";
inline constexpr std::array<std::string_view, 4> kBatchUrls = {
    "/v1/completions", "/v1/chat/completions", kResponsesUrl, kEmbeddingsUrl};

struct BatchRules {
  JsonLimits json;
  size_t line_bytes_max = 8 << 20;  // as a body from the network
  size_t requests_max = SIZE_MAX;
  std::string url;  // of all lines; empty: any of kBatchUrls
};

class BatchRequests {
 public:
  // Checks every line before any is run: an object with a custom_id of its own (at most 512
  // bytes), method POST, a URL that the rules allow and a body that is an object and asks for no
  // stream. The file is read in pieces that are let go again: memory is a line's, and of a line
  // that is too long a piece's. Errors are "path: line N: what" with the field "line N"; without a
  // line for the file as a whole. Empty lines are left out.
  static Result<BatchRequests> open(const std::string& path, const BatchRules& rules);

  size_t size() const { return requests_.size(); }
  const BatchRequest& operator[](size_t i) const { return requests_[i]; }
  // The place of an id, or -1.
  int64_t find(const std::string& custom_id) const;

 private:
  explicit BatchRequests(std::shared_ptr<MappedFile> file) : file_(std::move(file)) {}
  Status add(std::string_view line, const BatchRules& rules);

  std::shared_ptr<MappedFile> file_;
  std::vector<BatchRequest> requests_;
  std::unordered_map<std::string, size_t> places_;
};

// One thread.
class BatchJournal {
 public:
  // Opens or makes the file of answers. A last line that was cut off by a kill is taken away;
  // anything else that is no answer to one of `requests` is refused, as is a file that another job
  // is writing.
  static Result<BatchJournal> open(const std::string& path, const BatchRequests& requests);
  BatchJournal(BatchJournal&& other) noexcept;
  BatchJournal& operator=(BatchJournal&&) = delete;
  ~BatchJournal();

  bool is_done(size_t request) const { return done_[request]; }
  size_t done_count() const { return done_count_; }
  // Of them, answered with an HTTP status of 400 and more.
  size_t refused_count() const { return refused_count_; }

  // Writes the answer's line; it survives a kill of this process from here on. `body` is JSON.
  // After an error (kExhausted: the disk is full) the file may end in a part of a line: open()
  // takes it away.
  Status append(size_t request, const BatchRequest& line, int http_status, std::string_view body);
  // Down to the disk.
  Status sync();

 private:
  BatchJournal(std::string path, int file, size_t requests)
      : path_(std::move(path)), file_(file), done_(requests, false) {}
  Status read_back(const BatchRequests& requests);
  void note_done(size_t request, int64_t http_status);
  Status mark_done(std::string_view line, size_t number, const BatchRequests& requests);

  std::string path_;
  int file_;
  std::vector<bool> done_;  // by request
  size_t done_count_ = 0;
  size_t refused_count_ = 0;
};

}  // namespace headrace
