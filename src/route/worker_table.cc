#include "route/worker_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/checksum.h"

namespace headrace {
namespace {

constexpr double kUsualRequestTokens = 512;  // of a request that others sent
constexpr double kLeftSeconds = 60;          // for which a worker that left may come back
constexpr double kSpeedWeight = 0.1;         // of the newest first token in a worker's mean

uint64_t identity_of(const HttpTarget& target) {
  const std::string name = target.host + ":" + target.port;
  return checksum64(std::as_bytes(std::span(name.data(), name.size())));
}

size_t prefix_blocks(size_t tokens) {
  return std::max<size_t>(1, tokens / static_cast<size_t>(kTokensPerRouteBlock));
}

}  // namespace

Result<HttpTarget> parse_worker_url(std::string_view url) {
  HR_ASSIGN_OR_RETURN(HttpTarget target, parse_http_url(url));
  if (target.tls) {
    return unsupported(fmt::format(
        "worker {}: workers are called without TLS: http://, in a network of their own", url));
  }
  if (target.path != "/") {
    return invalid_argument(
        fmt::format("worker {}: must be http://HOST:PORT, without a path", url));
  }
  return target;
}

struct WorkerTable::Worker {
  Worker(int id_, const HttpTarget& target_, size_t blocks)
      : id(id_),
        target(std::make_shared<const HttpTarget>(target_)),
        identity(identity_of(target_)),
        prefixes(blocks) {}

  // What it has to compute for others is what it says beyond what it has of this router.
  double load_tokens() const {
    return tokens + kUsualRequestTokens * static_cast<double>(foreign_requests);
  }

  const int id;
  const std::shared_ptr<const HttpTarget> target;
  const uint64_t identity;
  WorkerHealth health;
  PrefixIndex prefixes;
  double tokens = 0;
  int64_t in_flight = 0, foreign_requests = 0, told_requests = 0;
  double kv_usage = 0, first_token_seconds = 0;
  WorkerCounts counts;
  bool resumes = false;
  std::vector<ServedModelName> models;
};

void WorkerLease::release() {
  if (WorkerTable* const table = std::exchange(table_, nullptr)) table->release(id_, tokens_);
}

WorkerLease& WorkerLease::operator=(WorkerLease&& other) noexcept {
  if (this == &other) return *this;
  release();
  table_ = std::exchange(other.table_, nullptr);
  id_ = other.id_;
  tokens_ = other.tokens_;
  tokens_ahead_ = other.tokens_ahead_;
  target_ = std::move(other.target_);
  return *this;
}

WorkerTable::WorkerTable(WorkerTableOptions options, const Clock& clock)
    : options_(options),
      clock_(clock),
      began_(clock.now_seconds()),
      policy_(make_route_policy(options.policy, options.choice)),
      owners_(options.owners_max) {}

WorkerTable::~WorkerTable() = default;

WorkerTable::Worker* WorkerTable::worker(int id) {
  return const_cast<Worker*>(std::as_const(*this).worker(id));
}
const WorkerTable::Worker* WorkerTable::worker(int id) const {
  for (const auto& each : workers_) {
    if (each->id == id) return each.get();
  }
  return nullptr;
}

int WorkerTable::add(const HttpTarget& target) {
  if (const auto known = find(target.host, target.port)) return *known;
  std::lock_guard lock(mutex_);
  left_.erase(target.host + ":" + target.port);
  workers_.push_back(
      std::make_unique<Worker>(next_id_, target, prefix_blocks(options_.prefix_tokens)));
  return next_id_++;
}

bool WorkerTable::remove(int id) {
  std::lock_guard lock(mutex_);
  const Worker* const found = worker(id);
  if (!found) return false;
  const double now = clock_.now_seconds();
  std::erase_if(left_, [&](const auto& each) { return now - each.second > kLeftSeconds; });
  left_[found->target->host + ":" + found->target->port] = now;
  std::erase_if(workers_, [&](const auto& each) { return each->id == id; });
  return true;
}

bool WorkerTable::drain(int id, bool drains) {
  std::lock_guard lock(mutex_);
  Worker* const found = worker(id);
  if (found) found->health.ask_drain(drains);
  return found != nullptr;
}

std::optional<int> WorkerTable::find(std::string_view host, std::string_view port) const {
  std::lock_guard lock(mutex_);
  for (const auto& each : workers_) {
    if (each->target->host == host && each->target->port == port) return each->id;
  }
  return std::nullopt;
}

bool WorkerTable::is_known(std::string_view model) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& each) {
    return std::any_of(each->models.begin(), each->models.end(),
                       [&](const ServedModelName& served) { return served.name == model; });
  });
}

