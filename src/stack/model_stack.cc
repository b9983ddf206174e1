#include "stack/model_stack.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/code_pages.h"
#include "base/log.h"
#include "engine/kv_storage.h"
#include "engine/model_runner.h"
#include "models/model.h"
#include "ops/kernel_names.h"
#include "stack/batch_choice.h"
#include "stack/compute_choice.h"
#include "stack/draft_model.h"
#include "stack/engine_sizes.h"
#include "stack/kv_format_choice.h"
#include "stack/memory_planning.h"
#include "stack/model_device.h"
#include "stack/model_files.h"
#include "stack/packed_cache_planning.h"
#include "stack/packed_cache_writer.h"
#include "stack/stage_planning.h"
#include "stack/state_planning.h"
#include "tensor/device.h"

namespace headrace {
namespace {

class ModelStackImpl final : public ModelStack {
 public:
  ~ModelStackImpl() override;
  Engine& engine() override { return *engine_; }
  const Tokenizer* tokenizer() const override { return text_.tokenizer.get(); }
  const ChatTemplate* chat_template() const override {
    return text_.chat_template ? &*text_.chat_template : nullptr;
  }
  const ModelConfig& config() const override { return weights_.config; }
  const SamplingDefaults& sampling() const override { return sampling_; }
  AdapterBank* adapters() override { return adapters_.get(); }
  std::shared_ptr<const Adapter> adapter_of_all() const override {
    return adapters_ == nullptr ? nullptr : adapters_->find(adapter_of_all_);
  }
  const StackInfo& info() const override { return info_; }
  Timeline& timeline() override { return timeline_; }
  std::optional<GpuMemoryUse> gpu_memory() const override {
    if (device().kind() != DeviceKind::kCuda) return std::nullopt;
    const int64_t total = device().traits().memory_bytes;
    return GpuMemoryUse{total - planned_free_bytes_, total - device().free_bytes()};
  }

 private:
  friend class StackLoader;

  // Of the first rank.
  Device& device() const { return *devices_.front(); }
  // Of all ranks and stages, which have as many sequences and tokens as it has room for.
  const Device& fullest_device() const {
    const auto fuller = [](const auto& a, const auto& b) {
      return a->free_bytes() < b->free_bytes();
    };
    return **std::min_element(devices_.begin(), devices_.end(), fuller);
  }
  Model& model() const { return *models_.front(); }
  int32_t thread_count() const {
    return std::accumulate(
        devices_.begin(), devices_.end(), int32_t{0},
        [](int32_t sum, const auto& device) { return sum + device->pool().thread_count(); });
  }
  int64_t weight_bytes() const {
    return std::accumulate(
        models_.begin(), models_.end(), int64_t{0},
        [](int64_t sum, const auto& model) { return sum + model->weight_bytes(); });
  }
  // Model::pack_more(); whether something is left to be packed.
  bool pack_more(int64_t bytes_min);

  // Destroyed from the last to the first: the engine goes before what it uses.
  Timeline timeline_;
  OpHooks hooks_;  // of prefer_kernels
  std::unique_ptr<ModelSource> source_;
  ModelWeights weights_;
  ModelText text_;
  SamplingDefaults sampling_;
  StackInfo info_;
  int64_t planned_free_bytes_ = 0;                // of a GPU
  std::vector<std::unique_ptr<Device>> devices_;  // [ranks]
  std::unique_ptr<PackedCache> packed_cache_;     // or null
  std::vector<std::unique_ptr<Model>> models_;    // [ranks], each of its own part
  std::unique_ptr<AdapterBank> adapters_;         // or null
  std::string adapter_of_all_;                    // its name; empty: none
  DraftModel draft_;                              // its model null: none
  std::unique_ptr<Engine> engine_;
  PackedCacheWriter packed_cache_writer_;
};

// What is kept for later starts has all weights.
ModelStackImpl::~ModelStackImpl() {
  engine_.reset();
  if (packed_cache_writer_.waits_for_packing()) pack_more(weight_bytes());
}

bool ModelStackImpl::pack_more(int64_t bytes_min) {
  // What steps ran over, so that it is not in memory together with what packing runs over.
  source_->release_pages();
  release_code_pages();
  model().pack_more(bytes_min);
  if (model().unpacked_bytes() > 0) return true;
  packed_cache_writer_.all_packed();
  return false;
}

// The stages of a load, in order.
class StackLoader {
 public:
  StackLoader(const StackOptions& options, const LoadProgress& progress,
              std::unique_ptr<ModelSource> source)
      : options_(options), progress_(progress), stack_(std::make_unique<ModelStackImpl>()) {
    stack_->source_ = std::move(source);
  }
  // Of a load that failed: memory of a device goes before the device.
  ~StackLoader() { options_.runner.adapter_slots.reset(); }
  StackLoader(const StackLoader&) = delete;
  StackLoader& operator=(const StackLoader&) = delete;

