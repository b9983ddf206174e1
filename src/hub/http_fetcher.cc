#include "hub/http_fetcher.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "stack/default_model.h"

namespace headrace {
namespace {

constexpr int kRedirectsMax = 10;
constexpr long kConnectSeconds = 15;
constexpr int64_t kStallSeconds = 30;  // without a byte, where HF_HUB_DOWNLOAD_TIMEOUT is not set
constexpr long kReceiveBytes = 256 * 1024;  // at once
constexpr auto kWaitPause = std::chrono::milliseconds(50);

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

long stall_seconds() {
  const auto set = whole_number(environment("HF_HUB_DOWNLOAD_TIMEOUT"));
  return static_cast<long>(std::clamp<int64_t>(set.value_or(kStallSeconds), 1, 3600));
}

// The certificates that this system trusts; empty: libcurl's own place.
std::string certificates_file() {
  for (const char* variable : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
    if (std::string file = environment(variable); !file.empty()) return file;
  }
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (::access(file, R_OK) == 0) return file;
  }
  return {};
}

// What passes no second time either.
bool is_lasting(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT;
}

// What libcurl's callbacks see of one answer.
struct Reception {
  HubAnswer& answer;
  const HttpSink& sink;
  const std::function<bool()>& stopped;
  bool enough = false;  // said the sink
};

size_t on_header(char* text, size_t size, size_t count, void* data) {
  HubAnswer& answer = static_cast<Reception*>(data)->answer;
  const std::string_view line(text, size * count);
  if (line.starts_with("HTTP/")) {  // also of an answer that another one follows, as "100 Continue"
    answer.begin();
    const size_t blank = line.find(' ');
    answer.status = blank == line.npos
                        ? 0
                        : static_cast<int>(whole_number(line.substr(blank + 1, 3)).value_or(0));
  } else {
    answer.add_header(line);
  }
  return line.size();
}

size_t on_body(char* text, size_t size, size_t count, void* data) {
  auto& reception = *static_cast<Reception*>(data);
  const int status = reception.answer.status;
  if (status != 200 && status != 206) return size * count;
  reception.enough = !reception.sink(reception.answer, {text, size * count});
  return reception.enough ? 0 : size * count;
}

int on_progress(void* data, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Reception*>(data)->stopped() ? 1 : 0;
}

}  // namespace

Result<std::unique_ptr<HttpFetcher>> HttpFetcher::open(std::function<bool()> stopped) {
  HR_ASSIGN_OR_RETURN(const CurlLibrary* curl, CurlLibrary::open());
  return std::unique_ptr<HttpFetcher>(new HttpFetcher(*curl, std::move(stopped)));
}

HttpFetcher::HttpFetcher(const CurlLibrary& curl, std::function<bool()> stopped)
    : curl_(curl), stopped_(std::move(stopped)), handle_(curl.easy_init()) {
  CHECK(handle_ != nullptr);
}

HttpFetcher::~HttpFetcher() { curl_.easy_cleanup(handle_); }

Status HttpFetcher::perform(const HttpFetch& fetch, HubAnswer& answer, const HttpSink& sink) {
  Reception reception{answer, sink, stopped_};
  char reason[CURL_ERROR_SIZE] = "";
  curl_slist* headers = nullptr;
  const auto set = [this](CURLoption option, auto value) {
    curl_.easy_setopt(handle_, option, value);
  };
  const auto add_header = [&](const std::string& line) {
    headers = curl_.slist_append(headers, line.c_str());
  };
  curl_.easy_reset(handle_);  // connections stay
  if (!fetch.token.empty()) add_header("Authorization: Bearer " + fetch.token);
  if (!fetch.accept.empty()) add_header("Accept: " + fetch.accept);
  if (!fetch.if_range.empty()) add_header("If-Range: " + fetch.if_range);
  // One length, of the bytes as they are on the disk.
  add_header("Accept-Encoding: identity");
  std::string range;
  if (fetch.range) range = fmt::format("{}-{}", fetch.range->first, fetch.range->second - 1);
  const std::string certificates = certificates_file();
  set(CURLOPT_URL, fetch.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, "headrace");
  if (!range.empty()) set(CURLOPT_RANGE, range.c_str());
  if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, stall_seconds());
  set(CURLOPT_BUFFERSIZE, kReceiveBytes);
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(reason));
  set(CURLOPT_HEADERFUNCTION, on_header);
  set(CURLOPT_HEADERDATA, &reception);
  set(CURLOPT_WRITEFUNCTION, on_body);
  set(CURLOPT_WRITEDATA, &reception);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, on_progress);
  set(CURLOPT_XFERINFODATA, &reception);
  answer.url = fetch.url;
  const CURLcode code = curl_.easy_perform(handle_);
  curl_.slist_free_all(headers);
  if (code == CURLE_OK || reception.enough) return ok_status();
  if (code == CURLE_ABORTED_BY_CALLBACK) return unavailable("interrupted");
  const std::string line =
      fmt::format("{}: {}", origin_of_url(fetch.url),
                  reason[0] != 0 ? static_cast<const char*>(reason) : curl_.easy_strerror(code));
  return is_lasting(code) ? invalid_argument(line) : unavailable(line);
}

Status HttpFetcher::wait(double seconds) {
  const SystemClock clock;
  const double until = clock.now_seconds() + seconds;
  while (clock.now_seconds() < until) {
    if (stopped_()) return unavailable("interrupted");
    std::this_thread::sleep_for(kWaitPause);
  }
  return ok_status();
}

Result<HubAnswer> HttpFetcher::get(const HttpFetch& fetch, const HttpSink& sink) {
  HttpFetch hop = fetch;
  HubAnswer answer;
  for (int redirects = 0; redirects <= kRedirectsMax; ++redirects) {
    HR_RETURN_IF_ERROR(perform(hop, answer, sink));
    if (!is_redirect(answer.status)) return answer;
    const std::string target = redirect_target(hop.url, answer.header("location"));
    if (target.empty()) {
      return invalid_argument(fmt::format("{}: redirects to where nothing is fetched from: {:.200}",
                                          origin_of_url(hop.url), answer.header("location")));
    }
    if (origin_of_url(target) != origin_of_url(hop.url)) hop.token.clear();
    hop.url = target;
  }
  return invalid_argument(
      fmt::format("{}: redirects more than {} times", origin_of_url(fetch.url), kRedirectsMax));
}

Result<HubAnswer> HttpFetcher::get_text(const HttpFetch& fetch, std::string& body,
                                        size_t bytes_max) {
  body.clear();
  bool whole = true;
  HR_ASSIGN_OR_RETURN(HubAnswer answer, get(fetch, [&](const HubAnswer&, std::string_view bytes) {
                        whole = body.size() + bytes.size() <= bytes_max;
                        if (whole) body += bytes;
                        return whole;
                      }));
  if (whole) return answer;
  return corrupt(
      fmt::format("{}: its answer has more than {} bytes", origin_of_url(fetch.url), bytes_max));
}

}  // namespace headrace
