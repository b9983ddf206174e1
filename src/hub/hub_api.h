// What a Hugging Face hub says of its models: their files with sizes and hashes, and which there
// are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "hub/content_hash.h"
#include "hub/http_fetcher.h"

namespace headrace {

struct HubFile {
  std::string path;  // "model.safetensors", "1_Pooling/config.json": checked, it leads nowhere else
  int64_t size = 0;
  HashKind kind = HashKind::kGitBlob;
  std::string hash;  // checked: hexadecimal, as long as its kind's
};

struct HubModel {
  std::string commit;  // 40 hexadecimal digits
  std::vector<HubFile> files;
};

struct HubFound {
  std::string name;
  int64_t downloads = 0;
  bool gguf = false;
};

// One thread's.
class HubApi {
 public:
  // $HF_ENDPOINT, else https://huggingface.co; the token is $HF_TOKEN, else of the file where the
  // hub's own tools keep it. $HF_HUB_OFFLINE: kUnavailable.
  static Result<HubApi> open(HttpFetcher& fetcher);

  // kNotFound names the nearest that the hub has; kInvalidArgument says what to do where it is
  // private or gated.
  Result<HubModel> model(const std::string& repo, const std::string& revision);
  // By downloads.
  Result<std::vector<HubFound>> search(const std::string& words, int count_max);
  std::string file_url(const std::string& repo, const std::string& commit,
                       const std::string& path) const;
  const std::string& token() const { return token_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  explicit HubApi(HttpFetcher& fetcher);
  Status no_such_model(const std::string& repo, const HubAnswer& answer);

  HttpFetcher& fetcher_;
  std::string endpoint_, token_;
};

// The token for an address: the hub's, where it is of the hub.
std::string hub_token_for(const std::string& url);

// The head of an answer; troubles that pass are waited for, as for fetch_json().
Result<HubAnswer> fetch_head(HttpFetcher& fetcher, const HttpFetch& fetch);

// A body of JSON; troubles that pass are waited for, some times. The answer's status is the
// caller's to look at; of any but 200 `body` is null.
Result<HubAnswer> fetch_json(HttpFetcher& fetcher, const HttpFetch& fetch, Json& body);

// Whether $HF_HUB_OFFLINE says that nothing is to be fetched; then why, as an error.
Status check_online();

// As a part of an address: all but letters, digits, "-_.~" and "/" as %XX.
std::string url_escaped(std::string_view text);

}  // namespace headrace