  Result<std::unique_ptr<ModelStack>> load() {
    const auto start = std::chrono::steady_clock::now();
    HR_RETURN_IF_ERROR(check_options());
    HR_RETURN_IF_ERROR(prepare_draft_options(options_));
    stack_->info_.model_name = model_name(options_.model);
    report("reading", 0);
    HR_RETURN_IF_ERROR(load_source());
    HR_RETURN_IF_ERROR(load_adapters());
    HR_RETURN_IF_ERROR(load_draft());
    choose_batch();
    HR_RETURN_IF_ERROR(create_engine());
    fill_info();
    keep_packed_cache();
    stack_->info_.load_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::unique_ptr<ModelStack>(std::move(stack_));
  }

 private:
  void report(std::string_view stage, double done) const {
    if (progress_) progress_(stage, done);
  }
  Timeline* timeline() const { return &stack_->timeline_; }
  Device& device() const { return stack_->device(); }
  bool on_gpu() const { return device().kind() == DeviceKind::kCuda; }
  ComputeType compute() const {
    return compute_type(options_.load, stack_->weights_, stack_->source_->kind(), on_gpu());
  }

  Status check_options() {
    const bool gpu = takes_gpu(options_.device);
    HR_RETURN_IF_ERROR(check_stage_options(options_));
    HR_RETURN_IF_ERROR(check_load_options(options_.load, gpu));
    HR_RETURN_IF_ERROR(check_kv_formats(options_.kv_formats, gpu));
    HR_RETURN_IF_ERROR(check_adapters(options_.adapters, options_.device.tensor_parallel_size));
    const std::vector<std::string_view> known = kernel_names();
    for (const std::string& name : options_.prefer_kernels) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return invalid_argument(
            fmt::format("--prefer-kernels {}: this build has no such kernel (as linear/cpu/avx2; "
                        "bench kernels names those that run)",
                        name),
            "prefer-kernels");
      }
    }
    if (is_split() && options_.load.packed_cache == PackedCacheUse::kOn) {
      return invalid_argument(
          "--packed-cache on keeps weights of a model that is whole: not with "
          "--tensor-parallel-size",
          "tensor-parallel-size");
    }
    if (options_.batch.max_num_seqs < 0 || options_.batch.max_num_batched_tokens < 0) {
      return invalid_argument("--max-num-seqs and --max-num-batched-tokens must be at least 1");
    }
    return ok_status();
  }

