#include "apps/foreign_flags.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace headrace {
namespace {

// ---- accepted, and told

struct IgnoredFlag {
  std::string_view names;
  bool takes_value;
  std::string_view reason;
};

constexpr std::string_view kRemoved = "it was removed from vLLM";
constexpr std::string_view kOneDevice = "a model runs whole on one device (--device)";
constexpr std::string_view kNoCompiler = "nothing is compiled at run time";
constexpr std::string_view kAlways = "it is always so here";
constexpr std::string_view kNothing = "there is nothing like it here";
constexpr std::string_view kNoFetch = "nothing is downloaded";
constexpr std::string_view kFaster =
    "answers are the same without it, and there is nothing like it";

constexpr IgnoredFlag kIgnoredFlags[] = {
    {"--swap-space", true, kRemoved},
    {"--disable-log-requests", false, kRemoved},
    {"--enable-reasoning", false, kRemoved},
    {"--guided-decoding-backend", true, kRemoved},
    {"--num-scheduler-steps", true, kRemoved},
    {"--use-v2-block-manager", false, kRemoved},
    {"--task", true, kRemoved},
    {"--max-seq-len-to-capture", true, kRemoved},
    {"--max-num-partial-prefills", true, kRemoved},
    {"--calculate-kv-scales", false, kRemoved},
    {"--gpu-layers,--n-gpu-layers,--ngl", true, kOneDevice},
    {"--split-mode,--sm", true, kOneDevice},
    {"--compilation-config,--cc", true, kNoCompiler},
    {"--optimization-level,-O", true, kNoCompiler},
    {"--performance-mode", true, kNoCompiler},
    {"--disable-custom-all-reduce", false, kOneDevice},
    {"--attention-backend", true, kNothing},
    {"--structured-outputs-config", true, kNothing},
    {"--flash-attn,--fa", true, kAlways},
    {"--cont-batching,--cb", false, kAlways},
    {"--jinja", false, kAlways},
    {"--metrics,--enable-metrics", false, kAlways},
    {"--enable-prompt-tokens-details,--enable-cache-report", false, kAlways},
    {"--enable-server-load-tracking", false, kAlways},
    {"--enable-request-id-headers", false, "an X-Request-Id comes back as it was sent"},
    {"--batch-size,-b", true, "steps are bounded by --max-num-batched-tokens"},
    {"--trust-remote-code", false, "models bring no code here"},
    {"--revision,--code-revision,--tokenizer-revision", true, kNoFetch},
    {"--hf-token", true, kNoFetch},
    {"--download-dir", true, kNoFetch},
    {"--speculative-config,--sc", true, kFaster},
    {"--speculative-algorithm", true, kFaster},
    {"--speculative-model,--spec-draft-model,--md", true, kFaster},
    {"--num-speculative-tokens", true, kFaster},
    {"--cache-reuse", true, kFaster},
    {"--tokenizer-mode", true, kNothing},
    {"--config-format", true, kNothing},
    {"--runner", true, kNothing},
    {"--convert", true, kNothing},
    {"--hf-overrides", true, kNothing},
    {"--distributed-executor-backend", true, kNothing},
    {"--disable-hybrid-kv-cache-manager", false, kNothing},
    {"--numa-bind", false, "--cpu-bind places threads"},
    {"--mm-processor-cache-gb", true, kNothing},
    {"--limit-mm-per-prompt", true, kNothing},
    {"--safetensors-load-strategy", true, kNothing},
    {"--prefix-caching-hash-algo", true, kNothing},
    {"--kv-offloading-backend", true, kNothing},
    {"--schedule-conservativeness", true, kNothing},
    {"--random-seed", true, "requests name their seeds"},
    {"--mmap,--no-mmap", false, kNothing},
    {"--mlock", false, kNothing},
    {"--warmup,--no-warmup", false, "there is no warm-up"},
    {"--webui,--no-webui,--ui,--no-ui", false, "there is no page"},
    {"--slots,--no-slots,--props", false, "there is no such route"},
    {"--timeout,--to", true, kNothing},
    {"--verbose,-v", false, "--log-level debug tells more"},
    {"--log-disable", false, "--log-level off tells nothing"},
    {"--enable-log-requests,--log-requests", false, "requests are not logged"},
    {"--otlp-traces-endpoint", true, "traces are not sent"},
    {"--disable-log-stats", false, kNothing},
    {"--disable-uvicorn-access-log", false, kNothing},
};

// ---- accepted with one of some values

struct OnlyFlag {
  std::string_view names;
  std::string_view values;  // with commas
  std::string_view reason;
};

constexpr OnlyFlag kOnlyFlags[] = {
    {"--tensor-parallel-size,--tp,--tp-size", "1", kOneDevice},
    {"--pipeline-parallel-size,--pp,--pp-size", "1", kOneDevice},
    {"--data-parallel-size,--dp,--dp-size", "1", kOneDevice},
    {"--decode-context-parallel-size,--dcp", "1", kOneDevice},
    {"--nnodes", "1", kOneDevice},
    {"--node-rank", "0", kOneDevice},
    {"--kv-cache-dtype", "auto", "keys and values have the type of the model's activations"},
    {"--cache-type-k,--ctk", "f16", "keys are not quantised"},
    {"--cache-type-v,--ctv", "f16", "values are not quantised"},
    {"--block-size,--page-size", "16", "a page holds 16 tokens"},
    {"--stream-interval", "1", "each token is sent as it comes"},
    {"--logprobs-mode", "raw_logprobs",
     "log-probabilities are those before temperature and filters"},
    {"--response-role", "assistant", "that is the role of answers"},
    {"--chat-template-content-format", "auto,string", "templates get texts"},
    {"--cpu-offload-gb", "0", "weights lie on one device"},
    {"--long-prefill-token-threshold", "0", "--tpot-target bounds steps"},
};

// ---- refused

struct RefusedFlag {
  std::string_view names;
  bool takes_value;
  std::string_view reason;
};

constexpr std::string_view kNoParsers =
    "answers are given as the model writes them: tool calls and reasoning are not parsed";
constexpr std::string_view kNoTls = "the server speaks plain HTTP: a proxy in front of it ends TLS";
constexpr std::string_view kNoAdapters = "adapters are not supported";
constexpr std::string_view kNoEmbeddings = "embeddings and ranks are not served";

constexpr RefusedFlag kRefusedFlags[] = {
    {"--reasoning-parser", true, kNoParsers},
    {"--tool-call-parser", true, kNoParsers},
    {"--enable-auto-tool-choice", false, kNoParsers},
    {"--ssl-keyfile,--ssl-key-file", true, kNoTls},
    {"--ssl-certfile,--ssl-cert-file", true, kNoTls},
    {"--ssl-ca-certs", true, kNoTls},
    {"--uds", true, "the server listens on TCP only: --host and --port"},
    {"--root-path,--api-prefix", true, "paths are as they are: a proxy can take a prefix away"},
    {"--tokenizer,--tokenizer-path", true, "a model is used with its own tokenizer"},
    {"--enable-lora", false, kNoAdapters},
    {"--lora-modules,--lora-paths,--lora", true, kNoAdapters},
    {"--embeddings,--embedding", false, kNoEmbeddings},
    {"--reranking,--rerank", false, kNoEmbeddings},
    {"--mmproj", true, "models see no images"},
    {"--kv-transfer-config", true, "prompts and answers are computed in one process"},
    {"--enable-sleep-mode", false, "there are no routes for it"},
    {"--default-chat-template-kwargs,--chat-template-kwargs", true,
     "send chat_template_kwargs with the requests"},
    {"--enable-force-include-usage", false, "send stream_options with the requests"},
    {"--trust-request-chat-template", false, "templates of clients are not run"},
    {"--num-gpu-blocks-override", true, "--kv-cache-memory-bytes sets the size of the cache"},
    {"--max-num-scheduled-tokens", true, "--max-num-batched-tokens bounds a step"},
    {"--max-total-tokens", true, "--kv-cache-memory-bytes sets the size of the cache"},
};

std::string_view first_of(std::string_view names) { return names.substr(0, names.find(',')); }

void warn(std::string_view names, std::string_view reason) {
  fmt::print(stderr, "headrace: warning: {} is ignored: {}\n", first_of(names), reason);
}

[[noreturn]] void refuse(std::string_view names, std::string_view reason) {
  throw CLI::ValidationError(std::string(first_of(names)),
                             fmt::format("is not supported: {}", reason));
}

void check_only(const OnlyFlag& flag, const std::string& value) {
  const auto allowed = CLI::detail::split(std::string(flag.values), ',');
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  throw CLI::ValidationError(std::string(first_of(flag.names)),
                             fmt::format("{} is not supported, only {}: {}", value,
                                         fmt::join(allowed, ", "), flag.reason));
}

bool is_free(const CLI::App& app, std::string_view names) {
  for (const std::string& name : CLI::detail::split(std::string(names), ',')) {
    if (app.get_option_no_throw(name) != nullptr) return false;
  }
  return true;
}

// A hidden flag that hands its value, empty where it takes none, to `on_use`.
template <class OnUse>
void add_hidden(CLI::App& app, std::string_view names, bool takes_value, OnUse on_use) {
  if (!is_free(app, names)) return;
  if (takes_value) {
    app.add_option_function<std::string>(std::string(names), on_use)->group("");
  } else {
    app.add_flag_function(std::string(names), [on_use](int64_t) { on_use(""); })->group("");
  }
}

}  // namespace

void add_foreign_flags(CLI::App& app) {
  for (const IgnoredFlag& flag : kIgnoredFlags) {
    add_hidden(app, flag.names, flag.takes_value,
               [&flag](const std::string&) { warn(flag.names, flag.reason); });
  }
  for (const OnlyFlag& flag : kOnlyFlags) {
    add_hidden(app, flag.names, true,
               [&flag](const std::string& value) { check_only(flag, value); });
  }
  for (const RefusedFlag& flag : kRefusedFlags) {
    add_hidden(app, flag.names, flag.takes_value,
               [&flag](const std::string&) { refuse(flag.names, flag.reason); });
  }
}

}  // namespace headrace
