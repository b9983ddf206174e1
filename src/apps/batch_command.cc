#include "apps/batch_command.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "apps/served_models.h"
#include "apps/signal_watch.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/pooling_flags.h"
#include "server/batch_job.h"
#include "terminal/progress.h"

namespace headrace {
namespace {

constexpr const char* kBatchFooter = R"(Examples:
  headrace batch requests.jsonl -o answers.jsonl -m model.gguf
  headrace batch texts.jsonl -o vectors.jsonl -m sentence-transformers/all-MiniLM-L6-v2

A request is a line {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": ...}
as for OpenAI's batch API; of a model of vectors the url is /v1/embeddings. Answers are appended as
they are done; the same command again goes on where a stopped or killed one was.)";

struct BatchFlags {
  ModelFlags model;
  std::string input, output;
};

// Of what is left of the file, so that the rate is that of this run.
Result<BatchProgress> run_with_progress(ServerState& state, const BatchRequests& requests,
                                        BatchJournal& journal, const BatchOptions& batch,
                                        std::atomic<bool>& stop) {
  std::atomic<double> answered{0};
  const ProgressWatch progress("batch", "requests",
                               static_cast<double>(requests.size() - journal.done_count()),
                               [&answered] { return answered.load(); });
  return run_batch(state, requests, journal, batch, stop, [&answered](const BatchProgress& now) {
    answered = static_cast<double>(now.answered);
  });
}

// Ends what is still made and written of vectors, whichever way a job ends: both use the state.
class VectorsEnd {
 public:
  VectorsEnd(ServerState& state, EmbeddingEngine* embedder) : state_(state), embedder_(embedder) {}
  VectorsEnd(const VectorsEnd&) = delete;
  ~VectorsEnd() {
    if (embedder_ != nullptr) embedder_->cancel_all();
    state_.text_pool.stop();
  }

 private:
  ServerState& state_;
  EmbeddingEngine* const embedder_;
};

Result<int> run(BatchFlags& flags) {
  SignalWatch signals;
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  const RequestLimits limits;
  HR_ASSIGN_OR_RETURN(const BatchRequests requests,
                      BatchRequests::open(flags.input, {.json = limits.json}));
  HR_ASSIGN_OR_RETURN(BatchJournal journal, BatchJournal::open(flags.output, requests));
  StackOptions& options = flags.model.stack;
  // The longest declared answers are sent first in any case. But max_tokens is a bound: how long
  // answers get, on which the shape of steps would depend, is not known.
  options.batch.job.requests = static_cast<int64_t>(requests.size() - journal.done_count());
  SchedulerOptions& scheduler = options.engine.scheduler;
  scheduler.max_queued_requests = std::max(scheduler.max_queued_requests, kJobSequencesMax);
  const ServedModelOptions served_as{.stack = options};
  HR_ASSIGN_OR_RETURN(const LoadedStack stack,
                      load_served_stack(served_as, LoadReport::kProgressLine));
  HR_ASSIGN_OR_RETURN(ApiKeys no_keys, ApiKeys::create({}));
  ServerState state(limits, std::move(no_keys), {});
  state.text_pool.start(1);  // which writes vectors
  const StackInfo& info = stack.info();
  ServedModel served = served_model_of(stack, served_as);
  served.names = {info.model_name, info.model_path};
  HR_RETURN_IF_ERROR(state.set_model(std::move(served)));
  const VectorsEnd end(state, stack.embedder ? &stack.embedder->engine() : nullptr);
  const Status able = check_batch_urls(*state.model(), requests);
  if (!able.ok()) return able.with_context(flags.input);
  fmt::print(stderr, "{}: {}\n", info.model_name,
             stack.embedder ? stack.embedder->facts().gives : info.batch_shape);
  std::atomic<bool> stop{false};
  signals.set_handler([&](int) {
    if (stop.exchange(true)) _exit(kInterruptedExitCode);
  });
  const BatchOptions batch{.in_flight_max = batch_in_flight(*state.model())};
  HR_ASSIGN_OR_RETURN(const BatchProgress progress,
                      run_with_progress(state, requests, journal, batch, stop));
  signals.set_handler(nullptr);
  fmt::print(stderr, "{} requests: {} answered before, {} now, {} of them refused\n",
             progress.requests, progress.done_before, progress.answered, progress.refused);
  return stop ? kInterruptedExitCode : 0;
}

}  // namespace

SubcommandRun define_batch(CLI::App& app) {
  auto flags = std::make_shared<BatchFlags>();
  app.add_option("INPUT,-i,--input-file", flags->input, "The requests, JSON lines")
      ->required()
      ->type_name("FILE")
      ->group("Batch");
  app.add_option("-o,--output-file", flags->output, "Where answers are appended")
      ->required()
      ->type_name("FILE")
      ->group("Batch");
  add_pooling_flags(app, flags->model.stack.pooling);
  add_model_flags(app, flags->model);
  add_generation_config_flags(app, flags->model);
  add_engine_flags(app, flags->model);
  app.footer(kBatchFooter);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
