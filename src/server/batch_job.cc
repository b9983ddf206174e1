#include "server/batch_job.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "server/error_response.h"
#include "server/exchange.h"

namespace headrace {
namespace {

constexpr auto kRetryAfter = std::chrono::milliseconds(50);
constexpr auto kLookAtStop = std::chrono::milliseconds(50);
// What a power cut can cost; the line itself outlives this process at once.
constexpr auto kSyncEvery = std::chrono::seconds(1);

// The strand of all exchanges of a job: tasks from any thread, run on the job's.
class TaskQueue {
 public:
  void post(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }
  // Drops what waits and what comes later. A task holds its exchange, which holds the queue.
  void close() {
    std::deque<std::function<void()>> dropped;
    std::lock_guard lock(mutex_);
    closed_ = true;
    tasks_.swap(dropped);
  }

  // Runs what is there, after waiting for something for a while.
  void run_some(std::chrono::milliseconds wait_max) {
    std::deque<std::function<void()>> tasks;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, wait_max, [&] { return !tasks_.empty(); });
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) task();
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool closed_ = false;
};

// Keeps the one answer of a request. Batches have no streams and no impatient peer.
class BatchExchange final : public Exchange, public std::enable_shared_from_this<BatchExchange> {
 public:
  BatchExchange(std::shared_ptr<TaskQueue> tasks, size_t request)
      : tasks_(std::move(tasks)), request_(request) {}

  size_t request() const { return request_; }
  const std::optional<HttpResponse>& response() const { return response_; }
  void give_up() {
    given_up_ = true;
    if (const auto observer = std::exchange(observer_, nullptr)) observer->on_peer_gone();
  }

  // Any thread: vectors are written by those for text. The observer may be in the middle of its own
  // call.
  void respond(HttpResponse response) override {
    tasks_->post(
        [self = shared_from_this(), first = std::make_shared<HttpResponse>(std::move(response))] {
          self->observer_ = nullptr;
          if (!self->response_) self->response_ = std::move(*first);
        });
  }
  void begin_stream(HttpResponse) override { CHECK_MSG(false, "a batch request asked to stream"); }
  void write(std::string_view) override { CHECK_MSG(false, "a batch request streams"); }
  void end_stream(std::string_view) override { CHECK_MSG(false, "a batch request streams"); }
  bool over_unsent_limit() const override { return false; }
  void observe(std::shared_ptr<ExchangeObserver> observer) override {
    if (!given_up_) observer_ = std::move(observer);  // else nobody keeps it
  }
  void post(std::function<void()> task) override {
    tasks_->post([self = shared_from_this(), task = std::move(task)] { self->run(task); });
  }
  // Only time-outs of the queue ask for this: a batch waits as long as it takes.
  void call_after(double, std::function<void()>) override {}

 private:
  // What a request's own task throws is that request's answer.
  void run(const std::function<void()>& task) {
    try {
      task();
    } catch (const std::exception& error) {
      log_error("a batch's request threw; answered 500: {}", error.what());
      give_up();
      if (!response_) respond(error_response(500, "internal error"));
    }
  }

  const std::shared_ptr<TaskQueue> tasks_;
  const size_t request_;
  bool given_up_ = false;
  std::optional<HttpResponse> response_;
  std::shared_ptr<ExchangeObserver> observer_;
};

constexpr int kFaultsMax = 5;  // of a request: eight seconds in all
constexpr auto kFaultPause = std::chrono::milliseconds(250);

bool is_not_now(int http_status) { return http_status == 429 || http_status == 503; }

class BatchRun {
 public:
  BatchRun(ServerState& state, const BatchRequests& requests, BatchJournal& journal,
           const BatchOptions& options, const std::function<void(const BatchProgress&)>& report)
      : state_(state),
        requests_(requests),
        journal_(journal),
        options_(options),
        caller_(options.caller),
        report_(report) {
    caller_.job = true;
    progress_.requests = requests.size();
    progress_.done_before = journal.done_count();
    for (size_t i = 0; i < requests.size(); ++i) {
      if (!journal.is_done(i)) wait(i);
    }
  }

  // What still runs, if anything: a sequence of the engine must not outlive its job, also not one
  // that an exception ends. (Exchange and answer hold each other.)
  ~BatchRun() {
    try {
      const Status given_up = give_up();
      if (!given_up.ok()) log_error("a batch's last answers: {}", given_up.message());
    } catch (const std::exception& error) {
      log_error("a batch's requests were not all cancelled: {}", error.what());
    }
  }

