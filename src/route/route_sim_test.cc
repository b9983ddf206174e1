// The control plane in virtual time: real requests, journals, attempts, table, membership and
// leases; a network that delays, reorders, drops, cuts and breaks, workers that die, stop, are cut
// off, drain, answer errors, swallow requests and come back, a registry that is lost and whose
// replicas lag, clocks of different speeds, clients that are slow or leave. The same seed gives the
// same run. HEADRACE_ROUTE_SIM_EVENTS: how many events, from HEADRACE_ROUTE_SIM_SEED on.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/rng.h"
#include "route/json_members.h"
#include "route/proxied_request.h"
#include "route/registry_fixture.h"
#include "server/http_message.h"

namespace headrace::route_sim_test {
namespace {

// What the client of one request has.
class SimExchange final : public Exchange, public std::enable_shared_from_this<SimExchange> {
 public:
  SimExchange(VirtualTime& time, Rng& rng) : time_(time), rng_(rng) {}

  void respond(HttpResponse response) override {
    status = response.status;
    text = std::move(response.body);
    end();
  }
  void begin_stream(HttpResponse head) override { status = head.status; }
  void write(std::string_view bytes) override {
    if (ended) return;
    text += bytes;
    if (rng_.below(20) != 0) return;
    full_ = true;  // a client that takes its time
    time_.after(rng_.uniform() * 3, [self = shared_from_this()] {
      self->full_ = false;
      if (self->observer_) self->observer_->on_writable();
    });
  }
  void end_stream(std::string_view last) override {
    if (!ended) text += last;
    end();
  }
  bool over_unsent_limit() const override { return full_; }
  void observe(std::shared_ptr<ExchangeObserver> observer) override {
    observer_ = std::move(observer);
  }
  void post(std::function<void()> task) override { time_.after(0, std::move(task)); }
  void call_after(double seconds, std::function<void()> task) override {
    time_.after(seconds, [self = shared_from_this(), task = std::move(task)] {
      if (!self->ended) task();
    });
  }
  void leave() {
    if (ended) return;
    gone = true;
    const auto observer = observer_;
    end();
    observer->on_peer_gone();
  }

  int status = 0;
  std::string text;
  bool ended = false, gone = false;

 private:
  void end() {
    EXPECT_FALSE(ended);
    ended = true;
    observer_.reset();
  }
  VirtualTime& time_;
  Rng& rng_;
  std::shared_ptr<ExchangeObserver> observer_;
  bool full_ = false;
};

struct SimWorker {
  bool alive = true;
  bool silent = false;    // stopped, or cut off
  int life = 0;           // the next begins with each start
  double clock_rate = 1;  // seconds that pass where it takes one to have passed
  std::shared_ptr<SimEntry> entry;
};

// What a request's answer is made of: `count` arrivals, each with its events.
std::string events_of(int request, int arrival, int count) {
  std::string text;
  for (int i = 0; i <= (request + arrival) % 3; ++i) {
    text += fmt::format("data: {{\"r\":{},\"a\":{},\"e\":{}}}\n\n", request, arrival, i);
  }
  if (arrival + 1 == count) text += "data: [DONE]\n\n";
  return text;
}

class SimNetwork;

class SimAttempt final : public WorkerAttempt, public std::enable_shared_from_this<SimAttempt> {
 public:
  SimAttempt(SimNetwork& network, WorkerLease lease, Callbacks callbacks)
      : network_(network), lease_(std::move(lease)), callbacks_(std::move(callbacks)) {}

  void start(std::string head, std::shared_ptr<const std::string> body, bool reuse) override;
  void read() override;
  void abandon() override {
    over_ = true;
    callbacks_ = {};
    lease_.release();
  }
  void finish() override { abandon(); }
  WorkerAnswer& answer() override { return answer_; }
  int worker() const override { return lease_.id(); }
  int place() const { return std::stoi(lease_.target().host); }
  bool connected() const override { return connected_; }
  double silent_seconds() const override;