// A model that nobody has named goes to anybody: whoever gets it says what is wrong.
bool WorkerTable::may_take(const Worker& worker, const RequestFacts& request, bool known) const {
  if (request.resumes && !worker.resumes) return false;
  if (!known || worker.models.empty()) return true;
  return std::any_of(worker.models.begin(), worker.models.end(),
                     [&](const ServedModelName& served) { return served.name == request.model; });
}

void WorkerTable::gather(const RequestFacts* request, std::span<const int> excluded) {
  taking_.clear();
  candidates_.clear();
  const double now = clock_.now_seconds();
  const bool known = request && !request->model.empty() && is_known(request->model);
  for (const auto& each : workers_) {
    if (!each->health.takes_requests(now)) continue;
    if (std::find(excluded.begin(), excluded.end(), each->id) != excluded.end()) continue;
    if (request && !may_take(*each, *request, known)) continue;
    taking_.push_back(each.get());
    candidates_.push_back({.identity = each->identity,
                           .load_tokens = each->load_tokens(),
                           .prefixes = &each->prefixes,
                           .kv_usage = each->kv_usage,
                           .first_token_seconds = each->first_token_seconds});
  }
}

size_t WorkerTable::pick(const RequestFacts& request) {
  if (request.kind == RouteKind::kHome) return home_of(request.client, candidates_);
  if (request.kind == RouteKind::kOwned) {
    const std::optional<int> owner = owners_.find(request.owned_id);
    const auto place = std::find_if(taking_.begin(), taking_.end(),
                                    [&](const Worker* each) { return owner == each->id; });
    if (place != taking_.end()) return static_cast<size_t>(place - taking_.begin());
  }
  return policy_->pick(request, candidates_);
}

std::optional<WorkerLease> WorkerTable::choose(const RequestFacts& request,
                                               std::span<const int> excluded) {
  std::lock_guard lock(mutex_);
  gather(&request, excluded);
  if (candidates_.empty()) return std::nullopt;
  return lease(*taking_[pick(request)], &request);
}

std::optional<WorkerLease> WorkerTable::choose_next(std::span<const int> excluded) {
  std::lock_guard lock(mutex_);
  gather(nullptr, excluded);
  if (candidates_.empty()) return std::nullopt;
  return lease(*taking_.front(), nullptr);
}

bool WorkerTable::anybody_up() const {
  std::lock_guard lock(mutex_);
  const double now = clock_.now_seconds();
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const auto& each) { return each->health.takes_requests(now); });
}

bool WorkerTable::anybody_away() const {
  std::lock_guard lock(mutex_);
  const double now = clock_.now_seconds();
  if (options_.members_are_looked_up && now - began_ <= kLeftSeconds) return true;
  for (const auto& [_, when] : left_) {
    if (now - when <= kLeftSeconds) return true;
  }
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const auto& each) { return !each->health.takes_requests(now); });
}

WorkerLease WorkerTable::lease(Worker& worker, const RequestFacts* request) {
  double tokens = 0, ahead = 0;
  if (request) {
    const size_t held = worker.prefixes.match(request->blocks);
    const auto missing = static_cast<double>(request->prompt_tokens -
                                             static_cast<int64_t>(held) * kTokensPerRouteBlock);
    ahead = std::max(1.0, missing) + kLoadWeight * worker.load_tokens();
    tokens = missing + static_cast<double>(request->output_tokens);
    worker.prefixes.insert(request->blocks);
  }
  worker.tokens += tokens;
  ++worker.in_flight;
  ++worker.counts.requests;
  return WorkerLease(this, worker.id, tokens, ahead, worker.target);
}

void WorkerTable::release(int id, double tokens) {
  std::lock_guard lock(mutex_);
  Worker* const found = worker(id);
  if (!found) return;
  found->tokens -= tokens;
  --found->in_flight;
}