  // The vocabulary is read and the tokenizer made beside the start of the device and the packing of
  // the weights.
  Status load_source() {
    if (!stack_->source_) {
      HR_ASSIGN_OR_RETURN(stack_->source_,
                          open_model_source(options_.model, options_.load.architecture_map));
    }
    const ModelSource& source = *stack_->source_;
    HR_RETURN_IF_ERROR(check_load_format(source, options_.load.format));
    HR_ASSIGN_OR_RETURN(stack_->sampling_,
                        read_sampling_defaults(source, options_.text.generation_config,
                                               options_.text.override_generation_config));
    std::promise<bool> on_cpu;
    std::future<ModelText> text = std::async(std::launch::async, [&] {
      const Timeline::Span span(timeline(), "tokenizer");
      ModelText text = read_text(source, options_.text.chat_template);
      if (on_cpu.get_future().get()) release_text_memory();
      text_is_read_ = true;
      return text;
    });
    Status status = start_device();
    on_cpu.set_value(status.ok() && !on_gpu());
    if (status.ok()) status = load_weights();
    stack_->text_ = text.get();
    HR_RETURN_IF_ERROR(status);
    HR_RETURN_IF_ERROR(refusal(stack_->text_.problems));
    HR_RETURN_IF_ERROR(refusal(make_agree(source, stack_->weights_, stack_->text_)));
    release_load_memory();
    return ok_status();
  }

  Status start_device() {
    const Timeline::Span span(timeline(), "device");
    HR_ASSIGN_OR_RETURN(stack_->devices_, create_devices(options_.device));
    return ok_status();
  }

  // The vocabulary's pages of the file and most code of a load, while weights are packed. (What is
  // needed is mapped again.)
  void release_text_memory() const {
    stack_->source_->release_pages();
    release_code_pages();
  }

  // What only the load needed: the vocabulary (the tokenizer has its own), pages of the file (2 to
  // 10 MB of headers and small tensors), freed memory that malloc keeps, code that has run.
  void release_load_memory() {
    stack_->text_.vocab.reset();
    stack_->source_->release_pages();
    ::malloc_trim(0);
    release_code();
  }

  // Not beside a GPU: what its driver's libraries do with their own code is not known, and host
  // memory is not what runs out there.
  void release_code() const {
    if (!on_gpu()) release_code_pages();
  }

  Status load_weights() {
    Timeline::Span span(timeline(), "file headers");
    stack_->weights_ = read_weights(*stack_->source_, options_.load, stack_->thread_count());
    span.end();
    ModelWeights& weights = stack_->weights_;
    HR_RETURN_IF_ERROR(refusal(weights.problems));
    HR_RETURN_IF_ERROR(check_generates(weights.config));
    HR_RETURN_IF_ERROR(check_kept(weights));
    if (has_states(weights.config)) HR_RETURN_IF_ERROR(check_state_options(options_));
    if (shares_keys(weights.config)) HR_RETURN_IF_ERROR(check_trees(options_));
    HR_RETURN_IF_ERROR(plan_stage_layers());
    HR_ASSIGN_OR_RETURN(
        weights.config.served_length,
        plan_model_len(options_, weights, stack_->fullest_device(), layers_of_most(stage_layers_)));
    if (on_gpu() && has_unpacked_experts(options_.load, weights, device().traits(),
                                         options_.device.tensor_parallel_size)) {
      log_warning(
          "{}: experts have 16 bits each on a GPU, whatever the file has or --quantization asks "
          "for; "
          "--block-weights packed keeps those of block types as they are, for few streams",
          options_.model);
    }
    if (options_.device.enable_expert_parallel) warn_of_no_experts(weights.config);
    ModelLoadOptions load{
        .compute = compute(),
        .quantise_to = options_.load.quantise_to,
        .unpack_blocks = on_gpu() && unpacks_blocks(options_.load, weights, device().traits()),
        .pack_experts = on_gpu() && packs_experts(options_.load, weights, device().traits(),
                                                  options_.device.tensor_parallel_size),
        .timeline = timeline()};
    if (progress_) load.progress = [this](double done) { report("loading", done); };
    release_code();  // of the start; the end of a load is when most memory is in use
    // The parts of ranks are in no file.
    if (!is_split()) {
      stack_->packed_cache_ = open_packed_cache(options_.load, options_.model, weights,
                                                load.compute, device(), timeline());
    }
    PackedCache* const cache = stack_->packed_cache_.get();
    load.packed_cache = cache;
    // Beside the tokenizer's making packing costs no time; behind it the first step is sooner
    // without.
    if (!is_split() && packs_at_use(options_.load, weights, device())) {
      load.pack_at_use = [this] { return text_is_read_.load(); };
    }
    HR_RETURN_IF_ERROR(
        check_load_memory(options_, weights, device(), cache != nullptr && cache->hit()));
    return load_models(load);
  }