 private:
  void begin(const std::string& body);
  void produce();
  void deliver();
  void fail(AttemptFailure failure);

  SimNetwork& network_;
  WorkerLease lease_;
  Callbacks callbacks_;
  WorkerAnswer answer_;
  bool over_ = false, connected_ = false, wants_ = false, broken_ = false;
  int life_ = 0, request_ = 0, count_ = 0, next_ = 0, fault_at_ = -1;
  std::string arrived_;
  double heard_ = 0;
};

class SimNetwork final : public AttemptSource {
 public:
  SimNetwork(uint64_t seed, int workers)
      : rng(seed),
        table({.policy = kRoutePolicyNames[seed % std::size(kRoutePolicyNames)].value,
               .choice = {.seed = seed}},
              time.clock) {
    options.progress_seconds = 2;
    options.silent_stream_seconds = 20;
    options.attempts.wait_seconds = 60;
    registered = seed % 3 != 0;
    for (int i = 0; i < workers; ++i) {
      this->workers.emplace_back().clock_rate = 0.7 + 0.6 * rng.uniform();
      if (!registered) table.add(address_of(i));
      enter(i);
      poll(i);
    }
    if (registered) list();
  }

  static HttpTarget address_of(int place) {
    return {.tls = false, .host = std::to_string(place), .port = "1", .path = "/"};
  }
  std::optional<int> id_of(int place) const { return table.find(std::to_string(place), "1"); }

  std::shared_ptr<WorkerAttempt> make(WorkerLease lease, std::shared_ptr<Exchange>,
                                      WorkerAttempt::Callbacks callbacks) override {
    return std::make_shared<SimAttempt>(*this, std::move(lease), std::move(callbacks));
  }

  double delay() { return rng.below(50) == 0 ? rng.uniform() : 0.001 + 0.01 * rng.uniform(); }
  SimWorker& at(int place) { return workers[static_cast<size_t>(place)]; }
  int living() const {
    int count = 0;
    for (const SimWorker& each : workers) count += each.alive && !each.silent;
    return count;
  }

  // Asks, and takes the answer when it comes: also late, and of a life before.
  void poll(int place) {
    if (over) return;
    const auto id = id_of(place);
    if (!id) return time.after(0.1, [this, place] { poll(place); });
    const bool answers = at(place).alive && !at(place).silent;
    WorkerReport report;
    report.health = answers ? WorkerReport::Health::kReady : WorkerReport::Health::kUnreachable;
    report.resumes = true;
    const double after = answers || !at(place).alive ? delay() : options.progress_seconds;
    time.after(after, [this, place, id, report] {
      table.report(*id, report);
      time.after(0.3, [this, place] { poll(place); });
    });
  }

  // A life of a worker enters itself into the registry.
  void enter(int place) {
    SimWorker& worker = at(place);
    if (!registered) return;
    if (worker.entry) worker.entry->end();
    worker.entry =
        std::make_shared<SimEntry>(time, registry, link, std::to_string(place), worker.clock_rate,
                                   [this, place] { return at(place).alive && !at(place).silent; });
    worker.entry->go_on();
  }

  // The router asks for all members; answers overtake each other.
  void list() {
    if (over) return;
    link.exchange(
        [this]() -> std::function<void()> {
          return [this, listing = registry.listing()] { take(listing); };
        },
        [] {});
    time.after(0.5, [this] { list(); });
  }