  Result<BatchProgress> run(const std::atomic<bool>& stop) {
    HR_RETURN_IF_ERROR(run_until(stop));
    HR_RETURN_IF_ERROR(give_up());  // before its journal is told to be whole
    HR_RETURN_IF_ERROR(journal_.sync());
    return progress_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Status run_until(const std::atomic<bool>& stop) {
    auto synced = Clock::now();
    while (!stop && !(waiting_.empty() && running_.empty())) {
      if (!state_.model()->healthy()) {
        return unavailable("the engine has failed: run the same command again");
      }
      send();
      tasks_->run_some(kLookAtStop);
      HR_RETURN_IF_ERROR(collect());
      if (Clock::now() - synced > kSyncEvery) {
        HR_RETURN_IF_ERROR(journal_.sync());
        synced = Clock::now();
      }
    }
    return ok_status();
  }

  void wait(size_t request) { waiting_.emplace(-requests_[request].declared_tokens, request); }

  void send() {
    if (Clock::now() < not_before_) return;
    while (!waiting_.empty() && running_.size() < options_.in_flight_max) {
      const size_t request = waiting_.begin()->second;
      waiting_.erase(waiting_.begin());
      running_.push_back(std::make_shared<BatchExchange>(tasks_, request));
      route_request_of(state_, caller_, http_request(requests_[request]), running_.back());
    }
  }

  HttpRequest http_request(const BatchRequest& request) const {
    // BatchRequests checked all of this.
    const Json line = *parse_json(request.line, state_.json_limits());
    Json body = *line.find("body");
    HttpRequest request_to_route;
    request_to_route.method = "POST";
    request_to_route.path = request.url;
    const auto set_unless_said = [&](std::string_view name, const Json& value) {
      if (body.find(name) == nullptr) body.set(std::string(name), value);
    };
    if (request_to_route.path != kEmbeddingsUrl) set_unless_said("service_tier", "flex");
    // They would push out those that somebody goes on with.
    if (request_to_route.path == kResponsesUrl) set_unless_said("store", false);
    request_to_route.body = write_json(body);
    return request_to_route;
  }

  // Writes the answers that have come, in the order in which their requests were sent.
  Status collect() {
    std::vector<std::shared_ptr<BatchExchange>> still_running;
    for (const auto& exchange : running_) {
      if (!exchange->response()) {
        still_running.push_back(exchange);
        continue;
      }
      HR_RETURN_IF_ERROR(take(*exchange));
    }
    running_ = std::move(still_running);
    return ok_status();
  }

  Status take(const BatchExchange& exchange) {
    const HttpResponse& response = *exchange.response();
    if (is_not_now(response.status)) return put_off(exchange.request(), kRetryAfter);
    // It may be the machine's fault and not the request's: for a live one a router asks another.
    if (response.status == 500 && faults_[exchange.request()] < kFaultsMax) {
      return put_off(exchange.request(), kFaultPause * (1 << faults_[exchange.request()]++));
    }
    HR_RETURN_IF_ERROR(journal_.append(exchange.request(), requests_[exchange.request()],
                                       response.status, response.body));
    ++progress_.answered;
    if (response.status >= 400) ++progress_.refused;
    report_(progress_);
    return ok_status();
  }

  Status put_off(size_t request, Clock::duration pause) {
    wait(request);
    not_before_ = std::max(not_before_, Clock::now() + pause);
    return ok_status();
  }

  // Answers that have come are kept: nobody computes them again.
  Status give_up() {
    tasks_->run_some(std::chrono::milliseconds(0));
    const Status kept = collect();
    for (const auto& exchange : running_) exchange->give_up();
    tasks_->run_some(std::chrono::milliseconds(0));
    tasks_->close();
    running_.clear();
    return kept;
  }

  ServerState& state_;
  const BatchRequests& requests_;
  BatchJournal& journal_;
  const BatchOptions& options_;
  Caller caller_;
  const std::function<void(const BatchProgress&)>& report_;
  const std::shared_ptr<TaskQueue> tasks_ = std::make_shared<TaskQueue>();
  // The longest declared answers first, which end last: so the job ends sooner. Equals in the order
  // of the file.
  std::set<std::pair<int64_t, size_t>> waiting_;
  std::vector<std::shared_ptr<BatchExchange>> running_;
  std::map<size_t, int> faults_;  // answers of 500, by request
  Clock::time_point not_before_ = Clock::time_point::min();
  BatchProgress progress_;
};

}  // namespace

size_t batch_in_flight(const ReadyModel& model) {
  constexpr size_t kOfVectors = 64;
  if (!model.generates()) return kOfVectors;
  return 2 * static_cast<size_t>(model.served.engine->options().scheduler.max_num_seqs);
}

Status check_batch_url(const ReadyModel& model, std::string_view url) {
  if (model.generates() != (url == kEmbeddingsUrl)) return ok_status();
  return invalid_argument(fmt::format("{}: the model makes {}", url,
                                      model.generates()
                                          ? "texts, no vectors (with --embedding it does)"
                                          : "vectors or scores, no texts"));
}

Status check_batch_urls(const ReadyModel& model, const BatchRequests& requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const Status status = check_batch_url(model, requests[i].url);
    if (!status.ok())
      return status.with_context(fmt::format("custom_id {}", requests[i].custom_id));
  }
  return ok_status();
}

Result<BatchProgress> run_batch(ServerState& state, const BatchRequests& requests,
                                BatchJournal& journal, const BatchOptions& options,
                                const std::atomic<bool>& stop,
                                const std::function<void(const BatchProgress&)>& report) {
  return BatchRun(state, requests, journal, options, report).run(stop);
}

}  // namespace headrace