  Status plan_stage_layers() {
    const ModelWeights& weights = stack_->weights_;
    if (stages() <= 1) return ok_status();
    if (has_joined_layers(weights.config)) {
      return unsupported(
          fmt::format("{}: its layers leave rows to later ones and are not split over stages: use "
                      "--pipeline-parallel-size 1",
                      options_.model),
          "pipeline_parallel_size");
    }
    HR_ASSIGN_OR_RETURN(const ModelSpec whole, weights.architecture->parse(weights.config));
    HR_ASSIGN_OR_RETURN(stage_layers_,
                        plan_stages(whole, layer_costs(*weights.weights, whole), stages()));
    log_info("{}", stages_line(stage_layers_));
    return ok_status();
  }

  Status load_adapters() {
    if (!options_.adapters.wanted()) return ok_status();
    const Timeline::Span span(timeline(), "adapters");
    const ModelWeights& weights = stack_->weights_;
    AdaptedModel adapted{.device = device(),
                         .model = stack_->model(),
                         .names = weights.architecture->hf_names(),
                         .rows_interleaved = weights.config.qk_rows_interleaved,
                         .in_gguf = stack_->source_->kind() == SourceKind::kGguf,
                         .dtype = on_gpu() ? stack_->model().activation_dtype()
                                  : compute() == ComputeType::kFloat32 ? DType::kF32
                                                                       : DType::kF16};
    if (adapted.model.adapter_sites().empty()) {
      return unsupported("--enable-lora: no matrix of this model takes adapters", "enable-lora");
    }
    if (on_gpu()) {
      HR_ASSIGN_OR_RETURN(adapted.slots, make_adapter_slots(options_.adapters, adapted));
      options_.runner.adapter_slots = adapted.slots;
    }
    HR_ASSIGN_OR_RETURN(stack_->adapters_, make_adapter_bank(options_.adapters, adapted));
    log_info("{}", adapter_plan_line(options_.adapters, adapted, *stack_->adapters_));
    if (options_.adapters.of_all) stack_->adapter_of_all_ = options_.adapters.of_all->name;
    return ok_status();
  }

  Status load_draft() {
    const ProposalOptions& proposals = options_.engine.scheduler.proposals;
    if (!drafts_in_runner(proposals.method)) return ok_status();
    const Timeline::Span span(timeline(), "draft model");
    report("draft model", 0);
    HR_ASSIGN_OR_RETURN(stack_->draft_,
                        load_draft_model(options_,
                                         {stack_->weights_.config, stack_->tokenizer(),
                                          stack_->model().spec().vocab_size, compute(),
                                          &stack_->model().spec(), stack_->weights_.weights},
                                         device()));
    options_.runner.draft = stack_->draft_.layers();
    options_.runner.draft_name = options_.draft_model;
    options_.runner.draft_chance_min = proposals.chance_min;
    release_load_memory();
    if (stack_->draft_.head) return use_head(*stack_->draft_.head);
    const Model& draft = *stack_->draft_.model;
    const KvPlan kept = plan_kv(draft.spec(), kv_formats(), kKvBlockTokens);
    log_info(
        "draft model: {}, {} layers, {:.0f} MiB of weights, {:.1f} KiB of keys and values a "
        "token",
        options_.draft_model, draft.spec().layer_count,
        static_cast<double>(draft.weight_bytes()) / (1 << 20),
        static_cast<double>(kept.bytes_per_token()) / 1024);
    return ok_status();
  }

