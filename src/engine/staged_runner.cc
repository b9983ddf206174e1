#include "engine/staged_runner.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/sampler.h"
#include "engine/slot_table.h"
#include "engine/verification.h"
#include "tensor/cpu_features.h"

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;

// A step on its way through the stages.
struct StagedStep {
  Ticket ticket;
  const StepPlan* plan = nullptr;
  TensorView hidden;  // [most tokens, D]
  Status status;      // of pages that could not be mapped: later stages leave it alone
  StepResult result;  // of the last stage
  // Of all stages: what they took for it, and had nothing to do before it.
  double busy_seconds = 0, idle_seconds = 0;
};

// What one stage has. Used by its thread alone.
class Stage {
 public:
  Stage(const ModelRank& part, std::unique_ptr<RankCompute> compute,
        const ModelRunnerOptions& options)
      : layers_(*part.layers),
        is_last_(layers_.last == part.model->spec().layer_count),
        options_(options),
        compute_(std::move(compute)),
        slots_(options.max_num_seqs, static_cast<int32_t>(plan().groups.size()),
               pages_for(options.max_model_len, plan().block_tokens),
               is_last_ ? SlotTable::Counting::kPenalties : SlotTable::Counting::kNone),
        builder_(plan(), {0, part.model->spec().layer_count}, options.keep_logit_rows),
        sampler_(options.end_ids) {}

  // Every stage is told of every plan: its pages and slots follow.
  void compute(StagedStep& step) {
    const Clock::time_point begin = Clock::now();
    if (last_end_) step.idle_seconds += std::chrono::duration<double>(begin - *last_end_).count();
    step.status = step.status.ok() ? take(step) : step.status;
    last_end_ = Clock::now();
    step.busy_seconds += std::chrono::duration<double>(*last_end_ - begin).count();
  }

  // What the last stage drew in the step whose rows are the oldest here.
  void accept(const StepResult& result) {
    append_accepted(rows_in_flight_.front(), result, slots_);
    rows_in_flight_.pop_front();
  }
  void forget_requests() { slots_.clear(); }

  RankCompute& rank() { return *compute_; }

 private:
  const KvPlan& plan() const { return compute_->storage().plan(); }

  Status take(StagedStep& step) {
    HR_ASSIGN_OR_RETURN(const StepPlan* const mapped, compute_->take_pages(*step.plan));
    slots_.update(*mapped);
    const ForwardBatch batch = builder_.build(*step.plan, slots_);
    const std::span<const LogitRow> rows = builder_.logit_rows();
    if (!is_last_) rows_in_flight_.emplace_back(rows.begin(), rows.end());
    if (step.plan->work.empty()) return ok_status();
    compute_->forward(*step.plan, batch, LayerTaps(options_.taps),
                      ModelPass::Part{layers_, step.hidden.row_range(0, std::ssize(batch.tokens))});
    if (is_last_) sample(rows, step.result);
    compute_->end_step();
    return ok_status();
  }

  void sample(std::span<const LogitRow> rows, StepResult& result) {
    for (size_t first = 0; first < rows.size();) {
      const size_t count = std::min<size_t>(kLogitRowsMax, rows.size() - first);
      const Workspace::Mark mark(compute_->workspace());
      const TensorView logits = compute_->logits(rows.subspan(first, count));
      OpContext op = compute_->context();
      sampler_.run(op, rows.subspan(first, count), logits, slots_, result);
      first += count;
    }
    CHECK(cut_rejected(rows, acceptance_, result).empty());
    append_accepted(rows, result, slots_);
    note_ended_forms(rows, options_.end_ids, slots_, result);
  }

  const LayerRange layers_;
  const bool is_last_;
  const ModelRunnerOptions& options_;
  const std::unique_ptr<RankCompute> compute_;
  SlotTable slots_;
  BatchBuilder builder_;
  Sampler sampler_;
  AcceptanceRule acceptance_{-1};  // nothing is proposed
  std::deque<std::vector<LogitRow>> rows_in_flight_;
  std::optional<Clock::time_point> last_end_;  // of the step before
};

// A stage's thread, which does one thing after the other.
class StageThread {
 public:
  explicit StageThread(Device& device) : thread_([this, &device] { serve(device); }) {}
  ~StageThread() {
    post({});
    thread_.join();
  }
  StageThread(const StageThread&) = delete;
  StageThread& operator=(const StageThread&) = delete;

  // Any thread. Nothing: it ends behind what was posted before.
  void post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_one();
  }

 private:
  void serve(Device& device) {
    flush_denormals_on_this_thread();
    device.pool().bind_caller();
    while (const std::function<void()> work = next()) work();
  }
  std::function<void()> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty(); });
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    return work;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // a step in flight, and its result, at most
  std::thread thread_;                       // last: it begins when all else is there
};

