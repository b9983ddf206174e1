#include "route/worker_watch.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>

#include "base/json.h"
#include "base/log.h"

namespace headrace {

namespace asio = boost::asio;

namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr double kDownPollSeconds = 0.1;  // while it is down, or nobody knows
constexpr double kModelsSeconds = 5;
constexpr int kLoopStatus = 508;

std::string url_of(const HttpTarget& target) {
  const bool ip6 = target.host.find(':') != target.host.npos;
  return fmt::format("http://{}{}{}:{}", ip6 ? "[" : "", target.host, ip6 ? "]" : "", target.port);
}

// The number behind `name` and, if it has them, its labels; summed over its lines.
double metric_sum(std::string_view page, std::string_view name, bool& found) {
  double sum = 0;
  for (size_t at = page.find(name); at != page.npos; at = page.find(name, at + name.size())) {
    const bool begins = at == 0 || page[at - 1] == '\n';
    const size_t end = std::min(page.find('\n', at), page.size());
    const std::string_view rest = page.substr(at + name.size(), end - at - name.size());
    if (!begins || rest.empty() || (rest.front() != '{' && rest.front() != ' ')) continue;
    const size_t space = rest.rfind(' ');
    sum += std::strtod(std::string(rest.substr(space + 1)).c_str(), nullptr);
    found = true;
  }
  return sum;
}

int64_t label_number(std::string_view line, std::string_view label) {
  const size_t at = line.find(std::string(label) + "=\"");
  if (at == line.npos) return 0;
  return std::strtoll(std::string(line.substr(at + label.size() + 2, 20)).c_str(), nullptr, 10);
}

WorkerReport::Health health_of(const WorkerReply& reply) {
  using Health = WorkerReport::Health;
  if (!reply.status.ok()) return Health::kUnreachable;
  if (reply.http_status == kLoopStatus) return Health::kNotReady;
  if (reply.http_status < 500) return Health::kReady;  // other servers may have no such page
  const bool drains = reply.body.find("shutting down") != reply.body.npos;
  return drains ? Health::kDraining : Health::kNotReady;
}

}  // namespace

void read_worker_metrics(std::string_view page, WorkerReport& report) {
  report.resumes = page.find("\nheadrace:") != page.npos;
  bool found = false;
  const double requests = metric_sum(page, "vllm:num_requests_running", found) +
                          metric_sum(page, "vllm:num_requests_waiting", found);
  if (found) report.requests = static_cast<int64_t>(requests);
  bool has_usage = false;
  const double usage = metric_sum(page, "vllm:kv_cache_usage_perc", has_usage);
  if (has_usage) report.kv_usage = usage;
  const size_t at = page.find("\nvllm:cache_config_info{");
  if (at == page.npos) return;
  const std::string_view line = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
  report.cache_tokens = label_number(line, "block_size") * label_number(line, "num_gpu_blocks");
}

std::vector<ServedModelName> read_worker_models(std::string_view body) {
  std::vector<ServedModelName> models;
  const Result<Json> json = parse_json(body);
  const Json* data = json.ok() ? json->find("data") : nullptr;
  if (!data || !data->is_array()) return models;
  for (const Json& card : data->as_array()) {
    const Json* id = card.find("id");
    if (!id || !id->is_string()) continue;
    ServedModelName& model = models.emplace_back();
    model.name = id->as_string();
    const Json* longest = card.find("max_model_len");
    if (longest && longest->is_int()) model.tokens_max = longest->as_int();
    const Json* made = card.find("made");
    model.made = made && *made == Json(true);
  }
  return models;
}

WorkerWatch::WorkerWatch(asio::io_context& io, WorkerTable& table, const Clock& clock,
                         WorkerWatchOptions options)
    : io_(io),
      table_(table),
      clock_(clock),
      options_(std::move(options)),
      strand_(asio::make_strand(io)),
      timer_(strand_),
      resolver_(strand_) {}

void WorkerWatch::start() {
  asio::dispatch(strand_, [this] { tick(); });
}

void WorkerWatch::tick() {
  const double now = clock_.now_seconds();
  if (now >= resolve_at_) {
    resolve_at_ = now + options_.resolve_seconds;
    for (const WorkerName& name : options_.names) resolve(name);
    for (const EtcdAddress& etcd : options_.etcds) list(etcd);
  }
  for (const WorkerSnapshot& worker : table_.snapshot()) {
    Polled& polled = polled_[worker.id];
    const bool down = worker.state == WorkerState::kDown || worker.state == WorkerState::kUnknown;
    if (down) polled.next = std::min(polled.next, now + kDownPollSeconds);
    if (!polled.busy && now >= polled.next) poll(worker, now);
  }
  std::erase_if(polled_, [&](const auto& each) { return !table_.has(each.first); });
  timer_.expires_after(kTick);
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) tick();
  });
}

void WorkerWatch::ask(const WorkerSnapshot& worker, std::string path,
                      std::function<void(const WorkerReply&)> then) {
  WorkerQuestion question;
  question.target = worker.target;
  question.path = std::move(path);
  question.headers = options_.headers;
  question.seconds_max = options_.progress_seconds;
  ask_worker(io_, std::move(question),
             [this, then = std::move(then)](std::shared_ptr<const WorkerReply> reply) {
               asio::dispatch(strand_, [then, reply] { then(*reply); });
             });
}