  // What its last layer leaves out of a prompt, a head that reads behind it may need.
  Status use_head(const LoadedHead& loaded) {
    options_.runner.draft_head = loaded.head;
    const ModelSpec& spec = stack_->model().spec();
    const std::vector<int32_t>& layers = loaded.head.layers;
    if (std::ranges::find(layers, spec.layer_count - 1) != layers.end()) {
      options_.runner.keep_logit_rows = false;
    }
    ProposalOptions& proposals = options_.engine.scheduler.proposals;
    if (loaded.medusa != nullptr) {
      proposals.tokens_max = std::min(proposals.tokens_max, loaded.medusa->spec().heads);
    }
    const int64_t bytes =
        loaded.medusa != nullptr ? loaded.medusa->weight_bytes() : loaded.model->weight_bytes();
    const KvPlan both = plan_kv(kept_spec(spec, options_.runner), kv_formats(), kKvBlockTokens);
    const KvPlan alone = plan_kv(spec, kv_formats(), kKvBlockTokens);
    log_info("{} head: {}, {:.0f} MiB of weights, {:.1f} KiB a token beside the model's {:.1f}",
             name_of(kProposalMethods, proposals.method), options_.draft_model,
             static_cast<double>(bytes) / (1 << 20),
             static_cast<double>(both.bytes_per_token() - alone.bytes_per_token()) / 1024,
             static_cast<double>(alone.bytes_per_token()) / 1024);
    return ok_status();
  }

  Status check_generates(const ModelConfig& config) const {
    if (config.head.generates()) return ok_status();
    return unsupported(
        fmt::format("{}: the model has {} instead of an output matrix, so it generates no text: "
                    "headrace serve answers {} with it",
                    options_.model, config.head.classes > 0 ? "classes" : "nothing",
                    config.head.classes > 0 ? "/score and /classify" : "/v1/embeddings"),
        "model");
  }

  Status check_kept(const ModelWeights& weights) const {
    if (choose_kv_formats(options_.kv_formats, DType::kF16).k == KvFormat::kInt4) {
      log_warning(
          "{}: of keys in 4 bits small models lose much, and those whose keys have biases most: "
          "compare its perplexity with that of {}",
          options_.model, on_gpu() ? "--kv-cache-dtype int8" : "--cache-type-k int8");
    }
    if (!on_gpu()) return ok_status();
    const auto spec = weights.architecture->parse(weights.config);
    if (!spec.ok()) return spec.status().with_context(options_.model);
    if (small_kv_format(options_.kv_formats) && weights.config.qkv_bias) {
      log_warning(
          "{}: its keys have biases; where they are large, as Qwen2.5's are, 8 bits keep little "
          "beside them: compare its perplexity with that of --kv-cache-dtype auto",
          options_.model);
    }
    return check_gpu_kv(options_.kv_formats, options_.model, *spec, options_.runner.kv_memory);
  }

  // Where nothing is there to be shared out, the flag changes nothing.
  void warn_of_no_experts(const ModelConfig& config) const {
    if (config.experts.count == 0) {
      log_warning("{}: has no mixtures of experts: --enable-expert-parallel changes nothing",
                  options_.model);
    } else if (options_.device.tensor_parallel_size == 1) {
      log_warning(
          "--enable-expert-parallel: experts are shared out over ranks, of which there is one: "
          "use --tensor-parallel-size");
    }
  }

  // The part of each rank, one after the other: the first has read the file then.
  Status load_models(ModelLoadOptions& load) {
    const ModelWeights& weights = stack_->weights_;
    if (options_.adapters.wanted()) {
      load.adapter_rank_max = options_.adapters.rank_max;
      load.adapter_slots = adapters_max(options_.adapters);
    }
    load.shard = shard_spec(options_.device, device().kind());
    for (const auto& device : stack_->devices_) {
      device->make_current();
      const BoundScope bound = device->pool().bind_caller_here();
      if (stages() > 1) {
        load.layers = stage_layers_[stack_->models_.size()];
        load.with_head = stack_->models_.size() + 1 == stage_layers_.size();
      }
      auto model = weights.architecture->load(weights.config, *weights.weights, *device, load);
      if (!model.ok()) return model.status().with_context(options_.model);
      stack_->models_.push_back(std::move(model).value());
      ++load.shard.rank;
    }
    device().make_current();
    return ok_status();
  }

