#include "server/model_pool.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"

namespace headrace {
namespace {

constexpr size_t kAddedModelsMax = 1024;

// Clients read it, and a path tells of the machine: the model's becomes its name, of others the
// last part is left.
std::string without_paths(std::string message, const ServedModelSpec& spec) {
  const std::string& path = spec.facts.path;
  const std::string& name = spec.names.front();
  for (size_t at = 0; !path.empty() && (at = message.find(path, at)) != message.npos;) {
    message.replace(at, path.size(), name);
    at += name.size();
  }
  constexpr std::string_view kAround = " \t\n\"'`:,;()[]<>=";
  for (size_t at = 0; (at = message.find('/', at)) != message.npos;) {
    const size_t end = std::min(message.find_first_of(kAround, at), message.size());
    const bool absolute = at == 0 || kAround.find(message[at - 1]) != kAround.npos;
    const size_t last = message.rfind('/', end - 1);
    if (absolute && last > at) {
      message.erase(at, last + 1 - at);
    } else {
      at = end;
    }
  }
  return message;
}

// What is told may run out of memory; the others are told all the same.
void tell_all(const std::vector<std::function<void()>>& news) {
  for (const auto& tell : news) {
    try {
      tell();
    } catch (const std::exception& error) {
      log_error("who waited for a model was not told: {}", error.what());
    }
  }
}

Status shutting_down() { return unavailable("the server is shutting down"); }

}  // namespace

std::string_view model_state_name(ModelState state) {
  switch (state) {
    case ModelState::kUnloaded:
      return "unloaded";
    case ModelState::kLoading:
      return "loading";
    case ModelState::kReady:
      return "loaded";
    case ModelState::kUnloading:
      return "unloading";
    case ModelState::kSleeping:
      return "sleeping";
    case ModelState::kFailed:
      return "failed";
  }
  return "";
}

ModelPool::Entry::Entry(const ServedModelSpec& of, const ModelPoolOptions& options)
    : metrics(std::make_shared<ServerMetrics>(of.names.front())) {
  status.facts = of.facts;
  status.created_unix_s = std::time(nullptr);
  status.stays = !of.load;
  idle_seconds = of.idle_seconds > 0 ? of.idle_seconds : options.idle_seconds;
  bytes = of.facts.file_bytes;
}

Status ModelPool::open(ModelPoolOptions options, std::vector<ServedModelSpec> specs,
                       std::optional<ModelInstance> first) {
  CHECK_MSG(!open_ && (options.grows || !specs.empty()), "a pool is opened once, with models");
  std::vector<std::unique_ptr<Entry>> entries;
  if (options.grows) entries.reserve(specs.size() + kAddedModelsMax);
  std::unordered_map<std::string, size_t> by_name;
  bool loads = options.grows;
  for (ServedModelSpec& spec : specs) {
    CHECK(!spec.names.empty());
    auto entry = std::make_unique<Entry>(spec, options);
    for (const std::string& name : spec.names) {
      const auto [at, fresh] = by_name.emplace(name, entries.size());
      if (fresh || at->second == entries.size()) continue;
      return invalid_argument(
          fmt::format("two models are called {}: name one of them otherwise (NAME=PATH)", name));
    }
    loads = loads || spec.load;
    entry->spec = std::move(spec);
    entries.push_back(std::move(entry));
  }
  for (size_t place = 0; place < entries.size(); ++place) {  // where they name no other
    for (const std::string& name : entries[place]->spec.other_names) by_name.emplace(name, place);
  }
  for (size_t place = 0; place < entries.size(); ++place) {
    for (const std::string& name : entries[place]->spec.adapter_names) {
      const auto [at, fresh] = by_name.emplace(name, place);
      if (fresh || at->second == place) continue;
      return invalid_argument(fmt::format(
          "an adapter is called {} as is another model or an adapter of it: name one of them "
          "otherwise (NAME=PATH)",
          name));
    }
  }
  if (first) {
    Entry& entry = *entries.front();
    const int64_t created = first->served.created_unix_s;
    HR_ASSIGN_OR_RETURN(auto ready,
                        make_ready_model(std::move(first->served), pins_, entry.metrics));
    entry.owner = std::move(first->owner);
    News nobody;
    settle(entry, std::move(ready), nobody);
    if (created > 0) entry.status.created_unix_s = created;
    if (!loads && entries.size() == 1) only_.store(entry.ready.get(), std::memory_order_release);
  }
  {
    const std::lock_guard lock(mutex_);  // a server that stops meanwhile looks at them
    options_ = options;
    entries_ = std::move(entries);
    by_name_ = std::move(by_name);
    count_.store(entries_.size(), std::memory_order_release);
  }
  if (loads) thread_ = std::thread([this] { run(); });
  open_.store(true, std::memory_order_release);
  return ok_status();
}

// Places do not move: whoever has one asks without the mutex.
Status ModelPool::add(ServedModelSpec spec) {
  auto entry = std::make_unique<Entry>(spec, options_);
  const std::lock_guard lock(mutex_);
  CHECK(open_ && options_.grows && spec.load);
  if (entries_.size() == entries_.capacity()) {
    return exhausted("there are too many models: stop the server and start it again");
  }
  for (const std::string& name : spec.names) {
    if (!by_name_.contains(name)) continue;
    return invalid_argument(fmt::format("{} is the name of another model", name), "model");
  }
  for (const std::string& name : spec.names) by_name_.emplace(name, entries_.size());
  for (const std::string& name : spec.other_names) by_name_.emplace(name, entries_.size());
  entry->spec = std::move(spec);
  entries_.push_back(std::move(entry));
  count_.store(entries_.size(), std::memory_order_release);
  return ok_status();
}

std::optional<size_t> ModelPool::find(std::string_view name) const {
  if (only()) return 0;
  if (name.empty()) return options_.has_default ? std::optional<size_t>(0) : std::nullopt;
  const std::lock_guard lock(mutex_);
  const auto at = by_name_.find(std::string(name));
  return at == by_name_.end() ? std::nullopt : std::optional(at->second);
}

// --- Leases --------------------------------------------------------------------------------------

ModelLease ModelPool::make_lease(Entry& entry, Use use) {
  ++entry.users;
  if (use == Use::kRequest) entry.last_use = clock_.now_seconds();
  return {entry.ready.get(), [this, &entry, use](const ReadyModel*) { release(entry, use); }};
}

ModelLease ModelPool::lease(size_t place, Use use) {
  Entry& entry = *entries_[place];
  const std::lock_guard lock(mutex_);
  if (entry.status.state != ModelState::kReady) return nullptr;
  if (entry.leaves_to && use == Use::kRequest) return nullptr;
  return make_lease(entry, use);
}

void ModelPool::release(Entry& entry, Use use) {
  const std::lock_guard lock(mutex_);
  if (use == Use::kRequest) entry.last_use = clock_.now_seconds();
  if (--entry.users == 0) wake_.notify_one();
}

std::vector<ModelLease> ModelPool::loaded() {
  std::vector<ModelLease> leases;
  if (!is_open()) return leases;
  for (size_t place = 0; place < size(); ++place) {
    if (ModelLease held = look_at(place)) leases.push_back(std::move(held));
  }
  return leases;
}

// --- What is asked for ---------------------------------------------------------------------------

// Why a model that is not loaded is not to be loaded now. REQUIRES: the mutex
Status ModelPool::refusal(const Entry& entry, Why why) const {
  if (no_loads_) return shutting_down();
  if (why == Why::kOrder) return ok_status();
  const std::string& name = entry.spec.names.front();
  const ModelState state = entry.status.state;
  if (state == ModelState::kFailed &&
      clock_.now_seconds() < entry.failed_at + options_.failed_seconds) {
    return entry.status.error;
  }
  const bool asleep = state == ModelState::kUnloaded || state == ModelState::kFailed;
  if (!asleep || options_.loads_on_request) return ok_status();
  return invalid_argument(fmt::format("model {} is not loaded, and requests do not load it here "
                                      "(--no-models-autoload): POST /models/load does",
                                      name),
                          "model");
}

ModelPool::Ticket ModelPool::acquire(size_t place, Why why, Told told) {
  Entry& entry = *entries_[place];
  std::unique_lock lock(mutex_);
  if (entry.status.state == ModelState::kReady && !entry.leaves_to) {
    ModelLease held = make_lease(entry, Use::kRequest);
    lock.unlock();
    told(std::move(held));
    return 0;
  }
  Status refused = refusal(entry, why);
  if (!refused.ok()) {
    lock.unlock();
    told(std::move(refused));
    return 0;
  }
  entry.waiters.push_back({++last_ticket_, std::move(told)});
  if (entry.wanted == 0 && entry.status.state != ModelState::kLoading) {
    entry.wanted = ++last_wanted_;
  }
  wake_.notify_one();
  return last_ticket_;
}

void ModelPool::give_up(Ticket ticket) {
  Told dropped;  // destroyed without the mutex
  const std::lock_guard lock(mutex_);
  for (const auto& entry : entries_) {
    auto& waiters = entry->waiters;
    const auto at = std::find_if(waiters.begin(), waiters.end(),
                                 [&](const Waiter& waiter) { return waiter.ticket == ticket; });
    if (at == waiters.end()) continue;
    dropped = std::move(at->told);
    waiters.erase(at);
    if (waiters.empty()) entry->wanted = 0;
    return;
  }
}

void ModelPool::unload(size_t place, ModelState to, Done done) {
  Entry& entry = *entries_[place];
  std::unique_lock lock(mutex_);
  const ModelState state = entry.status.state;
  const bool in_memory = state == ModelState::kLoading || state == ModelState::kReady ||
                         state == ModelState::kUnloading;
  Status status;
  if (!entry.spec.load) {
    status = invalid_argument(fmt::format("model {} stays in memory for as long as the server runs",
                                          entry.spec.names.front()),
                              "model");
  } else if (in_memory) {
    entry.leaves_to = to;
    entry.leavers.push_back(std::move(done));
    wake_.notify_one();
    return;
  } else {
    entry.status.state = to;
  }
  lock.unlock();
  done(std::move(status));
}

void ModelPool::keep_alive(size_t place, double seconds) {
  const std::lock_guard lock(mutex_);
  entries_[place]->idle_seconds = seconds;
  wake_.notify_one();
}

ModelStatus ModelPool::status(size_t place) const {
  const Entry& entry = *entries_[place];
  const std::lock_guard lock(mutex_);
  ModelStatus status = entry.status;
  status.names = entry.spec.names;
  status.requests = entry.users;
  if (status.state == ModelState::kReady && entry.spec.load) {
    const double unused = entry.users > 0 ? 0 : clock_.now_seconds() - entry.last_use;
    status.idle_in_seconds = std::max(0.0, entry.idle_seconds - unused);
  }
  return status;
}

bool ModelPool::is_loading() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const auto& entry) { return entry->status.state == ModelState::kLoading; });
}

