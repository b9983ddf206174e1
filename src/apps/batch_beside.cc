#include "apps/batch_beside.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace headrace {

Result<std::unique_ptr<BatchBeside>> BatchBeside::open(const BatchBesideOptions& options) {
  HR_ASSIGN_OR_RETURN(BatchRequests requests,
                      BatchRequests::open(options.input, {.json = options.json}));
  HR_ASSIGN_OR_RETURN(BatchJournal journal, BatchJournal::open(options.output, requests));
  return std::make_unique<BatchBeside>(options, std::move(requests), std::move(journal));
}

BatchBeside::BatchBeside(const BatchBesideOptions& options, BatchRequests requests,
                         BatchJournal journal)
    : input_(options.input), requests_(std::move(requests)), journal_(std::move(journal)) {
  if (options.has_keys) options_.caller.key = 0;
}

void BatchBeside::start(ServerState& state) {
  options_.in_flight_max = batch_in_flight(*state.model());
  thread_ = std::thread([this, &state] { run(state); });
}

void BatchBeside::stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void BatchBeside::run(ServerState& state) {
  try {
    run_requests(state);
  } catch (const std::exception& error) {
    log_error("{}: put off to the next start: {}", input_, error.what());
  }
}

void BatchBeside::run_requests(ServerState& state) {
  const Status able = check_batch_urls(*state.model(), requests_);
  if (!able.ok()) return log_error("{}: {}", input_, able.message());
  const auto progress = run_batch(state, requests_, journal_, options_, stop_, [](const auto&) {});
  if (!progress.ok()) return log_error("{}: {}", input_, progress.status().message());
  log_info("{}: {} requests: {} answered before, {} now, {} of them refused", input_,
           progress->requests, progress->done_before, progress->answered, progress->refused);
}

}  // namespace headrace
