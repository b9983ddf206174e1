#include "hub/hub_api.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "hub/file_download.h"
#include "stack/default_model.h"
#include "stack/hub_cache.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kJsonBytesMax = size_t{32} << 20;
constexpr int kTriesMax = 5;
constexpr double kFirstTryPauseSeconds = 0.2, kTryPauseSecondsMax = 30;
constexpr int kNearestMax = 3;

bool is_hexadecimal(const std::string& text, size_t size) {
  return text.size() == size && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
         });
}

// A relative path whose parts are names that are visible or not, and none of which leads up,
// without control characters, those of C1 (U+0080 to U+009F) among them.
bool leads_below(const std::string& path) {
  if (path.empty() || path.size() > 1000 || path.front() == '/') return false;
  for (const unsigned char c : path) {
    if (c < 0x20 || c == 0x7f || c == '\\') return false;
  }
  // They turn the direction of writing, so that another name is read.
  for (const char* turn : {"\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d",
                           "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"}) {
    if (path.find(turn) != path.npos) return false;
  }
  for (size_t at = path.find('\xc2'); at != path.npos; at = path.find('\xc2', at + 1)) {
    if (at + 1 == path.size() || static_cast<unsigned char>(path[at + 1]) < 0xa0) return false;
  }
  for (const fs::path& part : fs::path(path)) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

std::string text_of(const Json* value) {
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

int64_t number_of(const Json* value) {
  return value != nullptr && value->is_int() ? value->as_int() : -1;
}

Result<HubFile> read_hub_file(const Json& sibling, const std::string& repo) {
  HubFile file;
  file.path = text_of(sibling.find("rfilename"));
  file.size = number_of(sibling.find("size"));
  file.hash = text_of(sibling.find("blobId"));
  if (const Json* lfs = sibling.find("lfs"); lfs != nullptr && lfs->is_object()) {
    file.kind = HashKind::kSha256;
    file.hash = text_of(lfs->find("sha256"));
    file.size = number_of(lfs->find("size"));
  }
  const size_t digits = file.kind == HashKind::kSha256 ? 64 : 40;
  if (!leads_below(file.path)) {
    return corrupt(fmt::format(
        "{}: the hub names a file that would lie elsewhere, or has control characters", repo));
  }
  if (file.size < 0 || !is_hexadecimal(file.hash, digits)) {
    return corrupt(fmt::format("{}: the hub gives {} no size or no hash", repo, file.path));
  }
  return file;
}

std::string hub_endpoint() {
  std::string endpoint = environment("HF_ENDPOINT");
  if (endpoint.empty()) endpoint = "https://huggingface.co";
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

std::string hub_token() {
  for (const char* variable : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (std::string token = environment(variable); !token.empty()) return token;
  }
  std::string path = environment("HF_TOKEN_PATH");
  const std::string home = environment("HF_HOME");
  if (path.empty()) {
    path = (home.empty() ? user_cache_folder() / "huggingface" : fs::path(home)) / "token";
  }
  std::string token;
  std::ifstream(path) >> token;
  return token;
}

}  // namespace

Status check_online() {
  // huggingface_hub's words for yes.
  std::string offline = environment("HF_HUB_OFFLINE");
  std::transform(offline.begin(), offline.end(), offline.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (offline != "1" && offline != "ON" && offline != "YES" && offline != "TRUE") return {};
  return unavailable("HF_HUB_OFFLINE is set: nothing is fetched; unset it to pull models");
}

std::string url_escaped(std::string_view text) {
  std::string escaped;
  for (const unsigned char c : text) {
    const bool plain = std::isalnum(c) != 0 || std::string_view("-_.~/").find(c) != text.npos;
    escaped += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return escaped;
}

std::string hub_token_for(const std::string& url) {
  return origin_of_url(url) == origin_of_url(hub_endpoint()) ? hub_token() : std::string();
}

namespace {

bool is_busy(const HubAnswer& answer) {
  return status_of_answer(answer.status, "", answer.url).code() == StatusCode::kUnavailable;
}

// Asks again, some times, while there is no connection or what was answered may pass.
template <class Ask, class MayPass>
Result<HubAnswer> ask_patiently(HttpFetcher& fetcher, const Ask& ask, const MayPass& may_pass) {
  double pause = kFirstTryPauseSeconds;
  for (int tries = 1;; ++tries, pause *= 2) {
    Result<HubAnswer> answer = ask();
    const bool passes =
        answer.ok() ? may_pass(*answer) : answer.status().code() == StatusCode::kUnavailable;
    const double wait = std::max(pause, answer.ok() ? answer->retry_after().value_or(0) : 0);
    if (!passes || tries >= kTriesMax || wait > kTryPauseSecondsMax) return answer;
    HR_RETURN_IF_ERROR(fetcher.wait(wait));
  }
}

}  // namespace

Result<HubAnswer> fetch_head(HttpFetcher& fetcher, const HttpFetch& fetch) {
  const auto ask = [&] {
    return fetcher.get(fetch, [](const HubAnswer&, std::string_view) { return false; });
  };
  return ask_patiently(fetcher, ask, [](const HubAnswer& answer) {
    return answer.status != 200 && answer.status != 206 && is_busy(answer);
  });
}

Result<HubAnswer> fetch_json(HttpFetcher& fetcher, const HttpFetch& fetch, Json& body) {
  const auto ask = [&] {
    std::string text;
    Result<HubAnswer> answer = fetcher.get_text(fetch, text, kJsonBytesMax);
    body = Json();
    if (!answer.ok() || answer->status != 200) return answer;
    Result<Json> json = parse_json(text);
    if (json.ok()) body = *std::move(json);
    return answer;
  };
  HR_ASSIGN_OR_RETURN(HubAnswer answer, ask_patiently(fetcher, ask, [&](const HubAnswer& given) {
                        return given.status == 200 ? body.is_null() : is_busy(given);
                      }));
  if (answer.status != 200 || !body.is_null()) return answer;
  return corrupt(fmt::format("{}: its answer is no JSON", origin_of_url(fetch.url)));
}

Result<HubApi> HubApi::open(HttpFetcher& fetcher) {
  HR_RETURN_IF_ERROR(check_online());
  HubApi api(fetcher);
  if (!api.endpoint_.starts_with("https://") && !api.endpoint_.starts_with("http://")) {
    return invalid_argument(
        fmt::format("$HF_ENDPOINT is {}: expected http(s)://HOST", api.endpoint_));
  }
  return api;
}

HubApi::HubApi(HttpFetcher& fetcher)
    : fetcher_(fetcher), endpoint_(hub_endpoint()), token_(hub_token()) {}

std::string HubApi::file_url(const std::string& repo, const std::string& commit,
                             const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint_, repo, commit, url_escaped(path));
}

Result<HubModel> HubApi::model(const std::string& repo, const std::string& revision) {
  std::string branch = url_escaped(revision);
  for (size_t at = branch.find('/'); at != branch.npos; at = branch.find('/')) {
    branch.replace(at, 1, "%2F");
  }
  const HttpFetch fetch{
      .url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint_, repo, branch),
      .token = token_,
      .accept = {},
      .range = {},
      .if_range = {}};
  Json body;
  HR_ASSIGN_OR_RETURN(const HubAnswer answer, fetch_json(fetcher_, fetch, body));
  if (answer.status != 200) return no_such_model(repo, answer);
  HubModel model;
  model.commit = text_of(body.find("sha"));
  const Json* siblings = body.find("siblings");
  if (!is_hexadecimal(model.commit, 40) || siblings == nullptr || !siblings->is_array()) {
    return corrupt(fmt::format("{}: {} gives no commit and no files", repo, endpoint_));
  }
  for (const Json& sibling : siblings->as_array()) {
    HR_ASSIGN_OR_RETURN(HubFile file, read_hub_file(sibling, repo));
    model.files.push_back(std::move(file));
  }
  return model;
}

Status HubApi::no_such_model(const std::string& repo, const HubAnswer& answer) {
  const std::string code = answer.header("x-error-code");
  const bool unknown = answer.status == 404 || (answer.status == 401 && code != "GatedRepo");
  if (!unknown) return status_of_answer(answer.status, repo, answer.url);
  if (code == "RevisionNotFound") {
    return not_found(fmt::format("{}: the hub has no such branch, tag or commit of it", repo));
  }
  std::vector<std::string> nearest;
  const auto found = search(repo.substr(repo.find('/') + 1), kNearestMax);
  if (found.ok()) {
    for (const HubFound& each : *found) nearest.push_back(each.name);
  }
  return not_found(fmt::format("{}: {} has no such model, or it is private (then set HF_TOKEN){}{}",
                               repo, endpoint_,
                               nearest.empty() ? "" : "; nearest: ", fmt::join(nearest, ", ")));
}

Result<std::vector<HubFound>> HubApi::search(const std::string& words, int count_max) {
  std::string query = url_escaped(words);
  for (size_t at = query.find('/'); at != query.npos; at = query.find('/')) {
    query.replace(at, 1, "%2F");
  }
  const HttpFetch fetch{
      .url = fmt::format("{}/api/models?search={}&limit={}&sort=downloads&direction=-1", endpoint_,
                         query, count_max),
      .token = token_,
      .accept = {},
      .range = {},
      .if_range = {}};
  Json body;
  HR_ASSIGN_OR_RETURN(const HubAnswer answer, fetch_json(fetcher_, fetch, body));
  if (answer.status != 200) return status_of_answer(answer.status, "search", answer.url);
  std::vector<HubFound> found;
  if (!body.is_array()) return corrupt(fmt::format("{}: its answer is no list", endpoint_));
  for (const Json& each : body.as_array()) {
    HubFound model;
    model.name = text_of(each.find("id"));
    model.downloads = std::max<int64_t>(number_of(each.find("downloads")), 0);
    const Json* tags = each.find("tags");
    if (tags != nullptr && tags->is_array()) {
      const auto& all = tags->as_array();
      model.gguf = std::find(all.begin(), all.end(), Json("gguf")) != all.end();
    }
    if (is_hub_name(model.name)) found.push_back(std::move(model));
  }
  return found;
}

}  // namespace headrace