void ModelPool::stop_loads() {
  News news;
  {
    const std::lock_guard lock(mutex_);
    no_loads_ = true;
    for (const auto& entry : entries_) {
      entry->wanted = 0;
      for (Waiter& waiter : std::exchange(entry->waiters, {})) {
        news.push_back([told = std::move(waiter.told)] { told(shutting_down()); });
      }
    }
  }
  tell_all(news);
}

void ModelPool::close() {
  stop_loads();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  closed_.store(true, std::memory_order_release);
  for (const auto& entry : entries_) {
    if (!entry->owner) continue;  // its pointers are somebody else's
    entry->status.state = ModelState::kUnloaded;
    entry->ready.reset();
    entry->owner.reset();
  }
}

// --- The pool's thread ---------------------------------------------------------------------------

void ModelPool::run() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    News news;
    const double now = clock_.now_seconds();
    const std::optional<Job> job = next_job(now, news);
    if (!job && news.empty()) {
      const double seconds = std::min(next_deadline() - now, 3600.0);
      wake_.wait_for(lock, std::chrono::duration<double>(std::max(0.001, seconds)));
      continue;
    }
    if (job) {
      job->entry->status.state = job->unload_to ? ModelState::kUnloading : ModelState::kLoading;
    }
    lock.unlock();
    tell_all(news);
    if (job && job->unload_to) unload_now(*job->entry, *job->unload_to);
    if (job && !job->unload_to) load(*job->entry);
    lock.lock();
  }
}

