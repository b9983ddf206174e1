#include "stack/model_stack.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <future>
#include <utility>

#include <fmt/format.h>

#include "base/code_pages.h"
#include "base/log.h"
#include "engine/kv_storage.h"
#include "engine/kv_tiers.h"
#include "engine/memory_plan.h"
#include "engine/model_runner.h"
#include "models/model.h"
#include "ops/kernel_names.h"
#include "stack/batch_choice.h"
#include "stack/default_model.h"
#include "stack/model_files.h"
#include "stack/packed_cache_writer.h"
#include "tensor/device.h"
#include "tensor/gpu_kind.h"
#include "weights/model_family.h"

namespace headrace {
namespace {

constexpr int32_t kBlockTokens = 16;
// Without --kv-cache-memory-bytes the pool holds this many tokens for each slot (and at least one
// sequence of max_model_len), within a quarter of the memory that is free.
constexpr int64_t kTokensPerSlot = 1024;
// On a CPU, and where a sequence's whole context is reserved.
constexpr int32_t kModelLenDefaultMax = 8192;
// What a disk is taken to read: an NVMe drive's order. Not measured: the file is in memory at
// first.
constexpr double kDiskBytesPerSecond = 1e9;

// The type that --dtype gives the matrices of dummy weights.
std::optional<DType> dummy_dtype(std::string_view name) {
  if (name == "float32") return DType::kF32;
  if (name == "float16" || name == "half") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "q8_0") return DType::kQ8_0;
  if (name == "q4_0") return DType::kQ4_0;
  if (name == "q4_1") return DType::kQ4_1;
  return std::nullopt;
}

// The type that --quantization names. "none" and names of no such type: empty.
std::optional<DType> quantised_dtype(std::string_view name) {
  if (name == "q8_0") return DType::kQ8_0;
  if (name == "q4_0") return DType::kQ4_0;
  if (name == "q4_k") return DType::kQ4_K;
  return std::nullopt;
}

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
  const StackInfo& info() const override { return info_; }
  Timeline& timeline() override { return timeline_; }
  std::optional<GpuMemoryUse> gpu_memory() const override {
    if (device_->kind() != DeviceKind::kCuda) return std::nullopt;
    const int64_t total = device_->traits().memory_bytes;
    return GpuMemoryUse{total - planned_free_bytes_, total - device_->free_bytes()};
  }

 private:
  friend class StackLoader;

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
  int64_t planned_free_bytes_ = 0;  // of a GPU
  std::unique_ptr<Device> device_;
  std::unique_ptr<PackedCache> packed_cache_;  // or null
  std::unique_ptr<Model> model_;
  std::unique_ptr<Engine> engine_;
  PackedCacheWriter packed_cache_writer_;
};

// What is kept for later starts has all weights.
ModelStackImpl::~ModelStackImpl() {
  engine_.reset();
  if (packed_cache_writer_.waits_for_packing()) pack_more(model_->weight_bytes());
}

bool ModelStackImpl::pack_more(int64_t bytes_min) {
  // What steps ran over, so that it is not in memory together with what packing runs over.
  source_->release_pages();
  release_code_pages();
  model_->pack_more(bytes_min);
  if (model_->unpacked_bytes() > 0) return true;
  packed_cache_writer_.all_packed();
  return false;
}

int64_t tensor_bytes(const WeightSource& weights) {
  int64_t bytes = 0;
  for (const std::string_view name : weights.names()) bytes += weights.info(name)->bytes;
  return bytes;
}

// The stages of a load, in order.
class StackLoader {
 public:
  StackLoader(const StackOptions& options, const LoadProgress& progress)
      : options_(options), progress_(progress), stack_(std::make_unique<ModelStackImpl>()) {}