  void take(const MemberListing& listing) {
    std::map<std::string, size_t> known;
    for (const WorkerSnapshot& worker : table.snapshot()) {
      known[worker.target->host] = worker.prefix_blocks;
    }
    const bool older = listing.revision < revision;
    const bool now = membership.apply(listing) == Membership::Applied::kNow;
    EXPECT_NE(now, older) << "revision " << listing.revision << " behind " << revision;
    if (!now) return;
    revision = listing.revision;
    std::map<std::string, int64_t> told;
    for (const MemberListing::Member& member : listing.members) {
      int64_t& life = told[member.target.host];
      life = std::max(life, member.life);
    }
    std::set<std::string> named, there;
    for (const auto& [host, life] : told) {
      named.insert(host);
      if (std::exchange(lives[host], life) == life || !known.contains(host)) continue;
      const auto id = table.find(host, "1");
      EXPECT_FALSE(id && table.answers(*id)) << "a new life is trusted unasked";
    }
    for (const WorkerSnapshot& worker : table.snapshot()) there.insert(worker.target->host);
    if (!named.empty()) {
      EXPECT_EQ(there, named) << "revision " << revision;
    }
  }

  // One fault; it ends after a while. Somebody always lives.
  void harm() {
    if (over || calm) return;
    time.after(0.2 + rng.uniform(), [this] { harm(); });
    const int place = static_cast<int>(rng.below(workers.size()));
    SimWorker& worker = at(place);
    const uint64_t kind = rng.below(3);
    if (registered && rng.below(16) == 0) {
      if (registry.lost()) return;
      ++faults;
      registry.lose();
      return time.after(rng.uniform() * 9, [this] { registry.come_back(); });
    }
    if (kind == 2) {
      const auto id = id_of(place);
      if (!id) return;
      table.drain(*id, true);
      return time.after(rng.uniform() * 2, [this, id] { table.drain(*id, false); });
    }
    if (!worker.alive || worker.silent || living() < 2) return;
    ++faults;
    if (kind == 0) {
      worker.alive = false;
      time.after(rng.uniform() * 5, [this, place] {
        at(place).alive = true;
        ++at(place).life;
        enter(place);
      });
    } else {
      worker.silent = true;
      time.after(rng.uniform() * 9, [this, place] { at(place).silent = false; });
    }
  }

