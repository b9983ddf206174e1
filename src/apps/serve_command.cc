#include "apps/serve_command.h"

#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "apps/batch_beside.h"
#include "apps/etcd_flags.h"
#include "apps/hub_fetcher.h"
#include "apps/limit_flags.h"
#include "apps/model_download.h"
#include "apps/seccomp_filter.h"
#include "apps/serve_replicas.h"
#include "apps/served_models.h"
#include "apps/signal_watch.h"
#include "apps/trace_flags.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/adapter_flags.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/pooling_flags.h"
#include "cli/sampling_flags.h"
#include "server/chat_input.h"
#include "server/http_post.h"
#include "server/inherited_socket.h"
#include "server/request_guard.h"
#include "server/server.h"
#include "stack/model_names.h"
#include "text/output/dialect.h"
#include "weights/generation_config.h"

namespace headrace {
namespace {

constexpr const char* kServeFooter = R"(Examples:
  headrace serve
  headrace serve model.gguf --host 0.0.0.0 --port 8000 --api-key secret
  headrace serve -m model.gguf --served-model-name smol --max-num-seqs 32 --max-model-len 4k

The OpenAI API is under /v1. SIGTERM and Ctrl-C let answers under way finish; a second one ends them
with an error, a third one the program.)";

constexpr const char* kGroup = "Server";  // of the help

struct ServeFlags {
  ModelFlags model{.log_level = LogLevel::kInfo};
  ModelListFlags list;
  // All that are served, but for the default one, with what is said of each alone.
  std::vector<NamedModel> named_models;
  std::vector<ModelSettings> settings;
  bool has_several() const {
    return named_models.size() > 1 || !list.dir.empty() || !list.settings.empty();
  }
  SamplingDefaults sampling;  // of requests that do not say it themselves
  ServerOptions server;
  std::vector<std::string> names;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  KeyLimits key_limits;  // of keys that name none
  std::string origins;   // a JSON array, or one origin
  bool seccomp = false, pull = false, ends_forms = true;
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  int32_t answer_tokens = -1;               // of requests that name no length; below 0: any
  std::string template_kwargs;              // a JSON object; empty: none
  int32_t thought_budget = -1;              // 0: templates are told to think nothing
  Json template_defaults = Json::object();  // what both of them say
  std::string batch_input, batch_output;
  std::string client_certificates = "none";
  std::string unix_socket_mode;  // empty: its owner's alone
  int32_t replicas = 1;
  EtcdFlags etcd;
};

void add_unix_socket_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--uds", flags.server.unix_socket,
                 "Listens on this UNIX socket instead of host and port; as does a --host that ends "
                 "in .sock")
      ->type_name("PATH")
      ->group(kGroup);
  app.add_option("--uds-mode", flags.unix_socket_mode,
                 "The rights of its file, octal: 660 lets its group in (default: 600)")
      ->check(CLI::IsMember({"600", "660", "666", "0600", "0660", "0666"}))
      ->type_name("MODE")
      ->group(kGroup);
}

void add_tls_flags(CLI::App& app, ServeFlags& flags) {
  TlsOptions& tls = flags.server.tls;
  auto* certificate =
      app.add_option(
             "--ssl-certfile,--ssl-cert-file", tls.certificate_file,
             "Serves HTTPS with this certificate and those that lead to its root, PEM; read "
             "again when the file changes, and on SIGHUP (default: plain HTTP)")
          ->type_name("FILE")
          ->group(kGroup);
  app.add_option("--ssl-keyfile,--ssl-key-file", tls.key_file,
                 "Its key, PEM without a password (default: in the same file)")
      ->type_name("FILE")
      ->group(kGroup)
      ->needs(certificate);
  app.add_option("--ssl-ca-certs", tls.ca_file,
                 "Who may have signed the certificates of clients, PEM: with --ssl-cert-reqs")
      ->type_name("FILE")
      ->group(kGroup)
      ->needs(certificate);
  app.add_option("--ssl-cert-reqs", flags.client_certificates,
                 "Whether clients show a certificate: none, optional, required, or 0, 1, 2 "
                 "(default: none)")
      ->check(CLI::IsMember({"none", "optional", "required", "0", "1", "2"}))
      ->type_name("HOW")
      ->group(kGroup)
      ->needs(certificate);
}