  std::vector<ModelRank> ranks() const {
    std::vector<ModelRank> ranks;
    for (size_t r = 0; r < stack_->models_.size(); ++r) {
      ranks.push_back({stack_->devices_[r].get(), stack_->models_[r].get()});
      if (stages() > 1) ranks.back().layers = stage_layers_[r];
    }
    return ranks;
  }

  int32_t stages() const { return options_.device.pipeline_parallel_size; }

  // What ranks do not share out, they all compute: alike as long as they take the same algorithms.
  bool ranks_compute_all_heads() const {
    const auto whole = stack_->weights_.architecture->parse(stack_->weights_.config);
    if (!is_split() || stages() > 1 || !whole.ok()) return false;
    const ModelSpec& own = stack_->model().spec();
    if (own.query_heads == whole->query_heads) return true;
    for (size_t layer = 0; layer < own.state_bytes.size(); ++layer) {
      if (own.state_bytes[layer] > 0 && own.state_bytes[layer] == whole->state_bytes[layer]) {
        return true;
      }
    }
    return false;
  }

  bool is_split() const { return options_.device.part_count() > 1; }

  KvFormats kv_formats() const {
    const DType cpu_dtype = compute() == ComputeType::kFloat32 ? DType::kF32 : DType::kF16;
    const DType dtype = on_gpu() ? stack_->model().activation_dtype() : cpu_dtype;
    return on_gpu() ? choose_gpu_kv_formats(options_.kv_formats, dtype)
                    : choose_kv_formats(options_.kv_formats, dtype);
  }

  // Of the whole model, and its draft.
  KvPlan kv_plan() const {
    const auto whole = stack_->weights_.architecture->parse(stack_->weights_.config);
    CHECK(whole.ok());  // it was loaded
    return plan_kv(kept_spec(*whole, options_.runner), kv_formats(), kKvBlockTokens);
  }

  KvPlan kv_of_first_rank() const {
    const KvPlan whole = kv_plan();
    return is_split() ? plan_kv_of_rank(whole, stack_->model().spec()) : whole;
  }

  // Tells the scheduler what no flag says of sequences, tokens a step and order.
  void choose_batch() {
    BatchShapeInput machine =
        batch_machine(stack_->fullest_device(), stack_->model(),
                      on_gpu() ? stack_->model().weight_bytes() : stack_->weight_bytes(),
                      kv_of_first_rank(), options_.memory);
    machine.stages = stages();
    const BatchChoice choice = headrace::choose_batch(options_.batch, machine);
    SchedulerOptions& scheduler = options_.engine.scheduler;
    scheduler.max_num_seqs = choice.max_num_seqs;
    const ModelSpec& spec = stack_->model().spec();
    if (state_entry_bytes(spec) > 0 && options_.batch.max_num_seqs == 0) {
      scheduler.max_num_seqs =
          sequences_with_states(choice.max_num_seqs, spec, stack_->fullest_device());
    }
    scheduler.max_num_batched_tokens = choice.max_num_batched_tokens;
    scheduler.policy = choice.policy;
    stack_->info_.job_order = choice.job_order;
    stack_->info_.order_label = choice.order_label;
    stack_->info_.batch_shape = choice.line;
    log_info("{}", choice.line);
  }

  Status create_engine() {
    const Timeline::Span span(timeline(), "engine");
    const KvPlan whole = kv_plan();
    const std::vector<ModelRank> ranks = this->ranks();
    HR_ASSIGN_OR_RETURN(const KvPlan kv, plan_of_ranks(whole, ranks, options_.runner.kv_memory));
    const LoadedModel loaded{.name = stack_->info_.model_name,
                             .weights = stack_->weights_,
                             .tokenizer = stack_->tokenizer(),
                             .model = stack_->model(),
                             .ranks = ranks};
    HR_ASSIGN_OR_RETURN(const PoolPlan pool, fill_in_sizes(loaded, kv, device(), options_));
    fill_in_hooks();
    note_pool(pool, kv);
    auto runner = create_model_runner(ranks, whole, options_.runner);
    if (!runner.ok() && on_gpu() && runner.status().code() == StatusCode::kExhausted) {
      // The plan fitted: somebody else takes memory, or the driver more than was reserved for it.
      return exhausted(runner.status().message() +
                       ": lower --gpu-memory-utilization, or set --kv-cache-memory-bytes");
    }
    HR_RETURN_IF_ERROR(runner.status());
    HR_ASSIGN_OR_RETURN(stack_->engine_,
                        Engine::create(options_.engine, std::move(runner).value()));
    return ok_status();
  }

