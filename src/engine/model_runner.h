// ModelRunner: steps on a device. Joins SlotTable, BatchBuilder, KvStorage, Model and Sampler; each
// of them knows its own part. On the CPU (model_runner.cc) submit_forward() computes at once, one
// step in flight; on a GPU (device_runner.cc) steps are started and several of them are in flight.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/draft_head.h"
#include "engine/kv_population.h"
#include "engine/kv_storage.h"
#include "engine/runner.h"
#include "models/lora_slots.h"
#include "models/model.h"
#include "tensor/communicator.h"
#include "tensor/device.h"

namespace headrace {

inline constexpr int32_t kDeviceStepsInFlight = 2;

struct ModelRunnerOptions {
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_model_len = 0;
  int32_t block_count = 0;
  int32_t state_checkpoints = 0;  // of models that keep states, beside those of slots
  // Below the pool: of each rank, with as many pages for all; empty: none.
  std::vector<std::shared_ptr<KvTiers>> tiers;
  KvMemoryKind kv_memory = KvMemoryKind::kPaged;
  KvPopulate kv_populate = KvPopulate::kOff;  // CPU: when the KV pool's memory is found
  // CPU: code is unmapped (base/code_pages.h) once, before the first step without a prompt: the
  // code that the start of an engine and prompts run is as large as the code that decoding runs.
  bool release_code = false;
  // CPU, may be empty: packs at least so many bytes of the weights that the load left unpacked
  // (Model::pack_more); false: none are left. It is called with a quarter of the weights before
  // each step but the first, and with small pieces while the engine is idle.
  std::function<bool(int64_t bytes_min)> pack_more;
  std::vector<TokenId> end_ids;
  bool graphs = true;               // GPU: steps that only decode are recorded and replayed
  bool graphs_at_start = false;     // all of them before the first step
  int32_t recorded_rows_max = 256;  // of a recorded step
  bool gemm_trials = true;  // GPU: the library's algorithms are timed before steps are recorded
  bool full_step_trials = false;  // GPU: those of a step of max_num_batched_tokens too
  int32_t steps_in_flight = kDeviceStepsInFlight;  // GPU: at most
  bool split_prompts = true;                       // GPU: AttentionPlanShape::split_prompts
  bool poison_workspace = false;  // GPU, tests: scratch memory is NaN before each step
  // Paged memory, tests: the KV pool is NaN at first, pages are when a sequence gets them, and the
  // keys and values of rejected tokens become it (engine/kv_poison.h); on a CPU so are the states
  // of sequences that begin.
  bool poison_kv = false;
  std::vector<LayerTap> taps;        // of each step; of ranks, the first one's
  bool proposals = false;            // steps may verify some
  double synthetic_acceptance = -1;  // as in ProposalOptions
  // One rank, paged memory, no tiers; or null: proposes tokens (Work::drafted). It lies on the
  // model's device and outlives the runner; the plan is one of kept_spec().
  const Model* draft = nullptr;
  // Where it is a head that reads this model's hidden rows (`draft`, of layers, or, on a CPU,
  // Medusa's).
  std::optional<DraftHead> draft_head = {};
  std::string draft_name = {};  // for messages
  bool has_draft() const { return draft != nullptr || draft_head.has_value(); }
  double draft_chance_min = 0;  // as ProposalOptions::chance_min
  // GPU: where the adapters of requests lie; null: they have none.
  std::shared_ptr<const LoraSlots> adapter_slots = {};
  bool keep_logit_rows = true;  // what the last layer computes of a prompt; see ForwardBatch::kept
  const OpHooks* hooks = nullptr;  // for measurements; outlives the runner, and may change between
                                   // steps where there is one rank
};

// What a model keeps of a token together with what proposes for it (options.draft, draft_head): the
// layers of the draft, and those that keep what a head reads, behind its own.
ModelSpec kept_spec(const ModelSpec& model, const ModelRunnerOptions& options);

// What the driver is expected to take for recorded steps; 0 where none are.
int64_t model_recording_bytes(const Device& device, const Model& model,
                              const ModelRunnerOptions& options);

// One rank of a model that is split: what it computes, and where. Of a model that is split by
// layers, which of them (a stage; staged_runner.h).
struct ModelRank {
  Device* device = nullptr;
  const Model* model = nullptr;
  std::optional<LayerRange> layers = {};
};

// Bytes of device memory that a runner takes on a rank's device beside weights and KV pool: on a
// GPU activations, logits, results and tables of slots, on the CPU activations, logits and states.
int64_t model_runner_bytes(const ModelRank& rank, const KvPlan& plan,
                           const ModelRunnerOptions& options);

// What one of `ranks` ranks keeps of what `whole` is planned for, in pages that the memory can map.
// Errors as of KvMemory::page_bytes_for().
Result<KvPlan> plan_of_rank(const KvPlan& whole, const ModelRank& rank, size_t ranks,
                            KvMemoryKind memory);
// All ranks' together: page_bytes is their sum.
Result<KvPlan> plan_of_ranks(const KvPlan& whole, std::span<const ModelRank> ranks,
                             KvMemoryKind memory);

// The devices and the models outlive the runner. The plan is that of the whole model. Of several
// ranks the caller's thread has the first, each other one of its own, and all their own pages; of
// stages on a CPU each has a thread. No population while idle of several.
Result<std::unique_ptr<Runner>> create_model_runner(std::span<const ModelRank> ranks, KvPlan plan,
                                                    ModelRunnerOptions options);

// The device and the model outlive the runner. The plan is plan_kv()'s for this model. On a GPU the
// pool has one page more than options.block_count, which rows of padding write.
Result<std::unique_ptr<Runner>> create_model_runner(Device& device, const Model& model, KvPlan plan,
                                                    ModelRunnerOptions options);

}  // namespace headrace