void WorkerWatch::poll(const WorkerSnapshot& worker, double now) {
  Polled& polled = polled_[worker.id];
  polled.busy = true;
  polled.next = now + options_.poll_seconds;
  ask(worker, "/health", [this, worker](const WorkerReply& reply) { on_health(worker, reply); });
}

void WorkerWatch::on_health(const WorkerSnapshot& worker, const WorkerReply& reply) {
  const WorkerReport::Health health = health_of(reply);
  using Health = WorkerReport::Health;
  if (health == Health::kUnreachable) {
    tell(worker, "no answer: " + reply.status.message());
  } else if (reply.http_status == kLoopStatus) {
    tell(worker, "it leads back to this router: take it from the list of workers");
  } else if (health == Health::kNotReady) {
    tell(worker, fmt::format("not ready: /health says {}", reply.http_status));
  } else if (health == Health::kDraining) {
    tell(worker, "it shuts down");
  }
  if (health == Health::kUnreachable || health == Health::kNotReady) {
    WorkerReport report;
    report.health = health;
    return finish(worker, report);
  }
  const bool was_up = worker.state == WorkerState::kUp || worker.state == WorkerState::kDraining;
  if (!was_up || clock_.now_seconds() >= polled_[worker.id].models_at) {
    polled_[worker.id].models_at = clock_.now_seconds() + kModelsSeconds;
    return ask(worker, "/v1/models", [this, worker, health](const WorkerReply& models) {
      on_models(worker, models);
      ask(worker, "/metrics", [this, worker, health](const WorkerReply& metrics) {
        on_metrics(worker, health, metrics);
      });
    });
  }
  ask(worker, "/metrics",
      [this, worker, health](const WorkerReply& metrics) { on_metrics(worker, health, metrics); });
}

void WorkerWatch::on_models(const WorkerSnapshot& worker, const WorkerReply& reply) {
  if (!reply.status.ok() || reply.http_status != 200) {
    if (reply.http_status == 401) tell(worker, "it wants a key: give one with --worker-api-key");
    return;
  }
  table_.report_models(worker.id, read_worker_models(reply.body));
}

void WorkerWatch::on_metrics(const WorkerSnapshot& worker, WorkerReport::Health health,
                             const WorkerReply& reply) {
  WorkerReport report;
  report.health = health;
  if (reply.status.ok() && reply.http_status == 200) read_worker_metrics(reply.body, report);
  if (health == WorkerReport::Health::kReady) tell(worker, "up");
  finish(worker, report);
}

void WorkerWatch::finish(const WorkerSnapshot& worker, const WorkerReport& report) {
  polled_[worker.id].busy = false;
  table_.report(worker.id, report);
}

// Once for each change.
void WorkerWatch::tell(const WorkerSnapshot& worker, const std::string& what) {
  std::string& told = polled_[worker.id].told;
  if (std::exchange(told, what) == what) return;
  log_info("worker {} ({}): {}", worker.id, url_of(*worker.target), what);
}

void WorkerWatch::resolve(const WorkerName& name) {
  resolver_.async_resolve(
      name.host, name.port,
      asio::bind_executor(strand_, [this, name](boost::system::error_code error, auto found) {
        const std::string source = fmt::format("dns:{}:{}", name.host, name.port);
        if (error) {
          return tell_source(source, error.message() + ": workers stay as they were");
        }
        tell_source(source, "");
        MemberListing listing;
        std::set<std::string> addresses;
        for (const auto& each : found) addresses.insert(each.endpoint().address().to_string());
        for (const std::string& address : addresses) {
          listing.members.push_back(
              {{.tls = false, .host = address, .port = name.port, .path = "/"}});
        }
        members_of(source).apply(listing);
      }));
}

void WorkerWatch::list(const EtcdAddress& etcd) {
  if (!listing_.insert(etcd.text()).second) return;  // the last question is not answered yet
  WorkerQuestion question;
  question.target = std::make_shared<const HttpTarget>(etcd.target);
  question.method = "POST";
  question.path = kEtcdRange;
  question.body = etcd_range_body(etcd.prefix);
  question.headers = {{"Content-Type", "application/json"}};
  question.seconds_max = options_.progress_seconds;
  ask_worker(io_, std::move(question), [this, etcd](std::shared_ptr<const WorkerReply> reply) {
    asio::dispatch(strand_, [this, etcd, reply] { on_listed(etcd, *reply); });
  });
}

void WorkerWatch::on_listed(const EtcdAddress& etcd, const WorkerReply& reply) {
  const std::string source = etcd.text();
  listing_.erase(source);
  if (!reply.status.ok()) {
    return tell_source(source, reply.status.message() + ": workers stay as they were");
  }
  const Result<MemberListing> listing = read_etcd_listing(reply.body);
  if (!listing.ok()) {
    return tell_source(source, fmt::format("it answers {}, not with keys: is it etcd 3.4 or later, "
                                           "without TLS and passwords?",
                                           reply.http_status));
  }
  const bool older = members_of(source).apply(*listing) == Membership::Applied::kOlder;
  tell_source(source, older ? "an older answer than before is not used" : "");
}

Membership& WorkerWatch::members_of(const std::string& source) {
  return members_.try_emplace(source, table_).first->second;
}

// Once for each change; empty: all is well.
void WorkerWatch::tell_source(const std::string& source, const std::string& what) {
  std::string& told = told_[source];
  if (std::exchange(told, what) == what) return;
  if (what.empty()) return log_info("{}: it answers again", source);
  log_warning("{}: {}", source, what);
}

}  // namespace headrace
