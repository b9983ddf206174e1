// Drafter: what proposes the tokens of a step's work (Work::drafted): a model or a head of layers
// (model_drafter.h), or heads on the model (medusa_drafter.h). It samples with the parameters and
// the random number of each place, all sequences of a step together. Steps that are in flight
// together are settled in their order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/batch_builder.h"
#include "engine/draft_features.h"
#include "engine/draft_pass.h"
#include "engine/draft_tree.h"
#include "engine/kv_storage.h"
#include "engine/model_runner.h"
#include "engine/slot_table.h"

namespace headrace {

class Drafter {
 public:
  // On a CPU, of memory beside the draft's weights.
  static int64_t bytes(Device& device, const Model& model, const ModelRunnerOptions& options);
  // On a CPU. All outlive it; `model` is the one that it proposes for. REQUIRES:
  // options.has_draft(); the storage's plan is one of kept_spec()
  static Result<std::unique_ptr<Drafter>> create(Device& device, const Model& model,
                                                 const KvStorage& storage,
                                                 const ModelRunnerOptions& options);
  virtual ~Drafter() = default;

  // The plan's work, whose drafted tokens are proposed ones, as many as there are; valid until the
  // next call. REQUIRES: slots.update(plan) was called, and the plan's pages are copied
  const StepPlan& propose(const StepPlan& plan, const SlotTable& slots);
  // Null: it reads no hidden rows of the model.
  virtual const DraftFeatures* features() const = 0;
  // The model's pass over that work has left rows at the taps, of tokens that lie there.
  void keep_features(const TokenPlaces& places) {
    if (features() == nullptr) return;
    OpContext op = context();
    features()->keep(op, places);
  }
  // The result of the first step that is not settled says what was accepted: it is told what was
  // proposed.
  void settle(const SlotTable& slots, StepResult& result);

 protected:
  // Of a work that is to be drafted.
  struct Draft {
    size_t work = 0;
    SequenceId sequence;
    SlotId slot;
    int32_t known = 0;  // tokens of its sequence
    DraftTree tree;
    // The tokens of it that go on: what may follow them is asked. First of all what is known does.
    std::span<const int32_t> going{};
    bool begun = false;  // the draft has come to the last known token
  };
  explicit Drafter(const ModelRunnerOptions& options) : options_(options) {}

  virtual OpContext context() = 0;

  // Of all works that are to be drafted, none of which has begun: makes their trees.
  virtual void draft(std::span<Draft> drafts, const SlotTable& slots) = 0;
  virtual void begin_step(const StepPlan& /*plan*/) {}
  // What draft() took, on the device's clock; none on a CPU.
  virtual std::optional<double> device_seconds() { return {}; }
  // These tokens of the draft were right, of which the model's part of the pages holds those of a
  // chain.
  virtual void settled(const SlotTable& /*slots*/, const Draft& /*draft*/,
                       std::span<const TokenId> /*right*/) {}

  // A row that asks what follows a token of the draft (kBeforeAll: what is known).
  LogitRow row_behind(const Draft& draft, int32_t before, int32_t hidden_row) const;
  // The draft gets what was chosen for this row.
  void add(Draft& draft, int32_t before, const SampleResult& chosen, const SlotTable& slots) const;

  const ModelRunnerOptions options_;
  StepResult::Drafting drafting_;  // of the step that is being drafted

 private:
  struct DraftedStep {
    std::vector<Draft> drafts;
    StepResult::Drafting drafting;
  };
  DraftTree tree_of(const Work& work, const Slot& slot) const;
  void count(const Draft& draft, std::span<const TokenId> right, bool drawn);

  StepPlan drafted_;
  std::deque<DraftedStep> unsettled_;
  int64_t tried_ = 0, right_ = 0;
  // Of tokens that were drawn for drawn answers, the share that was right lately.
  double drawn_right_ = 0.5;
  bool told_ = false;  // that it is mostly wrong
};

// Of the storage's layers, behind the model's: those of a draft that is a model, or a head of
// layers.
LayerRange draft_layers(const Model& model, const ModelRunnerOptions& options);
// What a draft head reads of the model's rows, kept in the storage's layers behind those; null:
// there is none. All outlive it.
Result<std::shared_ptr<const DraftFeatures>> create_features(Device& device, const Model& model,
                                                             const KvStorage& storage,
                                                             const ModelRunnerOptions& options);

}  // namespace headrace