// Who is to go goes first; then the longest wanted is loaded, or another makes room for it.
std::optional<ModelPool::Job> ModelPool::next_job(double now, News& news) {
  for (const auto& entry : entries_) {
    if (entry->status.state != ModelState::kReady || entry->users > 0 || !entry->spec.load) {
      continue;
    }
    if (entry->leaves_to) return Job{entry.get(), *entry->leaves_to};
    if (now >= entry->last_use + entry->idle_seconds) {
      return Job{entry.get(), ModelState::kSleeping};
    }
  }
  Entry* next = nullptr;
  for (const auto& entry : entries_) {
    if (entry->wanted == 0 || entry->status.state == ModelState::kReady) continue;
    if (!next || entry->wanted < next->wanted) next = entry.get();
  }
  if (!next) return std::nullopt;
  return has_room(*next) ? Job{next, std::nullopt} : make_room(*next, news);
}

// One goes at a time: perhaps that is enough.
std::optional<ModelPool::Job> ModelPool::make_room(Entry& wanted, News& news) {
  const auto leaves = [](const auto& entry) {
    return entry->status.state == ModelState::kReady && entry->leaves_to;
  };
  Entry* const victim = longest_unused(wanted);
  if (victim && victim->users == 0) return Job{victim, ModelState::kUnloaded};
  if (std::any_of(entries_.begin(), entries_.end(), leaves)) return std::nullopt;
  if (!victim) {
    fail(wanted,
         exhausted(fmt::format("it does not fit into the memory for models, {} bytes "
                               "(--models-memory, --models-max)",
                               options_.memory_bytes_max)),
         news);
    return std::nullopt;
  }
  victim->leaves_to = ModelState::kUnloaded;
  return std::nullopt;
}