  VirtualTime time;
  Rng rng;
  ProxyOptions options;
  ModelAliases aliases;
  RouteMetrics metrics;
  WorkerTable table;
  std::vector<SimWorker> workers;
  BodyBudget journals{1 << 30};
  RouteContext context{options, aliases, table, *this, metrics, journals, time.clock};
  bool registered = false;  // workers come by the registry, and not by a list
  SimRegistry registry{time, rng};
  SimRegistryLink link{time, rng, registry};
  Membership membership{table};
  int64_t revision = 0;                  // that was applied last
  std::map<std::string, int64_t> lives;  // of members, as last told
  bool over = false, calm = false;
  int64_t faults = 0, errors = 0, swallowed = 0;
};

double SimAttempt::silent_seconds() const { return network_.time.clock.now_seconds() - heard_; }

void SimAttempt::start(std::string, std::shared_ptr<const std::string> body, bool) {
  heard_ = network_.time.clock.now_seconds();
  life_ = network_.at(place()).life;
  network_.time.after(network_.delay(), [self = shared_from_this(), body] { self->begin(*body); });
}

void SimAttempt::begin(const std::string& body) {
  if (over_) return;
  const SimWorker& worker = network_.at(place());
  if (!worker.alive || worker.life != life_) return fail(AttemptFailure::kNotSent);
  connected_ = true;
  if (network_.rng.below(200) == 0) {  // it answers polls, and never this
    ++network_.swallowed;
    return;
  }
  request_ = static_cast<int>(*json_integer(json_member(body, "request")));
  count_ = static_cast<int>(*json_integer(json_member(body, "count")));
  std::string first;
  if (network_.rng.below(30) == 0) fault_at_ = static_cast<int>(network_.rng.below(20));
  const std::string_view resume = json_member(body, "headrace_resume");
  if (resume.empty()) {
    first = ": journal {\"head\": {\"request\": " + std::to_string(request_) + "}}\n\n";
  } else {
    EXPECT_EQ(json_member(json_member(resume, "head"), "request"), std::to_string(request_));
    std::string journal;
    const std::string_view given = json_member(resume, "journal");
    while (given.size() > 2 && journal.size() + 2 < given.size()) {
      journal += (next_ > 0 ? ",[" : "[") + std::to_string(next_) + "]";
      ++next_;
    }
    EXPECT_EQ(given, "[" + journal + "]");
    if (json_member(resume, "resend_last") == "true" && next_ > 0) {
      first = events_of(request_, next_ - 1, count_);
    }
  }
  std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  if (!first.empty()) append_chunk(head, first);
  arrived_ += head;
  deliver();
  produce();
}

// The next arrival, after its time; nothing while the worker is silent.
void SimAttempt::produce() {
  const double gap = 0.02 + network_.delay();
  network_.time.after(gap, [self = shared_from_this()] {
    if (self->over_ || self->broken_) return;
    const SimWorker& worker = self->network_.at(self->place());
    if (!worker.alive || worker.life != self->life_) {
      self->broken_ = true;
      return self->deliver();
    }
    if (worker.silent) return self->produce();
    std::string bytes;
    if (self->next_ == self->fault_at_) {
      ++self->network_.errors;
      bytes = "data: {\"error\":{\"message\":\"no valid output\"}}\n\n";
      self->next_ = self->count_;
    } else if (self->next_ < self->count_) {
      const int arrival = self->next_++;
      bytes = fmt::format(": journal [{}]\n\n{}", arrival,
                          events_of(self->request_, arrival, self->count_));
    }
    const bool last = self->next_ == self->count_;
    if (!bytes.empty()) append_chunk(self->arrived_, bytes);
    if (last) self->arrived_ += kLastChunk;
    self->deliver();
    if (!last) self->produce();
  });
}

void SimAttempt::read() {
  wants_ = true;
  if (!arrived_.empty() || broken_) {
    network_.time.after(network_.delay(), [self = shared_from_this()] { self->deliver(); });
  }
}

// As much as a packet happens to hold, if the router reads and the worker's packets come.
void SimAttempt::deliver() {
  if (over_) return;
  if (!connected_ || answer_.complete()) return;
  if (!answer_.has_head()) wants_ = true;
  if (!wants_) return;
  if (arrived_.empty()) {
    if (broken_) fail(AttemptFailure::kBroken);
    return;
  }
  if (network_.at(place()).silent) {
    return network_.time.after(0.1, [self = shared_from_this()] { self->deliver(); });
  }
  wants_ = false;
  const bool cut = broken_ || network_.rng.below(2) == 0;
  const size_t count = cut ? 1 + network_.rng.below(arrived_.size()) : arrived_.size();
  heard_ = network_.time.clock.now_seconds();
  const Status status = answer_.feed(arrived_.substr(0, count));
  EXPECT_TRUE(status.ok()) << status.message();
  arrived_.erase(0, count);
  if (broken_ && network_.rng.below(2) == 0) arrived_.clear();  // what was on its way is lost
  const auto on_bytes = callbacks_.on_bytes;
  on_bytes();
}

void SimAttempt::fail(AttemptFailure failure) {
  const auto self = shared_from_this();
  const auto on_failed = callbacks_.on_failed;
  abandon();
  on_failed(failure, "simulated");
}

struct SimOutcome {
  int64_t events = 0, faults = 0, errors = 0, resumes = 0, gone = 0, swallowed = 0;
};

// When all is mended the router knows all workers, and they answer.
void expect_settled(SimNetwork& network, uint64_t seed) {
  network.calm = true;
  network.link.calm();
  const double end = network.time.now() + 60;
  while (network.time.now() < end && network.time.step()) {
  }
  size_t up = 0;
  for (const WorkerSnapshot& worker : network.table.snapshot()) {
    up += worker.state == WorkerState::kUp || worker.state == WorkerState::kDraining;
  }
  EXPECT_EQ(up, network.workers.size()) << "seed " << seed;
}

SimOutcome simulate(uint64_t seed, int requests) {
  SimNetwork network(seed, 2 + static_cast<int>(seed % 4));
  Rng& rng = network.rng;
  std::vector<std::shared_ptr<SimExchange>> clients;
  std::vector<std::string> wanted;
  for (int i = 0; i < requests; ++i) {
    const int count = 1 + static_cast<int>(rng.below(60));
    clients.push_back(std::make_shared<SimExchange>(network.time, rng));
    std::string& text = wanted.emplace_back();
    for (int arrival = 0; arrival < count; ++arrival) text += events_of(i, arrival, count);
    network.time.after(rng.uniform() * 10, [&network, client = clients.back(), i, count] {
      HttpRequest request;
      request.method = "POST";
      request.path = "/v1/completions";
      request.body = fmt::format("{{\"stream\":true,\"request\":{},\"count\":{}}}", i, count);
      std::make_shared<ProxiedRequest>(network.context, std::move(request), client)->start();
    });
    if (rng.below(10) == 0) {
      network.time.after(10 + rng.uniform() * 5, [client = clients.back()] { client->leave(); });
    }
  }
  network.time.after(1, [&network] { network.harm(); });
  const auto all_ended = [&] {
    return std::all_of(clients.begin(), clients.end(),
                       [](const auto& each) { return each->ended; });
  };
  while (!all_ended() && network.time.clock.now_seconds() < 600 && network.time.step()) {
  }
  SimOutcome outcome{
      .faults = network.faults, .errors = network.errors, .swallowed = network.swallowed};
  for (size_t i = 0; i < clients.size(); ++i) {
    EXPECT_TRUE(clients[i]->ended) << "seed " << seed << " request " << i << " never ends";
    outcome.gone += clients[i]->gone;
    if (clients[i]->gone) {
      EXPECT_TRUE(wanted[i].starts_with(clients[i]->text)) << "seed " << seed << " request " << i;
    } else {
      EXPECT_EQ(clients[i]->text, wanted[i]) << "seed " << seed << " request " << i;
    }
  }
  for (const WorkerSnapshot& worker : network.table.snapshot()) {
    EXPECT_EQ(worker.in_flight, 0) << "seed " << seed;
    outcome.resumes += worker.counts.resumes;
  }
  expect_settled(network, seed);
  network.over = true;
  for (SimWorker& worker : network.workers) {
    if (worker.entry) worker.entry->end();
  }
  outcome.events = network.time.events;
  while (network.time.step()) {
  }
  return outcome;
}

uint64_t number_of_environment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(RouteSimulation, NoRequestFailsAndNoEventIsLostOrRepeatedWhileAWorkerLives) {
  const auto events =
      static_cast<int64_t>(number_of_environment("HEADRACE_ROUTE_SIM_EVENTS", 300'000));
  const uint64_t first = number_of_environment("HEADRACE_ROUTE_SIM_SEED", 1);
  SimOutcome sum;
  uint64_t seed = first;
  for (; sum.events < events && !HasFailure(); ++seed) {
    const SimOutcome one = simulate(seed, 40);
    sum.events += one.events;
    sum.faults += one.faults;
    sum.errors += one.errors;
    sum.resumes += one.resumes;
    sum.gone += one.gone;
    sum.swallowed += one.swallowed;
  }
  std::printf(
      "%llu seeds, %lld events, %lld faults, %lld error events, %lld requests swallowed, %lld "
      "streams resumed\n",
      static_cast<unsigned long long>(seed - first), static_cast<long long>(sum.events),
      static_cast<long long>(sum.faults), static_cast<long long>(sum.errors),
      static_cast<long long>(sum.swallowed), static_cast<long long>(sum.resumes));
  EXPECT_GT(sum.resumes, static_cast<int64_t>(seed - first));
  EXPECT_GT(sum.gone, 0);
  EXPECT_GT(sum.swallowed, 0);
}

TEST(RouteSimulation, TheSameSeedIsTheSameRun) {
  EXPECT_EQ(simulate(7, 40).events, simulate(7, 40).events);
}

}  // namespace
}  // namespace headrace::route_sim_test
