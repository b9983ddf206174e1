#include "cli/foreign_flags.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace headrace {
namespace {

// As the flag's own program reads it. A row that is wrong here would take the next flag, or the
// model, for its value.
enum class Takes : uint8_t {
  kNothing,
  kValue,
  kWord,   // on, off or auto may follow: llama.cpp's
  kMaybe,  // what follows, unless it is a flag: argparse's nargs="?"
};
constexpr Takes kNothing = Takes::kNothing, kValue = Takes::kValue, kWord = Takes::kWord,
                kMaybe = Takes::kMaybe;

// ---- accepted, and told

struct IgnoredFlag {
  std::string_view names;
  Takes takes;
  std::string_view reason;
};

constexpr std::string_view kRemoved = "it was removed from vLLM";
constexpr std::string_view kOneDevice =
    "a model runs whole on one device (--device), or on ranks (--tensor-parallel-size)";
constexpr std::string_view kNoCompiler = "nothing is compiled at run time";
constexpr std::string_view kAlways = "it is always so here";
constexpr std::string_view kUnlike = "there is nothing like it here";
constexpr std::string_view kToken = "a token is read from HF_TOKEN";
constexpr std::string_view kCache = "models lie in the hub's cache: HF_HOME names another";
constexpr std::string_view kFaster =
    "answers are the same without it, and there is nothing like it";
constexpr std::string_view kSpeculation =
    "answers are the same without it; --spec-method ngram and --model-draft are what there is";
constexpr std::string_view kNoImages = "models see no images here";
constexpr std::string_view kNoPage =
    "the page of serve takes no settings (--no-webui switches it off)";
constexpr std::string_view kServerOnly = "it is a flag of headrace serve";
constexpr std::string_view kBinding = "--cpu-bind places threads";
constexpr std::string_view kPlanned = "memory is planned by --max-model-len and --max-num-seqs";
constexpr std::string_view kOneSpan = "--otlp-traces-endpoint sends one span of each request";
constexpr std::string_view kLogLevel = "--log-level sets what is told";
constexpr std::string_view kTiers = "--kv-offloading-size keeps prefixes in host memory";
constexpr std::string_view kNoAdapters =
    "this command takes no adapters: headrace serve, run and chat do";
constexpr std::string_view kCors = "a preflight from --allowed-origins is answered as it asks";
constexpr std::string_view kUnused = "without the flag of its sampler it changes nothing";

constexpr IgnoredFlag kIgnoredFlags[] = {
    // vLLM
    {"--embeddings,--embedding,--is-embedding,--reranking,--rerank", kNothing, kServerOnly},
    {"--enable-ssl-refresh", kNothing, "certificates are always read again when they change"},
    {"--swap-space", kValue, kRemoved},
    {"--disable-log-requests", kNothing, kRemoved},
    {"--enable-reasoning", kNothing, kRemoved},
    {"--enable-auto-tool-choice", kNothing, kAlways},
    {"--guided-decoding-backend", kValue, kRemoved},
    {"--num-scheduler-steps", kValue, kRemoved},
    {"--use-v2-block-manager", kNothing, kRemoved},
    {"--task,--runner,--convert", kValue, kServerOnly},
    {"--max-seq-len-to-capture", kValue, kRemoved},
    {"--max-num-partial-prefills", kValue, kRemoved},
    {"--max-long-partial-prefills", kValue, kRemoved},
    {"--calculate-kv-scales", kNothing, kRemoved},
    {"--compilation-config,--cc", kValue, kNoCompiler},
    {"--optimization-level,-O", kValue, kNoCompiler},
    {"--performance-mode", kValue, kNoCompiler},
    {"--disable-custom-all-reduce", kNothing, kOneDevice},
    {"--attention-backend", kValue, kUnlike},
    {"--moe-backend", kValue, kUnlike},
    {"--linear-backend", kValue, kUnlike},
    {"--structured-outputs-config", kValue, kUnlike},
    {"--enable-prompt-tokens-details,--enable-cache-report", kNothing, kAlways},
    {"--enable-server-load-tracking", kNothing, kAlways},
    {"--enable-request-id-headers", kNothing, kAlways},
    {"--enable-per-request-metrics", kNothing, kUnlike},
    {"--enable-tokenizer-info-endpoint", kNothing, kAlways},
    {"--trust-remote-code", kNothing, "models bring no code here"},
    {"--code-revision", kValue, "models bring no code here"},
    {"--hf-token,--hft", kMaybe, kToken},
    {"--download-dir", kValue, kCache},
    {"--tokenizer-mode", kValue, kUnlike},
    {"--config-format", kValue, kUnlike},
    {"--distributed-executor-backend", kValue, kUnlike},
    {"--disable-hybrid-kv-cache-manager", kNothing, kUnlike},
    {"--numa-bind", kNothing, kBinding},
    {"--numa-bind-nodes", kValue, kBinding},
    {"--mm-processor-cache-gb", kValue, kNoImages},
    {"--limit-mm-per-prompt", kValue, kNoImages},
    {"--mm-processor-kwargs", kValue, kNoImages},
    {"--allowed-local-media-path,--allowed-media-domains", kValue, kNoImages},
    {"--media-io-kwargs", kValue, kNoImages},
    {"--safetensors-load-strategy", kValue, kUnlike},
    {"--model-loader-extra-config", kValue, kUnlike},
    {"--max-parallel-loading-workers", kValue, kUnlike},
    {"--prefix-caching-hash-algo", kValue, kUnlike},
    {"--kv-offloading-backend", kValue, kUnlike},
    {"--offload-backend", kValue, kUnlike},
    {"--watermark", kValue, kPlanned},
    {"--scheduler-reserve-full-isl", kNothing, kPlanned},
    {"--max-loras,--max-lora-rank,--max-cpu-loras,--lora-dtype", kValue, kNoAdapters},
    {"--all2all-backend,--moe-a2a-backend", kValue, kOneDevice},
    {"--enable-eplb", kNothing, kOneDevice},
    {"--eplb-config", kValue, kOneDevice},
    {"--enable-dbo", kNothing, kOneDevice},
    {"--data-parallel-rank,--data-parallel-start-rank,--data-parallel-size-local,--data-parallel-"
     "address,"
     "--data-parallel-rpc-port,--data-parallel-backend",
     kValue, kOneDevice},
    {"--data-parallel-hybrid-lb,--data-parallel-external-lb", kNothing, kOneDevice},
    {"--master-addr,--master-port,--dist-init-addr,--nccl-port", kValue, kOneDevice},
    {"--disable-frontend-multiprocessing", kNothing, kUnlike},
    {"--disable-fastapi-docs,--enable-offline-docs", kNothing,
     "/docs is always there, and asks no other site"},
    {"--allowed-methods,--allowed-headers", kValue, kCors},
    {"--allow-credentials", kNothing, kCors},
    {"--enable-log-requests,--log-requests", kNothing,
     "prompts are never logged; --access-log tells of each request"},
    {"--log-requests-level,--max-log-len,--log-config-file", kValue, "prompts are never logged"},
    {"--collect-detailed-traces", kValue, kOneSpan},
    {"--enable-trace", kNothing, kOneSpan},
    {"--disable-log-stats", kNothing, kUnlike},
    {"--show-hidden-metrics-for-version", kValue, kUnlike},
    // llama-server
    {"--gpu-layers,--n-gpu-layers,--ngl", kValue, kOneDevice},
    {"--split-mode,--sm", kValue, kOneDevice},
    {"--tensor-split,--ts", kValue, kOneDevice},
    {"--main-gpu,--mg", kValue, kOneDevice},
    {"--cpu-moe,--cmoe", kNothing, kOneDevice},
    {"--n-cpu-moe,--ncmoe", kValue, kOneDevice},
    {"--n-cpu-ffn,--ncffn", kValue, kOneDevice},
    {"--moe-cache-mib", kValue, kOneDevice},
    {"--override-tensor,--ot", kValue, kOneDevice},
    {"--kv-offload,--kvo,--no-kv-offload,--nkvo", kNothing, kOneDevice},
    {"--op-offload,--no-op-offload", kNothing, kOneDevice},
    {"--fit", kWord, kPlanned},
    {"--fit-target,--fitt", kValue, kPlanned},
    {"--fit-ctx,--fitc", kValue, kPlanned},
    {"--flash-attn,--fa", kWord, kAlways},
    {"--cont-batching,--cb,--no-cont-batching,--nocb", kNothing, kAlways},
    {"--jinja", kNothing, kAlways},
    {"--metrics,--enable-metrics", kNothing, kAlways},
    {"--batch-size,-b", kValue, "steps are bounded by --max-num-batched-tokens"},
    {"--cache-ram,--cram", kValue, kTiers},
    {"--cache-idle-slots", kNothing, kTiers},
    {"--cache-reuse", kValue, kFaster},
    {"--ctx-checkpoints,--ctxcp,--swa-checkpoints", kValue, kUnlike},
    {"--checkpoint-min-step,--cms", kValue, kUnlike},
    {"--kv-unified,--kvu,--no-kv-unified,--no-kvu", kNothing, kUnlike},
    {"--kv-unified-per-slot", kValue, kPlanned},
    {"--swa-full", kNothing, kUnlike},
    {"--keep", kValue, kUnlike},
    {"--defrag-thold,--dt", kValue, kUnlike},
    {"--spec-type", kValue, kSpeculation},
    {"--draft-min,--draft-n-min,--spec-draft-n-min", kValue, kSpeculation},
    {"--gpu-layers-draft,--ngld,--ctx-size-draft,--cd,--device-draft,--devd", kValue, kFaster},
    {"--cache-type-k-draft,--ctkd,--spec-draft-type-k,--cache-type-v-draft,--ctvd,--spec-draft-"
     "type-v",
     kValue, kFaster},
    {"--lookup-cache-static,--lcs,--lookup-cache-dynamic,--lcd", kValue, kSpeculation},
    {"--backend-sampling,--bs", kNothing, kUnlike},
    {"--threads-batch,--tb", kValue, "--threads are those of both"},
    {"--prio,--prio-batch,--poll,--poll-batch,--cpu-mask,--cpu-mask-batch,--cpu-range,--cpu-range-"
     "batch,"
     "--cpu-strict,--cpu-strict-batch,--numa",
     kValue, kBinding},
    {"--mmap,--no-mmap", kNothing, kUnlike},
    {"--mlock", kNothing, kUnlike},
    {"--direct-io,--dio", kNothing, kUnlike},
    {"--load-mode,--lm,--lazy-mode,--lzm", kValue, kUnlike},
    {"--repack,--no-repack,--nr", kNothing,
     "--pack-weights and --packed-cache say when weights are laid out"},
    {"--no-host", kNothing, kUnlike},
    {"--check-tensors", kNothing, kAlways},
    {"--perf", kNothing, kUnlike},
    {"--escape", kNothing, kUnlike},
    {"--lora-init-without-apply", kNothing, kNoAdapters},
    {"--warmup,--no-warmup,--skip-server-warmup", kNothing, "there is no warm-up"},
    {"--webui,--no-webui,--ui,--no-ui", kNothing, kServerOnly},
    {"--path,--ui-config,--webui-config,--ui-config-file,--webui-config-file", kValue, kNoPage},
    {"--ui-mcp-proxy,--webui-mcp-proxy", kNothing, kNoPage},
    {"--slots,--no-slots,--props", kNothing, "/slots and /props are always there"},
    {"--timeout,--to", kValue, kUnlike},
    {"--reuse-port", kNothing, kUnlike},
    {"--models-max", kValue, kServerOnly},
    {"--models-autoload", kNothing, kServerOnly},
    {"--tags", kValue, kUnlike},
    {"--embd-normalize", kValue, "vectors are normalised as the model's files say"},
    {"--spm-infill", kNothing, "/infill writes its parts as the model's vocabulary has them"},
    {"--mmproj-auto,--no-mmproj,--no-mmproj-auto,--mmproj-offload", kNothing, kNoImages},
    {"--image-min-tokens,--image-max-tokens,--media-path,--mmproj-device,--mmdev", kValue,
     kNoImages},
    {"--cors-methods,--cors-headers", kValue, kCors},
    {"--cors-credentials", kNothing, kCors},
    {"--reasoning-budget-message", kValue, kUnlike},
    {"--reasoning-preserve", kNothing, "the template decides it"},
    {"--prefill-assistant", kNothing, kUnlike},
    {"--xtc-threshold,--dry-base,--dry-allowed-length,--dry-penalty-last-n,--dry-sequence-breaker,"
     "--dynatemp-exp,--mirostat-lr,--mirostat-ent,--adaptive-decay",
     kValue, kUnused},
    {"--verbose,-v,--log-verbose", kNothing, kLogLevel},
    {"--log-verbosity,--lv,--verbosity", kValue, kLogLevel},
    {"--log-disable", kNothing, kLogLevel},
    {"--log-file", kValue, "lines go to stderr"},
    {"--log-colors", kWord, kUnlike},
    {"--log-jsonl,--log-prefix,--log-timestamps", kNothing, kUnlike},
    {"--offline", kNothing, kAlways},
    // SGLang
    {"--schedule-conservativeness", kValue, kUnlike},
    {"--random-seed", kValue, "requests name their seeds"},
    {"--speculative-algorithm", kValue, kSpeculation},
    {"--enable-hierarchical-cache", kNothing, kTiers},
    {"--hicache-ratio,--hicache-storage-backend,--hicache-write-policy", kValue, kTiers},
    {"--enable-dp-attention,--enable-two-batch-overlap", kNothing, kOneDevice},
    {"--load-balance-method", kValue, kOneDevice},
    {"--disaggregation-transfer-backend,--disaggregation-bootstrap-port", kValue, kUnlike},
    {"--enable-torch-compile", kNothing, kNoCompiler},
    {"--torch-compile-max-bs", kValue, kNoCompiler},
    {"--prefill-attention-backend,--decode-attention-backend,--sampling-backend,--grammar-backend",
     kValue, kUnlike},
    {"--retraction-policy,--priority-scheduling-preemption-threshold,--watchdog-timeout", kValue,
     kUnlike},
    {"--max-prefill-tokens", kValue, "--max-num-batched-tokens bounds a step"},
    {"--max-loras-per-batch,--lora-backend", kValue, kNoAdapters},
    {"--log-level-http", kValue, kLogLevel},
    {"--decode-log-interval,--tokenizer-worker-num", kValue, kUnlike},
    {"--show-time-cost,--disable-cuda-graph-padding", kNothing, kUnlike},
    {"--incremental-streaming-output,--enable-mixed-chunk", kNothing, kAlways},
    // LMDeploy and TensorRT-LLM
    {"--cache-max-entry-count,--kv-cache-free-gpu-memory-fraction,--free-gpu-memory-fraction",
     kValue, "--gpu-memory-utilization and --kv-cache-memory-bytes size the cache"},
};

// ---- accepted with one of some values

struct OnlyFlag {
  std::string_view names;
  std::string_view values;  // with commas
  std::string_view reason;
};

constexpr std::string_view kNoSampler =
    "temperature, top-k, top-p, min-p and the penalties are what there is";
constexpr std::string_view kEachRequest = "requests say it themselves";

constexpr OnlyFlag kOnlyFlags[] = {
    {"--decode-context-parallel-size,--dcp", "1", kOneDevice},
    {"--prefill-context-parallel-size,--pcp", "1", kOneDevice},
    {"--expert-parallel-size,--ep,--ep-size", "1",
     "use --tensor-parallel-size and --enable-expert-parallel"},
    {"--nnodes", "1", kOneDevice},
    {"--node-rank,-r", "0", kOneDevice},
    {"--disaggregation-mode", "null", "prompts and answers are computed in one process"},
    {"--block-size,--page-size", "16", "a page holds 16 tokens"},
    {"--stream-interval", "1", "each token is sent as it comes"},
    {"--logprobs-mode", "raw_logprobs",
     "log-probabilities are those before temperature and filters"},
    {"--response-role", "assistant", "that is the role of answers"},
    {"--chat-template-content-format", "auto,string", "templates get texts"},
    {"--quant-policy", "0", "--kv-cache-dtype int8 or fp8 shrinks keys and values"},
    {"--cpu-offload-gb", "0", "weights lie on one device"},
    {"--long-prefill-token-threshold", "0", "--tpot-target bounds steps"},
    {"--predict,--n-predict,-n", "-1", "max_tokens of a request bounds its answer"},
    {"--reasoning-format", "auto,deepseek", "requests say it, or --reasoning-parser none"},
    {"--reasoning-budget", "-1", "send thinking_token_budget with the requests"},
    {"--reasoning,--rea", "auto", "send chat_template_kwargs with the requests"},
    {"--reasoning-effort", "default", "send reasoning_effort with the requests"},
    {"--repeat-last-n", "-1", kEachRequest},
    {"--xtc-probability", "0", kEachRequest},
    {"--dry-multiplier", "0", kEachRequest},
    {"--mirostat", "0", kNoSampler},
    {"--dynatemp-range", "0", kNoSampler},
    {"--typical,--typical-p", "1", kEachRequest},
    {"--top-nsigma,--top-n-sigma", "-1", kEachRequest},
    {"--adaptive-target", "-1", kNoSampler},
    {"--presence-penalty", "0", kEachRequest},
    {"--frequency-penalty", "0", kEachRequest},
};

// ---- refused

struct RefusedFlag {
  std::string_view names;
  Takes takes;
  std::string_view reason;
};

constexpr std::string_view kNoTools = "the server runs no tools";
constexpr std::string_view kNoForms =
    "requests say it themselves: response_format, structured_outputs, grammar";
constexpr std::string_view kOneProcess = "prompts and answers are computed in one process";
constexpr std::string_view kServesOnly =
    "a server has one model or several: it is a flag of headrace serve";
constexpr std::string_view kOwnNumbers = "a model is used as its file says";
constexpr std::string_view kNoUrls =
    "nothing is downloaded: fetch the file first, then name it with -m";

constexpr RefusedFlag kRefusedFlags[] = {
    {"--tool-parser-plugin", kValue, "nothing is loaded into the server: see --tool-call-parser"},
    {"--tool-server,--tools,--tools-runtime", kValue, kNoTools},
    {"--mcp-servers-config,--mcp-servers-json", kValue, kNoTools},
    {"--agent,--ag", kNothing, kNoTools},
    {"--ssl-keyfile-password", kValue, "store the key without a password: openssl pkey"},
    {"--ssl-ciphers", kValue, "TLS 1.2 and 1.3 with OpenSSL's own choice are what there is"},
    {"--grpc", kNothing, "the server speaks HTTP only"},
    {"--headless", kNothing, "there is no second process to serve: leave it out"},
    {"--root-path,--api-prefix", kValue, "paths are as they are: a proxy can take a prefix away"},
    {"--middleware", kValue, "nothing is loaded into the server"},
    {"--tokenizer,--tokenizer-path", kValue, "a model is used with its own tokenizer"},
    {"--tokenizer-revision", kValue, "a model is used with its own tokenizer, of --revision"},
    {"--skip-tokenizer-init", kNothing, "a model is used with its own tokenizer"},
    {"--hf-overrides,--override-kv,--json-model-override-args", kValue, kOwnNumbers},
    {"--rope-scaling,--rope-scale,--rope-freq-base,--rope-freq-scale,--yarn-orig-ctx,"
     "--yarn-ext-factor,--yarn-attn-factor,--yarn-beta-slow,--yarn-beta-fast",
     kValue, kOwnNumbers},
    {"--enable-lora", kNothing, kNoAdapters},
    {"--lora-modules,--lora-paths,--lora", kValue, kNoAdapters},
    {"--lora-scaled", kValue, kNoAdapters},
    {"--control-vector,--control-vector-scaled", kValue,
     "directions that are added to hidden states are not there: adapters are (--lora-modules)"},
    {"--pooler-config,--override-pooler-config,--pooling", kValue, kServerOnly},
    {"--mmproj,--mm,--mmproj-url,--mmu", kValue, kNoImages},
    {"--enable-multimodal", kNothing, kNoImages},
    {"--enable-prompt-embeds", kNothing, "prompts are text or token ids"},
    {"--kv-transfer-config,--ec-transfer-config", kValue, kOneProcess},
    {"--kv-events-config", kValue, "events of the cache are not published"},
    {"--rpc", kValue, kOneDevice},
    {"--enable-sleep-mode", kNothing, kServesOnly},
    {"--slot-save-path", kValue, "there are no routes for it; --kv-save keeps the prefix cache"},
    {"--models-dir", kValue, kServesOnly},
    {"--models-preset", kValue, "name the models in --config, or by --models-dir"},
    {"--model-url,--mu,--docker-repo,--dr", kValue, kNoUrls},
    {"--default-chat-template-kwargs,--chat-template-kwargs", kValue,
     "send chat_template_kwargs with the requests"},
    {"--enable-force-include-usage", kNothing, "send stream_options with the requests"},
    {"--return-tokens-as-token-ids", kNothing, "send return_tokens_as_token_ids with the requests"},
    {"--special,--sp", kNothing, "send skip_special_tokens false with the requests"},
    {"--trust-request-chat-template", kNothing, "templates of clients are not run"},
    {"--num-gpu-blocks-override", kValue, "--kv-cache-memory-bytes sets the size of the cache"},
    {"--max-num-scheduled-tokens", kValue, "--max-num-batched-tokens bounds a step"},
    {"--max-total-tokens", kValue, "--kv-cache-memory-bytes sets the size of the cache"},
    {"--context-shift", kNothing, "an answer ends with the context (--max-model-len)"},
    {"--allow-auto-truncate", kNothing, "prompts that do not fit are refused"},
    {"--samplers,--sampler-seq,--sampling-seq", kValue, "their order is fixed"},
    {"--logit-bias,-l", kValue, "send logit_bias with the requests"},
    {"--grammar,--grammar-file,--json-schema,-j,--json-schema-file,--jf", kValue, kNoForms},
    {"--enable-priority-scheduling", kNothing,
     "use --policy priority --priority-order higher-first"},
    {"--schedule-low-priority-values-first", kNothing,
     "use --policy priority --priority-order lower-first"},
    {"--ignore-eos", kNothing, "send ignore_eos with the requests"},
    {"--admin-api-key", kValue, "there are no routes for it"},
    {"--cors-origins", kValue, "use --allowed-origins"},
};

std::vector<std::string> split(std::string_view names) {
  return CLI::detail::split(std::string(names), ',');
}

void warn(std::string_view name, std::string_view reason) {
  fmt::print(stderr, "headrace: warning: {} is ignored: {}\n", name, reason);
}

[[noreturn]] void refuse(const std::string& name, std::string_view reason) {
  throw CLI::ValidationError(name, fmt::format("is not supported: {}", reason));
}

// "0" and "0.0" are one number.
bool same_value(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  if (CLI::detail::lexical_cast(a, x) && CLI::detail::lexical_cast(b, y)) return x == y;
  return a == b;
}

void check_only(const std::string& name, const OnlyFlag& flag, const std::string& value) {
  const std::vector<std::string> allowed = split(flag.values);
  const auto same = [&](const std::string& each) { return same_value(each, value); };
  if (std::any_of(allowed.begin(), allowed.end(), same)) return;
  throw CLI::ValidationError(name, fmt::format("{} is not supported, only {}: {}", value,
                                               fmt::join(allowed, ", "), flag.reason));
}

bool has_own(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw(name) != nullptr;
}

// A hidden flag that hands its name and its value, empty where it has none, to `on_use`. Each name
// is a flag of its own: what is told of it is told of the name that was used.
template <class OnUse>
void add_hidden(CLI::App& app, const std::string& name, Takes takes, OnUse on_use) {
  if (has_own(app, name)) return;
  if (takes == kNothing) {
    const auto take = [name, on_use](int64_t count) {  // below 0: --x=false, which asks for nothing
      if (count > 0) on_use(name, "");
    };
    app.add_flag_function(name, take)->group("");
    return;
  }
  auto* option = app.add_option_function<std::string>(
      name, [name, on_use](const std::string& value) { on_use(name, value); });
  option->group("");
  if (takes == kWord)
    option->check(CLI::IsMember({"on", "off", "auto", "true", "false", "1", "0"}));
  if (takes != kValue) option->expected(0, 1);
}

// vLLM's switches have a twin, --no-x, which asks for what there is where --x is refused.
template <class OnUse>
void add_twin(CLI::App& app, const std::string& name, Takes takes, OnUse on_use) {
  if (takes != kNothing || !name.starts_with("--") || name.starts_with("--no-")) return;
  add_hidden(app, "--no-" + name.substr(2), kNothing, on_use);
}

}  // namespace

void add_foreign_flags(CLI::App& app) {
  for (const IgnoredFlag& flag : kIgnoredFlags) {
    const auto tell = [&flag](const std::string& name, const std::string&) {
      warn(name, flag.reason);
    };
    for (const std::string& name : split(flag.names)) {
      if (has_own(app, name)) continue;
      add_hidden(app, name, flag.takes, tell);
      add_twin(app, name, flag.takes, tell);
    }
  }
  for (const OnlyFlag& flag : kOnlyFlags) {
    for (const std::string& name : split(flag.names)) {
      add_hidden(app, name, kValue, [&flag](const std::string& used, const std::string& value) {
        check_only(used, flag, value);
      });
    }
  }
  for (const RefusedFlag& flag : kRefusedFlags) {
    for (const std::string& name : split(flag.names)) {
      if (has_own(app, name)) continue;
      add_hidden(app, name, flag.takes, [&flag](const std::string& used, const std::string&) {
        refuse(used, flag.reason);
      });
      add_twin(app, name, flag.takes, [](const std::string&, const std::string&) {});
    }
  }
}

}  // namespace headrace