ModelPool::Entry* ModelPool::longest_unused(const Entry& other_than) {
  Entry* longest = nullptr;
  const auto before = [](const Entry& a, const Entry& b) {
    return std::pair(a.users > 0, a.last_use) < std::pair(b.users > 0, b.last_use);
  };
  for (const auto& entry : entries_) {
    if (entry.get() == &other_than || entry->status.state != ModelState::kReady ||
        !entry->spec.load || entry->leaves_to) {
      continue;
    }
    if (!longest || before(*entry, *longest)) longest = entry.get();
  }
  return longest;
}

int32_t ModelPool::loaded_beside(const Entry& entry) const {
  return static_cast<int32_t>(
      std::count_if(entries_.begin(), entries_.end(), [&](const auto& other) {
        return other.get() != &entry && other->status.state == ModelState::kReady;
      }));
}

// Alone a model may take what it takes, as far as its file is within the bound.
bool ModelPool::has_room(const Entry& entry) const {
  const int32_t others = loaded_beside(entry);
  if (options_.loaded_max > 0 && others >= options_.loaded_max) return false;
  if (others > entry.fits_beside) return false;
  if (options_.memory_bytes_max == 0) return true;
  int64_t bytes = others == 0 ? entry.spec.facts.file_bytes : entry.bytes;
  for (const auto& other : entries_) {
    const bool loaded = other->status.state == ModelState::kReady;
    if (loaded && other.get() != &entry) bytes += other->bytes;
  }
  return bytes <= options_.memory_bytes_max;
}

double ModelPool::next_deadline() const {
  double deadline = kNeverIdle;
  for (const auto& entry : entries_) {
    if (entry->status.state != ModelState::kReady || entry->users > 0 || !entry->spec.load) {
      continue;
    }
    deadline = std::min(deadline, entry->last_use + entry->idle_seconds);
  }
  return deadline;
}

