#include "apps/run_command.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "apps/answer.h"
#include "apps/chat_prompt.h"
#ifdef HEADRACE_WITH_SERVER
#include "apps/model_download.h"
#endif
#include "apps/signal_watch.h"
#include "cli/adapter_flags.h"
#include "cli/engine_flags.h"
#include "cli/load_progress.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "terminal/safe_text.h"

namespace headrace {
namespace {

constexpr const char* kRunFooter = R"(Examples:
  headrace run -p "What is the capital of France?"
  headrace run model.gguf "What is the capital of France?"
  headrace run -p "Write a limerick." --temperature 0.8 --seed 7
  cat letter.txt | headrace run -n 256
  headrace run --raw -p "Once upon a time" --json)";

struct RunFlags {
  ModelFlags model{
      .stack = {.load = {.pack_weights = PackTime::kUse}, .batch = {.max_num_seqs = 1}}};
  SamplingFlags sampling{.sampling = {.temperature = 0, .max_tokens = 128}};
  std::string prompt;
  std::string system;
  bool raw = false;
  bool json = false;
  bool pull = false;
};

void add_run_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("-p,--prompt", flags.prompt, "The prompt; '-' or none: read from stdin")
      ->type_name("TEXT")
      ->group("Prompt");
  app.add_option("--system,--system-prompt,--sys", flags.system, "A system message before it")
      ->type_name("TEXT")
      ->group("Prompt");
  app.add_flag("--raw", flags.raw, "Continue the text as it is, without the chat template")
      ->group("Prompt");
  app.add_flag("--json", flags.json, "Print one JSON object at the end instead of the text")
      ->group("Prompt");
  add_sampling_flags(app, flags.sampling);
  add_adapter_flag(app, flags.model.stack.adapters);
  add_model_flags(app, flags.model, ModelArgument::kFlagOrPositional);
  app.add_option("text", flags.prompt, "The prompt, behind the model")->group("Prompt");
#ifdef HEADRACE_WITH_SERVER
  add_pull_flag(app, flags.pull);
#endif
  add_generation_config_flags(app, flags.model);
  add_template_flag(app, flags.model);
  add_engine_flags(app, flags.model);
  app.footer(kRunFooter);
}

// -p's text, or all of stdin.
Result<std::string> read_prompt(const std::string& flag) {
  if (!flag.empty() && flag != "-") return flag;
  if (flag.empty() && isatty(STDIN_FILENO) != 0) {
    return invalid_argument(
        "no prompt: give one with -p, or pipe it in (see 'headrace run --help')");
  }
  std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  if (text.ends_with('\n')) text.pop_back();  // the shell's, not the user's
  if (text.empty()) return invalid_argument("the prompt from stdin is empty");
  return text;
}

Result<std::vector<TokenId>> encode_prompt(const ModelStack& stack, const RunFlags& flags,
                                           const std::string& prompt) {
  if (flags.raw || stack.chat_template() == nullptr) return encode_text(stack, prompt);
  Json messages = Json::array();
  if (!flags.system.empty()) messages.push(chat_message("system", flags.system));
  messages.push(chat_message("user", prompt));
  return encode_chat(stack, messages);
}

// The whole text; shown as it comes unless it is for --json.
std::string read_answer(ModelStack& stack, Answer& answer, bool show) {
  std::string text;
  while (const std::optional<std::string> delta = answer.next_text()) {
    if (text.empty()) log_first_token(stack);
    text += *delta;
    if (show) write_to_stdout(*delta);
  }
  if (show && !text.ends_with('\n')) write_to_stdout("\n");
  return text;
}

void print_json(const ModelStack& stack, const Answer& answer, std::string text) {
  Json tokens = Json::array();
  for (TokenId token : answer.tokens()) tokens.push(token);
  const AnswerTimings& timings = answer.timings();
  const Json usage = Json::object()
                         .set("prompt_tokens", timings.prompt_tokens)
                         .set("completion_tokens", timings.predicted_tokens)
                         .set("total_tokens", timings.prompt_tokens + timings.predicted_tokens);
  const Json report = Json::object()
                          .set("model", stack.info().model_name)
                          .set("text", std::move(text))
                          .set("tokens", std::move(tokens))
                          .set("finish_reason", answer.finish_reason())
                          .set("usage", usage)
                          .set("timings", timings.to_json());
  fmt::print("{}\n", write_json(report));
}

void print_speed(const AnswerTimings& timings) {
  fmt::print(stderr,
             "\n[prompt {} tokens, {:.1f} tok/s, first token after {:.0f} ms; "
             "answer {} tokens, {:.1f} tok/s]\n",
             timings.prompt_tokens, timings.prompt_per_second(), timings.prompt_seconds * 1e3,
             timings.predicted_tokens, timings.predicted_per_second());
}

Result<int> run(RunFlags& flags) {
#ifdef HEADRACE_WITH_SERVER
  HR_RETURN_IF_ERROR(pull_missing_models(flags.model, flags.pull));
#endif
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  HR_ASSIGN_OR_RETURN(const std::string prompt, read_prompt(flags.prompt));
  SignalWatch signals;
  HR_ASSIGN_OR_RETURN(const auto stack, load_with_progress(flags.model.stack));
  HR_ASSIGN_OR_RETURN(auto ids, encode_prompt(*stack, flags, prompt));
  const SamplingParams sampling = resolve_sampling(flags.sampling, stack->sampling());
  HR_ASSIGN_OR_RETURN(const auto answer, Answer::start(*stack, {.prompt = std::move(ids),
                                                                .sampling = sampling,
                                                                .stops = flags.sampling.stops}));
  bool interrupted = false;  // written under the watch's lock, read after it
  signals.set_handler([&](int signal) {
    if (interrupted) _exit(128 + signal);
    interrupted = true;
    answer->cancel();
  });
  std::string text = read_answer(*stack, *answer, !flags.json);
  signals.set_handler(nullptr);
  if (flags.json) print_json(*stack, *answer, std::move(text));
  if (!flags.json && isatty(STDERR_FILENO) != 0) print_speed(answer->timings());
  if (interrupted) return kInterruptedExitCode;
  if (answer->finish_reason() == "error") {
    return internal_error("the model gave no usable numbers for this prompt");
  }
  return 0;
}

}  // namespace

SubcommandRun define_run(CLI::App& app) {
  auto flags = std::make_shared<RunFlags>();
  add_run_flags(app, *flags);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