void add_http_flags(CLI::App& app, ServeFlags& flags) {
  ServerOptions& server = flags.server;
  app.add_option("--host", server.host,
                 "The address to listen on, or a name for it as localhost; 0.0.0.0: all (default: "
                 "127.0.0.1)")
      ->type_name("HOST")
      ->group(kGroup);
  app.add_option("--port", server.port, "The port; 0: any free one (default: 8000)")
      ->check(CLI::Range(0, 65535))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--served-model-name,--alias,--model-name,-a", flags.names,
                 "Names that requests may use; the first is shown (default: the file's name)")
      ->type_name("NAME...")
      ->group(kGroup);
  app.add_option("--api-key", flags.api_keys,
                 "A key that clients must send (repeatable; default: $HEADRACE_API_KEY, "
                 "$VLLM_API_KEY, $LLAMA_API_KEY); others see it in ps until it is read: better a "
                 "file or those")
      ->type_name("KEY")
      ->group(kGroup);
  app.add_option("--api-key-file", flags.api_key_file,
                 "More keys, one a line: KEY, or {\"key\": ..., \"name\": ..., \"group\": ..., and "
                 "limits}")
      ->type_name("FILE")
      ->group(kGroup);
  app.add_option("--allowed-origins", flags.origins,
                 "Web pages that may call, as a JSON list; [\"*\"]: all (default: none)")
      ->type_name("JSON")
      ->group(kGroup);
  app.add_option("--allowed-hosts", server.allowed_hosts,
                 "Names that clients may call the server by; *: all (default: on loopback "
                 "localhost and addresses, else all)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...")
      ->group(kGroup);
  app.add_option("--trusted-proxy", server.trusted_proxies,
                 "Proxies whose X-Forwarded-For says who the client is (default: none)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ADDRESS,...")
      ->group(kGroup);
  app.add_option("--metrics-key", server.metrics_key,
                 "A key that /metrics asks for; any API key will do, too (default: it is open)")
      ->type_name("KEY")
      ->group(kGroup);
  app.add_flag("--seccomp", flags.seccomp,
               "Once ready, give up all system calls that serving does not need")
      ->group(kGroup);
  app.add_flag("--webui,!--no-webui,--ui,!--no-ui", server.page,
               "Answer browsers at / with a page for chats and a dashboard (default: yes)")
      ->group(kGroup);
  app.add_flag("--access-log,!--no-access-log,!--disable-uvicorn-access-log", server.access_log,
               "Log a line for each request: method, path, status, time, bytes, id; no prompts "
               "(at level info; successful /health, /slots, /metrics at level debug)")
      ->group(kGroup);
  app.add_option("--http-threads,--threads-http,--api-server-count", server.http_threads,
                 "Threads for HTTP, and as many for text (default: 2)")
      ->check(CLI::Range(1, 256))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--shutdown-timeout", server.drain_seconds_max,
                 "How long answers under way may go on after SIGTERM (default: 30)")
      ->check(number_between(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group(kGroup);
}

void add_output_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--tool-call-parser", flags.tool_call_parser,
                 "How the model writes calls of tools, by vLLM's or SGLang's name (hermes, "
                 "llama3_json, mistral, ...); none: they stay text (default: auto, from its chat "
                 "template)")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_option("--reasoning-parser", flags.reasoning_parser,
                 "The same of its thoughts (qwen3, deepseek_r1, ...) (default: auto)")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_flag("--end-forms,!--no-end-forms", flags.ends_forms,
               "Structured output: an answer ends its form within max_tokens (default: on)")
      ->group(kGroup);
}

