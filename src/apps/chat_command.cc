#include "apps/chat_command.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "apps/chat_session.h"
#include "apps/line_reader.h"
#include "apps/signal_watch.h"
#include "apps/terminal_text.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/progress_line.h"
#include "cli/sampling_flags.h"

namespace headrace {
namespace {

constexpr const char* kChatFooter = R"(Examples:
  headrace chat
  headrace chat -m model.gguf --system "You answer in one sentence." --temperature 0

In the chat: /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.)";

constexpr std::string_view kBlockMark = "\"\"\"";

struct ChatFlags {
  ModelFlags model{.stack = {.batch = {.max_num_seqs = 1}}};
  // What the model's makers suggest for SmolLM2; /set changes it.
  SamplingFlags sampling{.sampling = {.temperature = 0.2f, .top_p = 0.9f, .max_tokens = -1}};
  std::string system;
};

void add_chat_flags(CLI::App& app, ChatFlags& flags) {
  app.add_option("--system,--system-prompt,--sys", flags.system, "The system message")
      ->type_name("TEXT")
      ->group("Chat");
  add_sampling_flags(app, flags.sampling);
  add_model_flags(app, flags.model, ModelArgument::kFlagOrPositional);
  add_generation_config_flags(app, flags.model);
  add_template_flag(app, flags.model);
  add_engine_flags(app, flags.model);
  app.footer(kChatFooter);
}

// One input of the user: a line, lines joined by a trailing backslash, or a """ block. Empty: the
// input has ended.
std::optional<std::string> read_input(LineReader& lines) {
  std::string input, line;
  bool in_block = false;
  while (true) {
    const LineReader::Event event = lines.read(input.empty() && !in_block ? "> " : "... ", line);
    if (event == LineReader::Event::kInterrupt) return std::string();
    if (event == LineReader::Event::kEnd) {
      return input.empty() ? std::nullopt : std::optional<std::string>(input);
    }
    if (!in_block && input.empty() && line.starts_with(kBlockMark)) {
      in_block = true;
      line.erase(0, kBlockMark.size());
    }
    if (in_block) {
      const bool last = line.ends_with(kBlockMark);
      if (last) line.resize(line.size() - kBlockMark.size());
      input += line + "\n";
      if (last) return input;
      continue;
    }
    if (!line.ends_with('\\')) return input + line;
    line.back() = '\n';
    input += line;
  }
}

void print_speed(const AnswerTimings& timings) {
  fmt::print(stderr, "[{} tokens, {:.1f} tok/s, first after {:.0f} ms]\n", timings.predicted_tokens,
             timings.predicted_per_second(), timings.prompt_seconds * 1e3);
}

// Shows one answer as it comes; SIGINT stops it.
void show_answer(ChatSession& session, SignalWatch& signals, LineReader& lines) {
  Result<std::unique_ptr<Answer>> started = session.begin_answer();
  if (!started.ok()) {
    fmt::print(stderr, "{}\n", started.status().message());
    return;
  }
  Answer& answer = **started;
  signals.set_handler([&](int signal) {
    if (signal != SIGINT) _exit(128 + signal);
    answer.cancel();
  });
  std::string text;
  while (const std::optional<std::string> delta = answer.next_text()) {
    text += *delta;
    write_to_stdout(*delta);
  }
  signals.set_handler([&lines](int signal) {
    lines.restore_terminal();
    _exit(128 + signal);
  });
  write_to_stdout("\n");
  print_speed(answer.timings());
  session.end_answer(answer, std::move(text));
}

Result<int> run(ChatFlags& flags) {
  HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
  SignalWatch signals;
  HR_ASSIGN_OR_RETURN(const auto stack, load_with_progress(flags.model.stack));
  if (stack->chat_template() == nullptr || stack->tokenizer() == nullptr) {
    return unsupported(
        fmt::format("{} has no chat template: use 'headrace run --raw'", stack->info().model_name));
  }
  const auto lines = LineReader::create(chat_history_path());
  signals.set_handler([&lines](int signal) {
    lines->restore_terminal();
    _exit(128 + signal);
  });
  ChatSession session(*stack,
                      {.sampling = resolve_sampling(flags.sampling, stack->sampling()),
                       .stops = flags.sampling.stops,
                       .system = flags.system},
                      [](std::string_view line) { fmt::print("{}\n", line); });
  if (isatty(STDIN_FILENO) != 0) {
    fmt::print("{} ({}). /help lists the commands.\n", stack->info().model_name,
               stack->info().weight_types);
  }
  while (const std::optional<std::string> input = read_input(*lines)) {
    const ChatSession::Next next = session.take(*input);
    if (next == ChatSession::Next::kExit) break;
    if (next == ChatSession::Next::kAnswer) show_answer(session, signals, *lines);
  }
  signals.set_handler(nullptr);
  return 0;
}

}  // namespace

SubcommandRun define_chat(CLI::App& app) {
  auto flags = std::make_shared<ChatFlags>();
  add_chat_flags(app, *flags);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