class StagedRunner final : public Runner {
 public:
  StagedRunner(std::span<const ModelRank> stages,
               std::vector<std::unique_ptr<RankCompute>> computes,
               std::unique_ptr<ThreadRanks> group, ModelRunnerOptions options)
      : options_(std::move(options)), group_(std::move(group)) {
    const Model& model = *stages.front().model;
    const Shape rows{options_.max_num_batched_tokens, model.spec().hidden_size};
    for (size_t s = 0; s < stages.size(); ++s) {
      stages_.push_back(std::make_unique<Stage>(stages[s], std::move(computes[s]), options_));
      hidden_.emplace_back(static_cast<size_t>(*rows.elements()));
      hidden_rows_.emplace_back(reinterpret_cast<std::byte*>(hidden_.back().data()), DType::kF32,
                                rows);
    }
    for (const ModelRank& stage : stages) {
      threads_.push_back(std::make_unique<StageThread>(*stage.device));
    }
  }

  Ticket submit_forward(const StepPlan& plan) override {
    CHECK(plan.token_count <= options_.max_num_batched_tokens);
    CHECK(++in_flight_ <= stages_.size());
    const Ticket ticket(++last_ticket_);
    auto step = std::make_shared<StagedStep>();
    step->ticket = ticket;
    step->plan = &plan;
    step->hidden = hidden_rows_[ticket.value % stages_.size()];
    send(0, std::move(step));
    return ticket;
  }
  // The last stage samples as soon as it has the rows.
  void submit_sample(Ticket) override {}

  Result<StepResult> wait(Ticket ticket) override {
    std::shared_ptr<StagedStep> step;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !done_.empty(); });
      step = std::move(done_.front());
      done_.pop_front();
    }
    CHECK(step->ticket == ticket);
    --in_flight_;
    const auto count = static_cast<double>(stages_.size());
    timing_ = {.device_seconds = step->busy_seconds / count,
               .gap_seconds = step->idle_seconds / count};
    if (status_.ok()) status_ = step->status;
    HR_RETURN_IF_ERROR(status_);
    for (size_t s = 0; s + 1 < stages_.size(); ++s) {
      threads_[s]->post([stage = stages_[s].get(), step] { stage->accept(step->result); });
    }
    return step->result;
  }

  // Means over the stages: the bubble is the share of the gaps.
  RunnerTiming timing() const override { return timing_; }
  bool takes_constraints() const override { return true; }
  bool takes_rare_samplers() const override { return true; }
  void forget_requests() override {
    for_each_stage([](Stage& stage) { stage.forget_requests(); });
  }

  // A page to others is the pages of all stages, one behind the other.
  int64_t page_bytes() const override {
    int64_t bytes = 0;
    for (const auto& stage : stages_) bytes += bytes_of_page(*stage);
    return bytes;
  }
  Status read_page(TierPage from, std::span<std::byte> to) override {
    return with_pages(to, [from](RankCompute& rank, std::span<std::byte> own) {
      return rank.storage().read_page(rank.stream(), from, own);
    });
  }
  Status write_page(std::span<const std::byte> from, BlockId to) override {
    return with_pages(from, [to](RankCompute& rank, std::span<const std::byte> own) {
      return rank.storage().write_page(rank.stream(), own, to);
    });
  }

 private:
  static int64_t bytes_of_page(Stage& stage) { return stage.rank().storage().plan().page_bytes; }

  void send(size_t s, std::shared_ptr<StagedStep> step) {
    threads_[s]->post([this, s, step = std::move(step)]() mutable {
      stages_[s]->compute(*step);
      if (s + 1 < stages_.size()) return send(s + 1, std::move(step));
      {
        const std::lock_guard lock(mutex_);
        done_.push_back(std::move(step));
      }
      changed_.notify_one();
    });
  }

  // One after the other, each on its thread. REQUIRES: no step is in flight
  template <class Work>
  void for_each_stage(const Work& work) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      std::promise<void> done;
      threads_[s]->post([&] {
        work(*stages_[s]);
        done.set_value();
      });
      done.get_future().wait();
    }
  }
  // work(rank, its part of `bytes`), each on its thread, which is the first touch of its memory.
  template <class Bytes, class Work>
  Status with_pages(Bytes bytes, const Work& work) {
    Status status;
    for_each_stage([&](Stage& stage) {
      const auto own = static_cast<size_t>(bytes_of_page(stage));
      if (status.ok()) status = work(stage.rank(), bytes.first(own));
      bytes = bytes.subspan(own);
    });
    return status;
  }

  const ModelRunnerOptions options_;
  const std::unique_ptr<ThreadRanks> group_;
  std::vector<std::unique_ptr<Stage>> stages_;
  std::vector<std::vector<float>> hidden_;  // [stages] of a step in flight each
  std::vector<TensorView> hidden_rows_;     // their views
  // Of the engine's thread.
  uint64_t last_ticket_ = 0;
  size_t in_flight_ = 0;
  RunnerTiming timing_;  // of the step that was waited for last
  Status status_;        // sticky
  // Steps that the last stage has ended.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<StagedStep>> done_;
  std::vector<std::unique_ptr<StageThread>> threads_;  // last: they end before what they use
};

}  // namespace

std::unique_ptr<Runner> create_staged_runner(std::span<const ModelRank> stages,
                                             std::vector<std::unique_ptr<RankCompute>> computes,
                                             std::unique_ptr<ThreadRanks> group,
                                             ModelRunnerOptions options) {
  return std::make_unique<StagedRunner>(stages, std::move(computes), std::move(group),
                                        std::move(options));
}

}  // namespace headrace