// What requests get that do not say it themselves.
void add_answer_flags(CLI::App& app, ServeFlags& flags) {
  app.add_option_function<int64_t>(
         "--seed,-s",
         [&flags](const int64_t& seed) {
           flags.sampling.seed.reset();
           if (seed < 0) return;
           flags.sampling.seed = static_cast<uint64_t>(seed);
           flags.model.stack.load.dummy_seed = static_cast<uint64_t>(seed);
         },
         "The seed of requests that name none: each of them then has the same random numbers; "
         "also of the weights with --load-format dummy; -1: a new one for each request (default: "
         "-1)")
      ->check(CLI::Range(int64_t{-1}, std::numeric_limits<int64_t>::max()))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("-n,--n-predict,--predict", flags.answer_tokens,
                 "Most tokens of an answer whose request names no length; -1: as many as the "
                 "context holds, and of /v1/completions 16 (default: -1)")
      ->check(CLI::Range(-2, std::numeric_limits<int32_t>::max()))
      ->type_name("N")
      ->group(kGroup);
  app.add_option("--default-chat-template-kwargs,--chat-template-kwargs", flags.template_kwargs,
                 "Variables of the chat template for requests that do not set them, as "
                 "{\"enable_thinking\": false}")
      ->type_name("JSON")
      ->group(kGroup);
  app.add_option("--reasoning-budget", flags.thought_budget,
                 "0: templates are told that there is no thinking (enable_thinking false), unless "
                 "a request says otherwise; -1: the template decides (default: -1)")
      ->check(CLI::IsMember({-1, 0}))
      ->type_name("-1|0")
      ->group(kGroup);
  app.add_flag("--enable-force-include-usage", flags.server.force_usage,
               "Streams end with their usage, whether the request asks for it or not")
      ->group(kGroup);
}

void add_batch_job_flags(CLI::App& app, ServeFlags& flags) {
  auto* input = app.add_option("--batch-input", flags.batch_input,
                               "A batch job beside the live traffic: requests, JSON lines as for "
                               "headrace batch")
                    ->type_name("FILE")
                    ->group("Server");
  auto* output = app.add_option("--batch-output", flags.batch_output, "Where its answers go")
                     ->type_name("FILE")
                     ->group("Server");
  input->needs(output);
  output->needs(input);
  BatchServiceOptions& batches = flags.server.batches;
  auto* folder = app.add_option("--batch-dir", batches.folder,
                                "Serves /v1/files and /v1/batches, and keeps both in this folder")
                     ->type_name("FOLDER")
                     ->group("Server");
  app.add_option("--batch-dir-bytes", batches.files.bytes_max,
                 "Most bytes of files of each API key (default: 4g)")
      ->transform(size_between(1, int64_t{1} << 50))
      ->type_name("N")
      ->group("Server")
      ->needs(folder);
  app.add_option("--batch-dir-files", batches.files.files_max,
                 "Most files of each API key (default: 1000)")
      ->transform(size_between(1, 1 << 20))
      ->type_name("N")
      ->group("Server")
      ->needs(folder);
}

// The first of these that is set: unlike an argument, nobody else on the machine can read it.
void add_key_of_environment(std::vector<std::string>& keys) {
  for (const char* name : {"HEADRACE_API_KEY", "VLLM_API_KEY", "LLAMA_API_KEY"}) {
    const char* key = std::getenv(name);
    if (keys.empty() && key != nullptr && *key != '\0') keys.push_back(key);
  }
}