void WorkerTable::report(int id, const WorkerReport& report) {
  std::lock_guard lock(mutex_);
  Worker* const found = worker(id);
  if (!found) return;
  const double now = clock_.now_seconds();
  switch (report.health) {
    case WorkerReport::Health::kReady:
      found->health.on_ready(now);
      break;
    case WorkerReport::Health::kDraining:
      found->health.on_drain_told(now);
      break;
    case WorkerReport::Health::kNotReady:
      found->health.on_not_ready(now);
      break;
    case WorkerReport::Health::kUnreachable:
      // What it had cached is gone if it has died, and told again if it has not.
      found->health.on_lost();
      found->prefixes.clear();
      break;
  }
  if (report.requests >= 0) {
    found->told_requests = report.requests;
    found->foreign_requests = std::max<int64_t>(0, report.requests - found->in_flight);
  }
  if (report.kv_usage >= 0) found->kv_usage = report.kv_usage;
  if (report.resumes) found->resumes = true;
  if (report.cache_tokens > 0) {
    found->prefixes.resize(prefix_blocks(static_cast<size_t>(report.cache_tokens)));
  }
}

void WorkerTable::report_models(int id, std::vector<ServedModelName> models) {
  std::lock_guard lock(mutex_);
  if (Worker* const found = worker(id)) found->models = std::move(models);
}

void WorkerTable::on_lost(int id) {
  std::lock_guard lock(mutex_);
  Worker* const found = worker(id);
  if (!found) return;
  found->health.on_lost();
  ++found->counts.errors;
}

void WorkerTable::on_heard(int id) {
  std::lock_guard lock(mutex_);
  if (Worker* const found = worker(id)) found->health.on_heard(clock_.now_seconds());
}

void WorkerTable::on_answer(int id, int status) {
  std::lock_guard lock(mutex_);
  Worker* const found = worker(id);
  if (!found) return;
  found->health.on_answer(status, clock_.now_seconds());
  if (status >= 500) ++found->counts.errors;
}

void WorkerTable::on_first_token(int id, double seconds, double tokens_ahead) {
  std::lock_guard lock(mutex_);
  Worker* const found = worker(id);
  if (!found || tokens_ahead <= 0) return;
  const double one = seconds / tokens_ahead;
  double& mean = found->first_token_seconds;
  mean = mean == 0 ? one : mean + kSpeedWeight * (one - mean);
}

void WorkerTable::count_retry(int id, bool resumed) {
  std::lock_guard lock(mutex_);
  Worker* const found = worker(id);
  if (found) ++(resumed ? found->counts.resumes : found->counts.retries);
}

void WorkerTable::remember_owner(std::string_view owned_id, int id) {
  std::lock_guard lock(mutex_);
  owners_.put(owned_id, id);
}

bool WorkerTable::heard_within(int id, double seconds) const {
  std::lock_guard lock(mutex_);
  const Worker* const found = worker(id);
  return found && clock_.now_seconds() - found->health.heard_seconds() <= seconds;
}

bool WorkerTable::has(int id) const {
  std::lock_guard lock(mutex_);
  return worker(id) != nullptr;
}

bool WorkerTable::answers(int id) const {
  std::lock_guard lock(mutex_);
  const Worker* const found = worker(id);
  if (!found) return false;
  const WorkerState state = found->health.state();
  return state == WorkerState::kUp || state == WorkerState::kDraining;
}

std::vector<WorkerSnapshot> WorkerTable::snapshot() const {
  std::lock_guard lock(mutex_);
  std::vector<WorkerSnapshot> all;
  for (const auto& each : workers_) {
    WorkerSnapshot& one = all.emplace_back();
    one.id = each->id;
    one.target = each->target;
    one.state = each->health.state();
    one.in_flight = each->in_flight;
    one.told_requests = each->told_requests;
    one.load_tokens = each->load_tokens();
    one.first_token_seconds = each->first_token_seconds;
    one.prefix_blocks = each->prefixes.size();
    one.counts = each->counts;
    for (const ServedModelName& model : each->models) one.models.push_back(model.name);
  }
  return all;
}

int64_t WorkerTable::context_of(std::string_view model) const {
  std::lock_guard lock(mutex_);
  int64_t longest = 0;
  for (const auto& each : workers_) {
    for (const ServedModelName& served : each->models) {
      if (served.name == model) longest = std::max(longest, served.tokens_max);
    }
  }
  return longest;
}

std::vector<ServedModelName> WorkerTable::models() const {
  std::lock_guard lock(mutex_);
  std::vector<ServedModelName> all;
  for (const auto& each : workers_) {
    if (each->health.state() != WorkerState::kUp) continue;
    for (const ServedModelName& served : each->models) {
      const auto same = [&](const ServedModelName& other) { return other.name == served.name; };
      const auto found = std::find_if(all.begin(), all.end(), same);
      if (found == all.end()) {
        all.push_back(served);
      } else {
        found->made = found->made && served.made;
      }
    }
  }
  return all;
}

}  // namespace headrace