  Result<std::unique_ptr<ModelStack>> load() {
    const auto start = std::chrono::steady_clock::now();
    HR_RETURN_IF_ERROR(check_options());
    report("reading", 0);
    HR_RETURN_IF_ERROR(load_source());
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

  // On a GPU a folder of F16 weights is computed in F16, as its maker did. A GGUF file's F16 is no
  // such promise: many were BF16 before, and activations of some overflow F16. Block types are
  // unpacked to F16 where the family's activations are known to stay far below its largest number.
  bool is_f16() const {
    if (options_.dtype != "auto") return options_.dtype == "float16" || options_.dtype == "half";
    const ModelWeights& weights = stack_->weights_;
    if (stack_->source_->kind() == SourceKind::kHuggingFace) return weights.weight_types == "F16";
    return !float_weights() && activations_fit_f16(weights.config);
  }
  bool float_weights() const {
    const std::string& types = stack_->weights_.weight_types;
    return types.starts_with("F") || types.starts_with("BF");
  }
  ComputeType compute() const {
    if (options_.dtype == "float32") return ComputeType::kFloat32;
    if (on_gpu()) return is_f16() ? ComputeType::kFloat16 : ComputeType::kFast;
    return options_.activation_bits == 16 ? ComputeType::kFastWide : ComputeType::kFast;
  }

  Status check_options() const {
    const bool dummy = options_.load_format == "dummy";
    const bool half =
        options_.dtype == "float16" || options_.dtype == "half" || options_.dtype == "bfloat16";
    if (options_.dtype != "auto" && options_.dtype != "float32" && !(half && gpu_index()) &&
        !(dummy && dummy_dtype(options_.dtype))) {
      return invalid_argument(
          fmt::format("--dtype {} is not supported{}: use auto or float32{}", options_.dtype,
                      half ? " on the CPU" : "",
                      dummy ? ", or for dummy weights float16, bfloat16, q8_0, q4_0, q4_1" : ""),
          "dtype");
    }
    if (options_.dummy_sharpness != 1.0 && !dummy) {
      return invalid_argument("--dummy-sharpness is of random weights: add --load-format dummy",
                              "dummy-sharpness");
    }
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
    if (options_.quantization != "none" && !quantised_dtype(options_.quantization)) {
      return invalid_argument(
          fmt::format("--quantization {}: must be none, q8_0, q4_0 or q4_k", options_.quantization),
          "quantization");
    }
    if (options_.quantization != "none" && options_.dtype == "float32") {
      return invalid_argument("--quantization and --dtype float32 exclude each other",
                              "quantization");
    }
    if (options_.max_num_seqs < 0 || options_.max_num_batched_tokens < 0) {
      return invalid_argument("--max-num-seqs and --max-num-batched-tokens must be at least 1");
    }
    return ok_status();
  }

  // "cuda" or "cuda:N": which GPU. Empty: the CPU, or no such name.
  std::optional<int> gpu_index() const {
    std::string_view name = options_.device;
    if (name == "auto")
      return built_with_cuda() && cuda_device_present() ? std::optional(0) : std::nullopt;
    if (name == "cuda") return 0;
    if (!name.starts_with("cuda:")) return std::nullopt;
    name.remove_prefix(5);
    int index = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool whole = error == std::errc() && end == name.data() + name.size();
    return whole ? std::optional(index) : std::nullopt;
  }

  Status create_device() {
    const Timeline::Span span(timeline(), "device");
    if (const std::optional<int> index = gpu_index()) {
      auto gpu = create_cuda_device(*index, options_.threads, options_.batch_invariant);
      if (options_.device != "auto" || !auto_takes_cpu(gpu.status())) {
        HR_ASSIGN_OR_RETURN(stack_->device_, std::move(gpu));
        return ok_status();
      }
      log_warning("{}: --device auto takes the CPU", gpu.status().message());
    }
    if (options_.device != "auto" && options_.device != "cpu") {
      return invalid_argument(
          fmt::format("--device {}: must be auto, cpu, cuda or cuda:N", options_.device), "device");
    }
    HR_ASSIGN_OR_RETURN(const CpuBinding binding, cpu_binding_by_name(options_.cpu_bind));
    stack_->device_ = create_cpu_device(options_.threads, CpuFeatures::detect(), binding,
                                        options_.batch_invariant);
    return ok_status();
  }

  // Fills in what no flag says of sequences, tokens a step and order.
  void choose_batch() {
    const BatchChoice choice = headrace::choose_batch(
        options_, batch_machine(*stack_->device_, *stack_->model_, kv_plan(), options_));
    options_.max_num_seqs = choice.max_num_seqs;
    options_.max_num_batched_tokens = choice.max_num_batched_tokens;
    options_.policy = choice.policy;
    stack_->info_.job_order = choice.job_order;
    stack_->info_.order_label = choice.order_label;
    stack_->info_.batch_shape = choice.line;
    log_info("{}", choice.line);
  }

  KvPlan kv_plan() const {
    const DType cpu_dtype = compute() == ComputeType::kFloat32 ? DType::kF32 : DType::kF16;
    const DType dtype = on_gpu() ? stack_->model_->activation_dtype() : cpu_dtype;
    return plan_kv(stack_->model_->spec(), dtype, kBlockTokens);
  }

  bool on_gpu() const { return stack_->device_->kind() == DeviceKind::kCuda; }

  ModelOpenOptions file_options() const {
    return {.load_format = options_.load_format,
            .seed = options_.seed,
            .dummy_dtype = dummy_dtype(options_.dtype).value_or(DType::kBF16),
            .dummy_sharpness = static_cast<float>(options_.dummy_sharpness),
            .threads = stack_->device_->pool().thread_count()};
  }

  Timeline* timeline() const { return &stack_->timeline_; }

  // The vocabulary is read and the tokenizer made beside the start of the device and the packing of
  // the weights.
  Status load_source() {
    HR_ASSIGN_OR_RETURN(stack_->source_, open_model_source(options_.model));
    const ModelSource& source = *stack_->source_;
    HR_RETURN_IF_ERROR(check_load_format(source, options_.load_format));
    HR_ASSIGN_OR_RETURN(stack_->sampling_,
                        read_sampling_defaults(source, options_.generation_config,
                                               options_.override_generation_config));
    std::promise<bool> on_cpu;
    std::future<ModelText> text = std::async(std::launch::async, [&] {
      const Timeline::Span span(timeline(), "tokenizer");
      ModelText text = read_text(source, options_.chat_template);
      if (on_cpu.get_future().get()) release_text_memory();
      text_is_read_ = true;
      return text;
    });
    Status status = create_device();
    on_cpu.set_value(status.ok() && !on_gpu());
    if (status.ok()) status = load_weights();
    stack_->text_ = text.get();
    HR_RETURN_IF_ERROR(status);
    HR_RETURN_IF_ERROR(refusal(stack_->text_.problems));
    HR_RETURN_IF_ERROR(refusal(check_agreement(source, stack_->weights_, stack_->text_)));
    release_load_memory();
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
    stack_->weights_ = read_weights(*stack_->source_, file_options());
    span.end();
    ModelWeights& weights = stack_->weights_;
    HR_RETURN_IF_ERROR(refusal(weights.problems));
    HR_ASSIGN_OR_RETURN(weights.config.served_length, model_len());
    if (on_gpu() && options_.quantization != "none") {
      return unsupported("--quantization works on the CPU only so far: add --device cpu");
    }
    ModelLoadOptions options{.compute = compute(),
                             .quantise_to = quantised_dtype(options_.quantization),
                             .timeline = timeline()};
    if (progress_) options.progress = [this](double done) { report("loading", done); };
    const BoundScope bound = stack_->device_->pool().bind_caller_here();
    release_code();  // of the start; the end of a load is when most memory is in use
    open_packed_cache();
    options.packed_cache = stack_->packed_cache_.get();
    // Beside the tokenizer's making packing costs no time; behind it the first step is sooner
    // without.
    if (packs_at_use()) options.pack_at_use = [this] { return text_is_read_.load(); };
    HR_RETURN_IF_ERROR(check_memory());
    auto model =
        weights.architecture->load(weights.config, *weights.weights, *stack_->device_, options);
    if (!model.ok()) return model.status().with_context(options_.model);
    stack_->model_ = std::move(model).value();
    return ok_status();
  }

  // Memory that is not there would be noticed by the kernel's killer, which may take another
  // program. The estimate is on the low side: what is refused cannot fit. What the load finds out
  // (activations, the default pool) is counted behind it.
  Status check_memory() const {
    const PackedCache* const cache = stack_->packed_cache_.get();
    if (on_gpu()) return ok_status();
    const ModelWeights& weights = stack_->weights_;
    int64_t needed = cache != nullptr && cache->hit() ? 0 : tensor_bytes(*weights.weights);
    const std::optional<DType> quantised = quantised_dtype(options_.quantization);
    if (quantised) {
      const int64_t whole_blocks = weights.parameter_count / 256 * 256;
      needed = std::min(needed, row_bytes(*quantised, whole_blocks).value_or(needed));
    }
    const int64_t free = stack_->device_->free_bytes();
    const int64_t kv_bytes = options_.kv_cache_memory_bytes + tier_bytes();
    if (needed + kv_bytes <= free) return ok_status();
    const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
    if (needed <= free) {
      return exhausted(fmt::format(
          "{}: beside {:.1f} GiB of weights {:.1f} GiB are asked for keys and values, and {:.1f} "
          "GiB are free: lower {}",
          options_.model, gib(needed), gib(kv_bytes), gib(free),
          tier_bytes() == 0                     ? "--kv-cache-memory-bytes"
          : options_.kv_cache_memory_bytes == 0 ? "--kv-offloading-size"
                                                : "--kv-cache-memory-bytes, --kv-offloading-size"));
    }
    return exhausted(fmt::format(
        "{}: its weights need {:.1f} GiB of memory, and {:.1f} GiB are free: use a file with fewer "
        "bits a weight{}",
        options_.model, gib(needed), gib(free),
        float_weights() && !quantised ? ", or --quantization q4_0" : ""));
  }

  // Not where memory belongs to nodes, each of which packs what it will read, nor for weights that
  // come from more than files of tensors.
  void open_packed_cache() {
    if (options_.packed_cache == "off" || on_gpu()) return;
    ThreadPool& pool = stack_->device_->pool();
    const std::vector<std::string> paths = stack_->weights_.weights->paths();
    if (paths.empty() || pool.several_nodes()) return;
    const Timeline::Span span(timeline(), "packed file");
    std::string key = file_identity("/proc/self/exe");
    for (const std::string& path : paths) key += " " + file_identity(path);
    key += fmt::format(" {} {}", static_cast<int>(compute()), options_.quantization);
    std::filesystem::path folder = options_.packed_cache_folder;
    if (folder.empty()) folder = program_cache_folder() / "packed";
    // Without a home its files would lie wherever the program is started.
    if (options_.packed_cache_folder.empty() && folder.is_relative()) return;
    stack_->packed_cache_ = PackedCache::open(folder, model_name(options_.model), key, pool);
  }

  // Weights of no file are not there to be read again.
  bool packs_at_use() const {
    return options_.pack_weights == "use" && !on_gpu() &&
           !stack_->weights_.weights->paths().empty() && !stack_->device_->pool().several_nodes();
  }

  void keep_packed_cache() {
    PackedCache* const cache = stack_->packed_cache_.get();
    if (cache == nullptr || cache->hit()) return;
    const Model& model = *stack_->model_;
    if (!worth_keeping(*cache, model.weight_bytes(), options_.packed_cache)) return;
    if (model.unpacked_bytes() == 0) stack_->packed_cache_writer_.all_packed();
    stack_->packed_cache_writer_.start(*cache);
  }

  // What is left of a GPU's memory.
  Result<int32_t> plan_gpu_blocks(const KvPlan& kv, const ModelRunnerOptions& runner) const {
    Device& device = *stack_->device_;
    const int64_t pages_min = (runner.max_model_len + kBlockTokens - 1) / kBlockTokens *
                                  static_cast<int64_t>(kv.groups.size()) +
                              1;
    HR_ASSIGN_OR_RETURN(
        const MemoryPlan plan,
        plan_memory({.total_bytes = device.traits().memory_bytes,
                     .free_bytes = device.free_bytes(),
                     .weight_bytes = stack_->model_->weight_bytes(),
                     .runner_bytes = model_runner_bytes(device, *stack_->model_, kv, runner),
                     .recording_bytes = model_recording_bytes(device, *stack_->model_, runner),
                     .utilization = options_.gpu_memory_utilization,
                     .kv_bytes_wanted = options_.kv_cache_memory_bytes,
                     .page_bytes = kv.page_bytes,
                     .pages_min = pages_min}));
    stack_->info_.memory_plan = plan.to_string();
    stack_->planned_free_bytes_ = plan.free_after_bytes;
    log_info("{}: {}", device.traits().name, stack_->info_.memory_plan);
    return static_cast<int32_t>(plan.page_count - 1);  // one is the runner's, for padding
  }

  // The CPU's pool is as large as asked, or as the defaults and the machine say.
  Result<int32_t> plan_host_blocks(const KvPlan& kv, const ModelRunnerOptions& runner) const {
    const auto groups = static_cast<int64_t>(kv.groups.size());
    const int64_t tokens =
        std::max<int64_t>(runner.max_model_len, kTokensPerSlot * options_.max_num_seqs);
    const int64_t pages = (tokens + kBlockTokens - 1) / kBlockTokens * groups;
    HR_ASSIGN_OR_RETURN(
        const int64_t planned,
        plan_host_pages(
            {.free_bytes = stack_->device_->free_bytes() - stack_->model_->unpacked_bytes(),
             .runner_bytes = model_runner_bytes(*stack_->device_, *stack_->model_, kv, runner),
             .tier_bytes = tier_bytes(),
             .kv_bytes_wanted = options_.kv_cache_memory_bytes,
             .kv_bytes_default = pages * kv.page_bytes,
             .page_bytes = kv.page_bytes,
             .pages_min = groups}));
    return static_cast<int32_t>(planned);
  }

  // Sequences that run at once. Contiguous memory is a whole context for each of them: no more than
  // the pool is planned for.
  int32_t sequences_at_once(const KvPlan& kv, KvMemoryKind kind, int32_t block_count) const {
    if (kind != KvMemoryKind::kContiguous) return options_.max_num_seqs;
    const int32_t pages = (stack_->weights_.config.served_length + kBlockTokens - 1) / kBlockTokens;
    const int32_t fit = block_count / (pages * static_cast<int32_t>(kv.groups.size()));
    return std::clamp(fit, 1, options_.max_num_seqs);
  }

  // Host memory below the pool.
  int64_t tier_bytes() const {
    if (options_.preemption_mode == "recompute") return 0;
    return static_cast<int64_t>(std::max(0.0, options_.kv_offloading_gib) * (1 << 30));
  }

  // The model's whole context where there is memory for a sequence of it: on a GPU, as engines on
  // GPUs do. What is asked for is taken at its word; plan_gpu_blocks() says where it does not fit.
  int32_t default_model_len() const {
    const ModelConfig& config = stack_->weights_.config;
    const int32_t least = std::min(config.context_length, kModelLenDefaultMax);
    if (!on_gpu() || !options_.chunked_prefill || options_.kv_memory == "contiguous") return least;
    const int64_t token_bytes = int64_t{2} * 2 * config.layers * config.kv_heads * config.head_dim;
    const auto usable = static_cast<int64_t>(static_cast<double>(stack_->device_->free_bytes()) *
                                             options_.gpu_memory_utilization);
    const int64_t weight_bytes = 2 * stack_->weights_.parameter_count;  // at most: 16 bits
    const int64_t kv_bytes = options_.kv_cache_memory_bytes > 0
                                 ? options_.kv_cache_memory_bytes
                                 : usable - weight_bytes - kGpuRunnerBytes;
    const int64_t fits = kv_bytes / token_bytes / kBlockTokens * kBlockTokens;
    return static_cast<int32_t>(std::clamp<int64_t>(fits, least, config.context_length));
  }

  Result<int32_t> model_len() const {
    const ModelConfig& config = stack_->weights_.config;
    if (options_.max_model_len == 0) return default_model_len();
    if (options_.max_model_len > config.context_length_max) {
      return invalid_argument(
          fmt::format("--max-model-len {} is more than the model's context of {}",
                      options_.max_model_len, config.context_length_max),
          "max_model_len");
    }
    return options_.max_model_len;
  }

  // What saved keys and values depend on.
  std::string kv_fingerprint(const KvPlan& kv) const {
    return fmt::format(
        "{} {} {} {} {} {} {} {}", model_name(options_.model), stack_->weights_.file_bytes,
        stack_->weights_.weight_types, stack_->weights_.parameter_count, static_cast<int>(kv.dtype),
        kv.block_tokens, kv.groups.size(), static_cast<int>(key_layout(stack_->device_->kind())));
  }

  // Null: no tiers are asked for.
  Result<std::shared_ptr<KvTiers>> create_tiers(const KvPlan& kv) const {
    if (options_.kv_disk_gib > 0 && options_.kv_offloading_gib <= 0) {
      return invalid_argument("--kv-disk-size lies below --kv-offloading-size: give both",
                              "kv_disk_size");
    }
    if (options_.kv_offloading_gib <= 0 || options_.preemption_mode == "recompute") {
      return std::shared_ptr<KvTiers>();
    }
    if (!options_.enable_prefix_caching || options_.kv_memory == "contiguous") {
      return invalid_argument(
          "--kv-offloading-size keeps pages that the prefix cache finds again: not with "
          "--no-enable-prefix-caching or --kv-memory contiguous",
          "kv_offloading_size");
    }
    const auto pages = [&](double gib) {
      const double count = gib * (1 << 30) / static_cast<double>(kv.page_bytes);
      return static_cast<int32_t>(std::min(count, double{1 << 29}));
    };
    const std::filesystem::path folder = options_.kv_disk_path.empty()
                                             ? std::filesystem::temp_directory_path()
                                             : std::filesystem::path(options_.kv_disk_path);
    const std::string file = folder / fmt::format("headrace-kv-{}", ::getpid());
    return KvTiers::create(*stack_->device_, kv.page_bytes,
                           {.host_pages = std::max(1, pages(options_.kv_offloading_gib)),
                            .disk_pages = pages(options_.kv_disk_gib),
                            .disk_path = file});
  }

  Result<std::vector<TierSpec>> tier_specs(const KvTiers* tiers) const {
    std::vector<TierSpec> specs;
    if (tiers == nullptr) return specs;
    const bool by_cost = options_.preemption_mode == "auto";
    double host = 0;
    if (by_cost) {
      HR_ASSIGN_OR_RETURN(host, measure_page_load(*stack_->device_, tiers->page_bytes()));
    }
    const double disk = host + static_cast<double>(tiers->page_bytes()) / kDiskBytesPerSecond;
    specs.push_back({.pages = tiers->host_pages(), .seconds_per_page = host});
    if (tiers->disk_pages() == 0) return specs;
    specs.push_back({.pages = tiers->disk_pages(), .seconds_per_page = by_cost ? disk : 0});
    return specs;
  }

  const OpHooks* hooks() {
    if (options_.op_hooks != nullptr || options_.prefer_kernels.empty()) return options_.op_hooks;
    stack_->hooks_.preferred = options_.prefer_kernels;
    return &stack_->hooks_;
  }

  Status create_engine() {
    const Timeline::Span span(timeline(), "engine");
    const ModelSpec& spec = stack_->model_->spec();
    const int32_t max_model_len = stack_->weights_.config.served_length;  // model_len(), once
    KvPlan kv = kv_plan();
    HR_ASSIGN_OR_RETURN(const KvMemoryKind kv_memory, find_kv_memory(options_.kv_memory));
    HR_ASSIGN_OR_RETURN(kv.page_bytes,
                        KvMemory::page_bytes_for(kv_memory, *stack_->device_, kv.page_bytes));
    const bool contiguous = kv_memory == KvMemoryKind::kContiguous;
    // A batch can never be larger than every slot's whole context.
    const auto batched_tokens = static_cast<int32_t>(std::min<int64_t>(
        options_.max_num_batched_tokens, int64_t{max_model_len} * options_.max_num_seqs));
    ModelRunnerOptions runner_options{.max_num_seqs = options_.max_num_seqs,
                                      .max_num_batched_tokens = batched_tokens,
                                      .max_model_len = max_model_len,
                                      .end_ids = end_ids(),
                                      .graphs = options_.graphs,
                                      .graphs_at_start = options_.graphs_at_start,
                                      .recorded_rows_max = options_.recorded_rows_max,
                                      .gemm_trials = options_.gemm_trials,
                                      .full_step_trials = options_.full_step_trials,
                                      .split_prompts = options_.split_prompts,
                                      .poison_workspace = options_.poison_workspace,
                                      .keep_logit_rows = options_.skip_unread_rows,
                                      .hooks = hooks()};
    HR_ASSIGN_OR_RETURN(const int32_t block_count, on_gpu() ? plan_gpu_blocks(kv, runner_options)
                                                            : plan_host_blocks(kv, runner_options));
    runner_options.block_count = block_count;
    runner_options.max_num_seqs = sequences_at_once(kv, kv_memory, block_count);
    runner_options.kv_memory = kv_memory;
    HR_ASSIGN_OR_RETURN(runner_options.kv_populate, find_kv_populate(options_.kv_populate));
    runner_options.release_code = !on_gpu();
    if (stack_->model_->unpacked_bytes() > 0) {
      runner_options.pack_more = [stack = stack_.get()](int64_t bytes_min) {
        return stack->pack_more(bytes_min);
      };
    }
    HR_ASSIGN_OR_RETURN(runner_options.tiers, create_tiers(kv));
    HR_ASSIGN_OR_RETURN(std::vector<TierSpec> tiers, tier_specs(runner_options.tiers.get()));
    const bool overlap = on_gpu() && options_.overlap;
    EngineOptions engine{
        .scheduler = {.max_num_seqs = runner_options.max_num_seqs,
                      .max_num_batched_tokens = batched_tokens,
                      .max_model_len = max_model_len,
                      .max_queued_requests = options_.max_queued_requests,
                      .max_queued_tokens = options_.max_queued_tokens,
                      .max_queue_seconds = options_.max_queue_seconds,
                      .steps_in_flight_max = overlap ? kDeviceStepsInFlight : 1,
                      .policy = options_.policy,
                      .chunked_prefill = options_.chunked_prefill,
                      .tpot_target_seconds = options_.tpot_target_seconds,
                      .tpot_over_share = options_.tpot_over_share,
                      .background_step_seconds = options_.background_step_seconds,
                      .background_over_share = options_.background_over_share,
                      .background_gap_seconds = options_.background_gap_seconds,
                      .groups = kv.groups,
                      .block_count = block_count,
                      .end_ids = runner_options.end_ids,
                      .allocation = contiguous ? KvAllocation::kReserveMax : KvAllocation::kPaged,
                      .admission_headroom = options_.admission_headroom,
                      .enable_prefix_caching = options_.enable_prefix_caching && !contiguous,
                      .prefix_cache_eviction = options_.prefix_cache_eviction,
                      .tiers = std::move(tiers),
                      .promote_after_steps = options_.promote_after_steps,
                      .higher_priority_first = options_.priority_order == "higher-first",
                      .waiting_served_ratio = options_.waiting_served_ratio,
                      .max_waiting_tokens = options_.max_waiting_tokens,
                      .max_prefill_seqs = options_.max_prefill_seqs,
                      .static_computes_ended_rows = options_.static_ended_rows == "computed",
                      .mlfq_quantum = options_.mlfq_quantum,
                      .crowd_step_ratio = options_.crowd_step_ratio,
                      .slo_classes = options_.slo_classes},
        .vocab_size = spec.vocab_size,
        .kv_save_path = options_.kv_save_path,
        .kv_fingerprint = kv_fingerprint(kv)};
    stack_->info_.kv_bytes = kv.page_bytes * block_count;
    stack_->info_.block_count = block_count;
    stack_->info_.block_tokens = kBlockTokens;
    stack_->info_.max_model_len = max_model_len;
    auto runner = create_model_runner(*stack_->device_, *stack_->model_, std::move(kv),
                                      std::move(runner_options));
    if (!runner.ok() && on_gpu() && runner.status().code() == StatusCode::kExhausted) {
      // The plan fitted: somebody else takes memory, or the driver more than was reserved for it.
      return exhausted(runner.status().message() +
                       ": lower --gpu-memory-utilization, or set --kv-cache-memory-bytes");
    }
    HR_RETURN_IF_ERROR(runner.status());
    HR_ASSIGN_OR_RETURN(stack_->engine_,
                        Engine::create(std::move(engine), std::move(runner).value()));
    return ok_status();
  }

  std::vector<TokenId> end_ids() const {
    std::vector<TokenId> ids = stack_->weights_.config.end_ids;
    if (stack_->text_.tokenizer) {
      for (TokenId id : stack_->text_.tokenizer->vocab().end_ids) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  }

  void fill_info() {
    StackInfo& info = stack_->info_;
    info.model_name = model_name(options_.model);
    info.model_path = options_.model;
    info.weight_types = stack_->weights_.weight_types;
    info.parameter_count = stack_->weights_.parameter_count;
    info.file_bytes = stack_->weights_.file_bytes;
    info.weight_bytes = stack_->model_->weight_bytes();
    info.threads = stack_->device_->pool().thread_count();
    info.cpu_features = stack_->device_->traits().cpu.to_string();
    info.on_gpu = on_gpu();
    info.device = stack_->device_->traits().name;
  }

  StackOptions options_;
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
                                                     const LoadProgress& progress) {
  return StackLoader(options, progress).load();
}

}  // namespace headrace