void ModelPool::load(Entry& entry) {
  const std::string& name = entry.spec.names.front();
  log_info("model {}: loading", name);
  const double start = clock_.now_seconds();
  std::unique_ptr<ReadyModel> ready;
  std::shared_ptr<void> owner;
  Status status;
  try {
    Result<ModelInstance> made = entry.spec.load();
    status = made.status();
    if (made.ok()) {
      owner = std::move(made->owner);
      made->served.names = entry.spec.names;
      made->served.other_names = entry.spec.other_names;
      auto derived = make_ready_model(std::move(made->served), pins_, entry.metrics);
      status = derived.status();
      if (derived.ok()) ready = std::move(*derived);
    }
  } catch (const std::exception& error) {  // no memory, threads, ...
    status = internal_error(error.what());
  }
  if (!ready) owner.reset();
  const double seconds = clock_.now_seconds() - start;
  if (ready) log_info("model {}: loaded in {:.2f} s", name, seconds);
  News news;
  {
    const std::lock_guard lock(mutex_);
    entry.status.load_seconds = seconds;
    const int32_t others = loaded_beside(entry);
    if (ready) {
      entry.owner = std::move(owner);
      settle(entry, std::move(ready), news);
    } else if (status.code() == StatusCode::kExhausted && others > 0) {
      entry.fits_beside = others - 1;  // without one of them there is more memory
      leave(entry, entry.leaves_to.value_or(ModelState::kUnloaded), news);
      entry.wanted = entry.waiters.empty() ? 0 : ++last_wanted_;
    } else {
      fail(entry, status, news);
    }
  }
  tell_all(news);
}

// The model is there: who waited for it has it. REQUIRES: the mutex, or before open().
void ModelPool::settle(Entry& entry, std::unique_ptr<ReadyModel> ready, News& news) {
  const ServedModel& served = ready->served;
  ModelStatus& status = entry.status;
  status.facts = served.facts;
  status.max_model_len = served.max_model_len;
  status.created_unix_s = served.created_unix_s;
  status.error = ok_status();
  status.state = ModelState::kReady;
  ++status.loads;
  if (served.facts.memory_bytes > 0) entry.bytes = served.facts.memory_bytes;
  longest_context_ = std::max(longest_context_.load(), served.max_model_len);
  entry.ready = std::move(ready);
  entry.last_use = clock_.now_seconds();
  entry.wanted = 0;
  for (Waiter& waiter : std::exchange(entry.waiters, {})) {
    // Who is told has the only copy: else this thread would be the last to use the model.
    news.push_back([told = std::move(waiter.told),
                    held = make_lease(entry, Use::kRequest)]() mutable { told(std::move(held)); });
  }
}

// REQUIRES: the mutex
void ModelPool::fail(Entry& entry, Status why, News& news) {
  const std::string& name = entry.spec.names.front();
  log_error("model {}: {}", name, why.message());
  const Status told_status = internal_error(
      fmt::format("model {} failed to load: {}", name, without_paths(why.message(), entry.spec)));
  leave(entry, ModelState::kFailed, news);
  entry.status.error = told_status;
  entry.failed_at = clock_.now_seconds();
  entry.wanted = 0;
  for (Waiter& waiter : std::exchange(entry.waiters, {})) {
    news.push_back([told = std::move(waiter.told), told_status] { told(told_status); });
  }
}

// The model is not in memory: who wanted that is told. REQUIRES: the mutex
void ModelPool::leave(Entry& entry, ModelState to, News& news) {
  entry.status.state = to;
  entry.leaves_to.reset();
  for (Done& done : std::exchange(entry.leavers, {})) {
    news.push_back([done = std::move(done)] { done(ok_status()); });
  }
}

void ModelPool::unload_now(Entry& entry, ModelState to) {
  const auto start = clock_.now_seconds();
  // Nobody else reads them in this state.
  entry.metrics->on_unloaded(entry.ready->stats());
  entry.ready.reset();
  entry.owner.reset();
  log_info("model {}: {}, in {:.2f} s", entry.spec.names.front(), model_state_name(to),
           clock_.now_seconds() - start);
  News news;
  {
    const std::lock_guard lock(mutex_);
    leave(entry, to, news);
    entry.idle_seconds =
        entry.spec.idle_seconds > 0 ? entry.spec.idle_seconds : options_.idle_seconds;
  }
  tell_all(news);
}

}  // namespace headrace
