// One client's request on its way: to a worker, to another when that fails, and the answer back.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "route/answer_relay.h"
#include "route/request_attempts.h"
#include "route/request_facts.h"
#include "route/route_context.h"
#include "route/stream_journal.h"
#include "route/worker_attempt.h"
#include "server/exchange.h"
#include "server/key_quota.h"

namespace headrace {

// All on the exchange's strand. The exchange and what waits keep it alive.
class ProxiedRequest final : public ExchangeObserver,
                             public std::enable_shared_from_this<ProxiedRequest> {
 public:
  // `quota`: what the request takes of its key's, until it ends; nullptr: nothing is counted.
  ProxiedRequest(RouteContext& context, HttpRequest request, std::shared_ptr<Exchange> exchange,
                 std::unique_ptr<KeyQuota::Lease> quota = nullptr);

  void start();

  void on_peer_gone() override;
  void on_writable() override;

 private:
  void choose_model();
  void send_somewhere();
  void send_to(WorkerLease lease);
  void wait_for_worker();
  std::string head_for(const HttpTarget& target, size_t body_bytes) const;

  void on_bytes();
  void on_whole_answer();
  void on_stream_bytes();
  bool is_whole(const WorkerAnswer& answer) const;
  void note_bytes(std::string_view bytes);
  void end_well();

  void on_failed(AttemptFailure failure, const std::string& why);
  void step(NextStep next);
  void give_up();
  void look_at_silence();
  RequestAttempts::Answer answer_so_far() const;
  void remember_owner(std::string_view body);
  void spend(int64_t tokens);

  RouteContext& context_;
  const std::shared_ptr<Exchange> exchange_;
  std::unique_ptr<KeyQuota::Lease> quota_;  // until the answer's last bytes, or event, are written
  HttpRequest request_;
  RequestFacts facts_;
  std::shared_ptr<const std::string> body_;
  RequestAttempts attempts_;
  AnswerRelay relay_;
  StreamFraming framing_ = StreamFraming::kEvents;
  std::optional<StreamJournal> journal_;  // once an answer came as a stream
  std::shared_ptr<WorkerAttempt> attempt_;
  bool resuming_ = false;   // the attempt was sent the journal
  bool streaming_ = false;  // its answer passes as it comes
  bool paused_ = false;     // the client takes its time
  bool over_ = false;
  std::string failure_;  // of the last worker, for the client
  std::optional<HttpResponse> refusal_;
  double began_ = 0, failed_at_ = 0;
  double sent_at_ = 0, tokens_ahead_ = 0;  // of the attempt
};

}  // namespace headrace
