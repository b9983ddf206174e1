#include "server/etcd_registration.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "base/log.h"
#include "server/http_client.h"
#include "server/lease_keeper.h"

namespace headrace {
namespace {

constexpr double kEtcdSeconds = 3;  // in which it answers

class EtcdRegistrationThread final : public EtcdRegistration {
 public:
  explicit EtcdRegistrationThread(EtcdRegistrationOptions options)
      : options_(std::move(options)),
        keeper_(static_cast<double>(options_.ttl_seconds)),
        thread_([this] { run(); }) {}

  ~EtcdRegistrationThread() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    while (wait(keeper_.wait_seconds())) {
      const Status status = ask();
      if (!status.ok()) keeper_.on_failed();
      tell(status);
    }
    if (keeper_.lease().empty()) return;
    (void)post(kEtcdRevoke, etcd_lease_body(keeper_.lease()));  // else it ends with its time
  }

  // False: it is over.
  bool wait(double seconds) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return stopping_; });
    return !stopping_;
  }

  Result<HttpReply> post(std::string_view path, const std::string& body) const {
    const HttpTarget& target = options_.etcd.target;
    const bool ip6 = target.host.find(':') != target.host.npos;
    HR_ASSIGN_OR_RETURN(
        const auto client,
        HttpClient::create({.url = fmt::format("http://{}{}{}:{}", ip6 ? "[" : "", target.host,
                                               ip6 ? "]" : "", target.port),
                            .api_key = {},
                            .ca_file = {},
                            .receive_seconds = kEtcdSeconds,
                            .answer_seconds = kEtcdSeconds}));
    return client->request(path, body);
  }

  Status ask() {
    switch (keeper_.ask()) {
      case LeaseKeeper::Ask::kGrant: {
        HR_ASSIGN_OR_RETURN(const HttpReply reply,
                            post(kEtcdGrant, etcd_grant_body(options_.ttl_seconds)));
        HR_ASSIGN_OR_RETURN(EtcdLease lease, read_etcd_lease(reply.body));
        keeper_.on_granted(std::move(lease.id));
        return ok_status();
      }
      case LeaseKeeper::Ask::kPut: {
        // A key of this lease's own: what a life before has sent, and comes late, ends with its
        // lease and takes nothing along.
        const std::string key =
            fmt::format("{}{}/{}", options_.etcd.prefix, options_.advertised, keeper_.lease());
        HR_ASSIGN_OR_RETURN(
            const HttpReply reply,
            post(kEtcdPut, etcd_put_body(key, "http://" + options_.advertised, keeper_.lease())));
        reply.status == 200 ? keeper_.on_put() : keeper_.on_expired();
        return ok_status();
      }
      case LeaseKeeper::Ask::kKeepAlive: {
        HR_ASSIGN_OR_RETURN(const HttpReply reply,
                            post(kEtcdKeepAlive, etcd_lease_body(keeper_.lease())));
        HR_ASSIGN_OR_RETURN(const EtcdLease lease, read_etcd_lease(reply.body));
        lease.ttl_seconds > 0 ? keeper_.on_kept() : keeper_.on_expired();
        return ok_status();
      }
    }
    return ok_status();
  }

  // Once for each change.
  void tell(const Status& status) {
    const std::string what = !status.ok() ? "no answer (" + status.message() +
                                                "): asked again; routers keep what they know"
                             : keeper_.entered() ? "entered as " + options_.advertised
                                                 : std::string();
    if (what.empty() || std::exchange(told_, what) == what) return;
    if (status.ok()) return log_info("{}: {}", options_.etcd.text(), what);
    log_warning("{}: {}", options_.etcd.text(), what);
  }

  const EtcdRegistrationOptions options_;
  LeaseKeeper keeper_;  // the thread's
  std::string told_;    // the same
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<EtcdRegistration> EtcdRegistration::start(EtcdRegistrationOptions options) {
  return std::make_unique<EtcdRegistrationThread>(std::move(options));
}

}  // namespace headrace