// The address that a name stands for; IPv4 goes first. Addresses stay as they are.
Result<std::string> resolve_host(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return invalid_argument(fmt::format("--host {}: {}: use an address of this machine, or 0.0.0.0",
                                        host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  const addrinfo* best = found;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (best->ai_family != AF_INET && each->ai_family == AF_INET) best = each;
  }
  char text[NI_MAXHOST];
  if (getnameinfo(best->ai_addr, best->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) !=
      0) {
    return invalid_argument(fmt::format("--host {}: it has no address", host));
  }
  return std::string(text);
}

Status apply_tls_flags(ServeFlags& flags) {
  TlsOptions& tls = flags.server.tls;
  const std::string& how = flags.client_certificates;
  tls.client_certificates = how == "required" || how == "2"   ? ClientCertificates::kRequired
                            : how == "optional" || how == "1" ? ClientCertificates::kOptional
                                                              : ClientCertificates::kNone;
  const bool asked = tls.client_certificates != ClientCertificates::kNone;
  if (asked && tls.ca_file.empty()) {
    return invalid_argument("--ssl-cert-reqs: name who signs the certificates: --ssl-ca-certs");
  }
  if (!asked && !tls.ca_file.empty()) {
    log_warning("--ssl-ca-certs: clients are not asked for certificates: --ssl-cert-reqs required");
  }
  return ok_status();
}

// Where it listens, and who may come there.
Status apply_address_flags(const ServeFlags& flags, ServerOptions& server) {
  if (server.unix_socket.empty() && server.host.ends_with(".sock")) {
    server.unix_socket = server.host;
  }
  const bool on_network = server.unix_socket.empty();
  if (!on_network && server.listening_socket >= 0) {
    return invalid_argument("--uds: a socket was handed over (LISTEN_FDS): leave out one of both",
                            "uds");
  }
  if (on_network && !flags.unix_socket_mode.empty()) {
    return invalid_argument("--uds-mode is of a UNIX socket: add --uds PATH", "uds-mode");
  }
  if (on_network) {
    HR_ASSIGN_OR_RETURN(server.host, resolve_host(server.host));
  } else if (!flags.unix_socket_mode.empty()) {
    server.unix_socket_mode = static_cast<uint32_t>(std::stoul(flags.unix_socket_mode, nullptr, 8));
  }
  const bool open = on_network ? !is_loopback_host(server.host) : server.unix_socket_mode != 0600;
  if (server.api_keys.empty() && open) {
    log_warning(
        "whoever reaches {} may use this server: give it keys (--api-key-file), or listen on {}",
        on_network ? server.host : server.unix_socket,
        on_network ? "127.0.0.1" : "a socket of --uds-mode 600");
  }
  return ok_status();
}

Status apply_answer_flags(ServeFlags& flags) {
  if (flags.thought_budget == 0) {
    flags.template_defaults.set("enable_thinking", false).set("thinking", false);
  }
  if (flags.template_kwargs.empty()) return ok_status();
  const Result<Json> kwargs = parse_json(flags.template_kwargs);
  Status status = kwargs.status();
  if (status.ok()) status = check_template_kwargs(*kwargs, flags.server.requests);
  if (!status.ok()) return status.with_context("--default-chat-template-kwargs");
  flags.template_defaults.merge(kwargs->as_object());
  return ok_status();
}

Status apply_server_flags(ServeFlags& flags) {
  ServerOptions& server = flags.server;
  HR_RETURN_IF_ERROR(apply_tls_flags(flags));
  // Their names, before a model is loaded.
  HR_RETURN_IF_ERROR(choose_tool_dialect(flags.tool_call_parser, "").status());
  HR_RETURN_IF_ERROR(choose_reasoning_dialect(flags.reasoning_parser, "").status());
  add_key_of_environment(flags.api_keys);
  for (const std::string& secret : flags.api_keys) {
    server.api_keys.emplace_back(secret).limits = flags.key_limits;
  }
  if (!flags.api_key_file.empty()) {
    HR_ASSIGN_OR_RETURN(const auto keys, read_api_key_file(flags.api_key_file, flags.key_limits));
    server.api_keys.insert(server.api_keys.end(), keys.begin(), keys.end());
  }
  if (server.api_keys.empty() && flags.key_limits != KeyLimits{}) {
    return invalid_argument("limits of API keys need keys: add --api-key or --api-key-file");
  }
  HR_RETURN_IF_ERROR(apply_address_flags(flags, server));
  if (flags.seccomp && server.traces.enabled()) {
    return invalid_argument(
        "--seccomp gives up to open connections, which --otlp-traces-endpoint needs: drop one");
  }
  take_trace_endpoint_of_environment(flags.seccomp, server.traces);
  server.handle_signals = false;  // SignalWatch does
  HR_ASSIGN_OR_RETURN(server.allowed_origins, parse_origins(flags.origins));
  return ok_status();
}

ServedModelOptions model_options(const ServeFlags& flags) {
  return {.stack = flags.model.stack,
          .sampling = flags.sampling,
          .tool_call_parser = flags.tool_call_parser,
          .reasoning_parser = flags.reasoning_parser,
          .ends_forms = flags.ends_forms,
          .answer_tokens = flags.answer_tokens,
          .template_defaults = flags.template_defaults};
}

// The flags that a model may have of its own.
void add_flags_of_a_model(CLI::App& app, ServeFlags& flags, ModelArgument argument) {
  add_output_flags(app, flags);
  add_pooling_flags(app, flags.model.stack.pooling);
  add_adapter_flags(app, flags.model.stack.adapters);
  add_model_flags(app, flags.model, argument);
  add_generation_config_flags(app, flags.model);
  add_chosen_sampling_flags(app, flags.sampling, {});
  add_template_flag(app, flags.model);
  add_engine_flags(app, flags.model);
}

// One of several models: with the flags of all, and then its own.
Result<ServedModelSpec> spec_of(const ServeFlags& all, const NamedModel& model) {
  const auto settings =
      std::find_if(all.settings.begin(), all.settings.end(),
                   [&](const ModelSettings& each) { return each.name == model.name; });
  if (settings == all.settings.end()) return model_spec(model_options(all), model, {});
  ServeFlags own = all;
  own.model.stack.model = model.path;
  CLI::App app("", "serve");
  app.option_defaults()->always_capture_default();
  add_flags_of_a_model(app, own, ModelArgument::kFlag);
  const auto read = parse_arguments(app, settings->arguments);
  Status status = read.status();
  if (status.ok()) status = apply_model_flags(own.model);
  if (status.ok()) status = choose_tool_dialect(own.tool_call_parser, "").status();
  if (status.ok()) status = choose_reasoning_dialect(own.reasoning_parser, "").status();
  if (!status.ok()) return status.with_context(fmt::format("--models: {}", model.name));
  ServedModelSpec spec = model_spec(model_options(own), model, {});
  spec.names.insert(spec.names.end(), settings->aliases.begin(), settings->aliases.end());
  spec.idle_seconds = std::max(0.0, settings->idle_seconds);
  return spec;
}

// Loads the model behind a server that already listens.
class BackgroundLoad {
 public:
  BackgroundLoad(Server& server, const ServeFlags& flags, BatchBeside* batch)
      : server_(server), flags_(flags), batch_(batch), thread_([this] { run(); }) {}

  bool done() const { return done_; }
  void join() { thread_.join(); }
  // Why there is no model. REQUIRES: join()
  const Status& status() const { return status_; }

 private:
  void run() {
    status_ = load();
    done_ = true;
    if (!status_.ok()) server_.stop();
  }

  Status load() { return flags_.has_several() ? serve_several() : serve_one(); }

  // Each is loaded when it is asked for.
  Status serve_several() {
    std::vector<ServedModelSpec> specs;
    for (const NamedModel& model : flags_.named_models) {
      HR_ASSIGN_OR_RETURN(ServedModelSpec spec, spec_of(flags_, model));
      specs.push_back(std::move(spec));
    }
    ModelPoolOptions pool = pool_options(flags_.list, flags_.model.stack);
    pool.has_default = !flags_.model.models.empty();
    pool.grows = flags_.list.pulls;
    if (flags_.list.pulls) {
      fetcher_ = std::make_unique<HubFetcher>(
          flags_.list.dir, [this](const NamedModel& model) { return spec_of(flags_, model); });
      server_.state().fetches.allow(*fetcher_);
    }
    HR_RETURN_IF_ERROR(server_.set_models(pool, std::move(specs), std::nullopt));
    std::string names;
    for (const NamedModel& model : flags_.named_models) {
      names += (names.empty() ? "" : ", ") + model.name;
    }
    fmt::print("ready: {} models, loaded when they are asked for: {}\n", flags_.named_models.size(),
               names);
    std::fflush(stdout);
    return ok_status();
  }

  // It stays as it is, unless it may sleep.
  Status serve_one() {
    const ServedModelOptions options = model_options(flags_);
    const ModelPoolOptions pool = pool_options(flags_.list, options.stack);  // of what is free now
    HR_ASSIGN_OR_RETURN(LoadedStack loaded, load_served_stack(options, LoadReport::kProgressLine));
    stack_ = std::make_shared<LoadedStack>(std::move(loaded));
    const StackInfo& info = stack_->info();
    const bool named = !flags_.named_models.empty();
    const std::string& shown = named ? flags_.named_models.front().name : info.model_name;
    ServedModelSpec spec = model_spec(options, {shown, info.model_path}, flags_.names);
    ServedModel served = served_model_of(*stack_, options);
    served.names = spec.names;
    served.other_names = spec.other_names;
    const std::string name = served.names.front();
    const std::string sampling = to_string(served.sampling);
    if (flags_.list.comes_and_goes()) {
      HR_RETURN_IF_ERROR(
          server_.set_models(pool, {std::move(spec)}, ModelInstance{std::move(served), stack_}));
    } else {
      HR_RETURN_IF_ERROR(server_.set_ready(std::move(served)));
    }
    if (flags_.seccomp) HR_RETURN_IF_ERROR(allow_only_serving());
    if (batch_ != nullptr) batch_->start(server_.state());
    tell_ready(name, sampling);
    if (flags_.list.comes_and_goes()) stack_.reset();  // the server's
    return ok_status();
  }

  void tell_ready(const std::string& name, const std::string& sampling) const {
    const StackInfo& info = stack_->info();
    const char* length = stack_->embedder ? "texts of up to" : "context";
    if (stack_->embedder) {
      log_info("{}", stack_->embedder->facts().gives);
    } else if (const ModelLease model = server_.state().models.look_at(0)) {
      log_info("chats: tool calls are read as {}, reasoning as {}", model->output.tools_name(),
               model->output.reasoning_name());
    }
    if (!sampling.empty()) {
      log_info("sampling of requests that do not say it themselves: {}", sampling);
    }
    if (!info.memory_plan.empty()) {
      fmt::print("{}: {}\n{}: {}\n", info.device, info.memory_plan, name, info.batch_shape);
    }
    fmt::print("ready: {} ({}), {} threads, {} {} tokens, loaded in {:.2f} s\n", name,
               info.weight_types, info.threads, length, info.max_model_len, info.load_seconds);
    std::fflush(stdout);
  }

  Server& server_;
  const ServeFlags& flags_;
  BatchBeside* const batch_;             // null: none
  std::shared_ptr<LoadedStack> stack_;   // of one model that stays
  std::unique_ptr<HubFetcher> fetcher_;  // none: clients may fetch nothing
  Status status_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

std::string address_of(const ServerOptions& server, uint16_t port) {
  const char* protocol = server.tls.enabled() ? "https" : "http";
  if (server.unix_socket.empty()) return fmt::format("{}://{}:{}", protocol, server.host, port);
  return fmt::format("{}+unix:{}", protocol, server.unix_socket);
}

// Which models there are, and that no flag of one model is given to several.
Status apply_model_list_flags(ServeFlags& flags) {
  if (flags.list.pulls && (flags.list.dir.empty() || flags.replicas > 1)) {
    return invalid_argument(
        "--allow-pull is for one server with --models-dir FOLDER: where what comes is kept");
  }
  HR_ASSIGN_OR_RETURN(flags.named_models, list_models(flags.model.models, flags.list.dir,
                                                      flags.list.pulls ? EmptyFolder::kMayBe
                                                                       : EmptyFolder::kIsAnError));
  HR_ASSIGN_OR_RETURN(flags.settings, read_model_settings(flags.list.settings));
  for (const ModelSettings& model : flags.settings) {
    const auto same = [&](const NamedModel& each) { return each.name == model.name; };
    if (!model.path.empty()) {
      HR_ASSIGN_OR_RETURN(const std::string path, local_model(model.path));
      flags.named_models.push_back({model.name, path});
    } else if (std::none_of(flags.named_models.begin(), flags.named_models.end(), same)) {
      return invalid_argument(fmt::format("--models: {}: path is missing", model.name), "models");
    }
  }
  if (!flags.named_models.empty()) flags.model.stack.model = flags.named_models.front().path;
  flags.model.needs_model = flags.list.dir.empty();
  const bool several = flags.has_several();
  if (!several && !flags.list.comes_and_goes()) return ok_status();
  const auto refuse = [](std::string_view flag, std::string_view why) {
    return invalid_argument(fmt::format("{} is for one model that stays: {}", flag, why));
  };
  if (several && !flags.names.empty()) {
    return refuse("--served-model-name", "name several by -m NAME=PATH");
  }
  if (!flags.batch_input.empty() || !flags.server.batches.folder.empty()) {
    return refuse("--batch-input, --batch-dir", "start a server for them");
  }
  if (flags.seccomp) return refuse("--seccomp", "loading another needs what it gives up");
  if (several && flags.model.stack.adapters.wanted()) {
    return refuse("--lora-modules, --enable-lora", "each of several has its own, in --models");
  }
  if (flags.model.stack.adapters.enabled) {
    return refuse("--enable-lora", "name adapters at the start (--lora-modules)");
  }
  if (several && !flags.model.stack.engine.kv_save_path.empty()) {
    return refuse("--kv-save", "several would write one file");
  }
  return ok_status();
}

Result<int> run(ServeFlags& flags) {
  const bool has_keys = !flags.api_keys.empty();  // on the command line
  HR_ASSIGN_OR_RETURN(flags.server.listening_socket, take_inherited_socket());
  HR_RETURN_IF_ERROR(pull_missing_models(flags.model, flags.pull));
  HR_RETURN_IF_ERROR(apply_model_list_flags(flags));
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  HR_RETURN_IF_ERROR(apply_server_flags(flags));
  HR_RETURN_IF_ERROR(apply_answer_flags(flags));
  HR_ASSIGN_OR_RETURN(auto registration, etcd_registration(flags.etcd, flags.server));
  if (flags.replicas > 1) {
    return serve_replicas({.count = flags.replicas,
                           .server = flags.server,
                           .stack = flags.model.stack,
                           .keys_in_arguments = has_keys,
                           .has_batch = !flags.batch_input.empty(),
                           .registers = registration.has_value()});
  }
  ::signal(SIGPIPE, SIG_IGN);  // a client that leaves is an error of its connection only
  SignalWatch signals(flags.server.tls.enabled() ? std::vector<int>{SIGHUP} : std::vector<int>());
  std::unique_ptr<BatchBeside> batch;
  if (!flags.batch_input.empty()) {
    HR_ASSIGN_OR_RETURN(batch, BatchBeside::open({.input = flags.batch_input,
                                                  .output = flags.batch_output,
                                                  .json = flags.server.requests.json,
                                                  .has_keys = !flags.server.api_keys.empty()}));
  }
  HR_ASSIGN_OR_RETURN(const auto server, Server::create(flags.server));
  HR_RETURN_IF_ERROR(server->start());
  fmt::print("listening on {}\n", address_of(flags.server, server->port()));
  std::fflush(stdout);
  const auto entry = enter_etcd(std::move(registration), flags.server.host, server->port());
  int signal_count = 0;  // under the watch's lock
  signals.set_handler([&](int signal) {
    if (signal == SIGHUP) return server->reload_certificates();
    switch (++signal_count) {
      case 1:
        return server->drain();
      case 2:
        return server->cut();
      default:
        _exit(128 + signal);
    }
  });
  BackgroundLoad load(*server, flags, batch.get());
  const bool finished_all = server->wait();
  server->state().fetches.stop();
  // Stopped while loading: nothing to finish, and a load cannot be cut short.
  if (!load.done() || server->state().models.is_loading()) {
    std::fflush(nullptr);
    _exit(0);
  }
  load.join();
  if (batch) batch->stop();
  signals.set_handler(nullptr);
  HR_RETURN_IF_ERROR(load.status());
  if (!finished_all) log_warning("answers were cut off");
  return 0;
}

}  // namespace

SubcommandRun define_serve(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  // A server lives long enough to use all of the pool.
  flags->model.stack.runner.kv_populate = KvPopulate::kIdle;
  add_http_flags(app, *flags);
  add_unix_socket_flags(app, *flags);
  add_tls_flags(app, *flags);
  add_trace_flags(app, flags->server.traces);
  add_queue_limit_flags(app, flags->model.stack.engine.scheduler, flags->server.requests);
  add_key_limit_flags(app, flags->key_limits);
  add_size_limit_flags(app, flags->server.http, flags->server.requests);
  add_answer_flags(app, *flags);
  app.add_option("--model-load-timeout", flags->server.requests.model_load_seconds_max,
                 "Longest wait of a request for its model to be loaded; then it is told 503 (0: no "
                 "bound) (default: 300)")
      ->check(number_between(0.0, 86400.0))
      ->type_name("SECONDS")
      ->group("Several models");
  add_replica_flag(app, flags->replicas);
  add_etcd_flags(app, flags->etcd);
  add_batch_job_flags(app, *flags);
  add_model_list_flags(app, flags->list);
  add_flags_of_a_model(app, *flags, ModelArgument::kSeveral);
  add_pull_flag(app, flags->pull);
  app.footer(kServeFooter);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