  void fill_in_hooks() {
    ModelRunnerOptions& runner = options_.runner;
    if (runner.hooks == nullptr && !options_.prefer_kernels.empty()) {
      stack_->hooks_.preferred = options_.prefer_kernels;
      runner.hooks = &stack_->hooks_;
    }
    runner.release_code = !on_gpu();
    // Each rank would choose its own, by time.
    if (ranks_compute_all_heads()) runner.gemm_trials = runner.full_step_trials = false;
    if (stack_->model().unpacked_bytes() > 0) {
      runner.pack_more = [stack = stack_.get()](int64_t bytes_min) {
        return stack->pack_more(bytes_min);
      };
    }
  }

  void note_pool(const PoolPlan& pool, const KvPlan& kv) {
    StackInfo& info = stack_->info_;
    info.memory_plan = pool.line;
    info.kv_bytes = kv.page_bytes * pool.block_count;
    info.block_count = pool.block_count;
    info.block_tokens = kv.block_tokens;
    info.max_model_len = options_.engine.scheduler.max_model_len;
    log_info("keys and values: {}", kv.to_string(info.max_model_len));
    const SchedulerOptions& scheduler = options_.engine.scheduler;
    if (scheduler.state_checkpoints) {
      info.memory_plan = state_plan_line(stack_->model().spec(), scheduler.max_num_seqs,
                                         *scheduler.state_checkpoints);
      info.state_bytes = state_entry_bytes(stack_->model().spec()) *
                         (scheduler.max_num_seqs + *scheduler.state_checkpoints);
      log_info("{}", info.memory_plan);
    }
    stack_->planned_free_bytes_ = pool.planned_free_bytes;
  }

  void keep_packed_cache() {
    PackedCache* const cache = stack_->packed_cache_.get();
    if (cache == nullptr || cache->hit()) return;
    const Model& model = stack_->model();
    if (!worth_keeping(*cache, model.weight_bytes(), options_.load.packed_cache)) return;
    if (model.unpacked_bytes() == 0) stack_->packed_cache_writer_.all_packed();
    stack_->packed_cache_writer_.start(*cache);
  }

  void fill_info() {
    StackInfo& info = stack_->info_;
    info.model_path = options_.model;
    info.weight_types = stack_->weights_.weight_types;
    info.parameter_count = stack_->weights_.parameter_count;
    info.file_bytes = stack_->weights_.file_bytes;
    info.weight_bytes = stack_->weight_bytes();
    info.threads = stack_->thread_count();
    info.cpu_features = device().traits().cpu.to_string();
    info.on_gpu = on_gpu();
    info.device = device().traits().name;
  }

  StackOptions options_;
  std::vector<LayerRange> stage_layers_;  // [stages]; empty: the model is not split by layers
  const LoadProgress& progress_;
  std::atomic<bool> text_is_read_ = false;
  std::unique_ptr<ModelStackImpl> stack_;
};

}  // namespace

void log_first_token(ModelStack& stack) {
  stack.timeline().mark("first token");
  log_info("start: {}", stack.timeline().to_string());
}

Result<std::unique_ptr<ModelStack>> ModelStack::load(const StackOptions& options,
                                                     const LoadProgress& progress,
                                                     std::unique_ptr<ModelSource> source) {
  return StackLoader(options, progress, std::move(source)).load();
}

}  // namespace headrace
