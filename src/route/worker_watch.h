// Keeps the table true: asks each worker how it is, what it computes and which models it serves,
// and looks up names whose addresses are workers.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "route/membership.h"
#include "route/worker_ask.h"
#include "route/worker_table.h"

namespace headrace {

// A name whose addresses are workers, all on one port.
struct WorkerName {
  std::string host, port;
};

struct WorkerWatchOptions {
  double poll_seconds = 1;       // between two polls of a worker that is up
  double progress_seconds = 10;  // a poll that is not answered by then: the worker is down
  double resolve_seconds = 5;    // between two look-ups of names and of etcd
  std::vector<WorkerName> names;
  std::vector<EtcdAddress> etcds;
  std::vector<HttpHeader> headers;  // of what workers are asked: a key, the router's id
};

class WorkerWatch {
 public:
  // All must outlive this and what `io` runs.
  WorkerWatch(boost::asio::io_context& io, WorkerTable& table, const Clock& clock,
              WorkerWatchOptions options);

  void start();

 private:
  struct Polled {
    bool busy = false;     // an answer is awaited
    double next = 0;       // when to ask again
    double models_at = 0;  // when to ask for its models again
    std::string told;      // what the log says of it
  };

  void tick();
  void poll(const WorkerSnapshot& worker, double now);
  void on_health(const WorkerSnapshot& worker, const WorkerReply& reply);
  void on_metrics(const WorkerSnapshot& worker, WorkerReport::Health health,
                  const WorkerReply& reply);
  void on_models(const WorkerSnapshot& worker, const WorkerReply& reply);
  void finish(const WorkerSnapshot& worker, const WorkerReport& report);
  void tell(const WorkerSnapshot& worker, const std::string& what);
  void ask(const WorkerSnapshot& worker, std::string path,
           std::function<void(const WorkerReply&)> then);
  void resolve(const WorkerName& name);
  void list(const EtcdAddress& etcd);
  void on_listed(const EtcdAddress& etcd, const WorkerReply& reply);
  // The members that a source names: those of before stay where it does not answer.
  Membership& members_of(const std::string& source);
  void tell_source(const std::string& source, const std::string& what);

  boost::asio::io_context& io_;
  WorkerTable& table_;
  const Clock& clock_;
  const WorkerWatchOptions options_;
  boost::asio::strand<boost::asio::io_context::executor_type> strand_;  // of all below
  boost::asio::steady_timer timer_;
  boost::asio::ip::tcp::resolver resolver_;
  std::map<int, Polled> polled_;
  double resolve_at_ = 0;
  std::map<std::string, Membership> members_;  // by source
  std::map<std::string, std::string> told_;    // what the log says of it
  std::set<std::string> listing_;              // etcds whose answers are awaited
};

// What a worker's Prometheus page says of its load and its cache.
void read_worker_metrics(std::string_view page, WorkerReport& report);
// The models of an answer of /v1/models.
std::vector<ServedModelName> read_worker_models(std::string_view body);

}  // namespace headrace
