#include "apps/chat_command.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "apps/answer_screen.h"
#include "apps/chat_commands.h"
#include "apps/chat_session.h"
#include "apps/local_chat.h"
#include "apps/saved_chats.h"
#include "apps/signal_watch.h"
#include "cli/adapter_flags.h"
#include "cli/engine_flags.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "terminal/line_reader.h"
#include "terminal/safe_text.h"
#include "terminal/terminal.h"
#ifdef HEADRACE_WITH_SERVER
#include "apps/model_download.h"
#include "apps/remote_chat.h"
#endif

namespace headrace {
namespace {

constexpr const char* kChatFooter = R"(Examples:
  headrace chat
  headrace chat -m model.gguf --system "You answer in one sentence." --temperature 0
  headrace chat --url http://127.0.0.1:8000
  OPENAI_API_KEY=... headrace chat --url https://api.example.com/v1 -m some-model

In the chat: /help lists the commands, Ctrl-C stops an answer, Ctrl-D leaves.
Answers are rendered on a terminal, and plain in a pipe, with $NO_COLOR and with TERM=dumb.
No tools are offered to the model.)";

constexpr std::string_view kBlockMark = "\"\"\"";

struct ChatFlags {
  ModelFlags model{.stack = {.batch = {.max_num_seqs = 1}}};
  // What the model's makers suggest for SmolLM2; /set changes it.
  SamplingFlags sampling{.sampling = {.temperature = 0.2f, .top_p = 0.9f, .max_tokens = -1}};
  std::string system;
  std::string load;
  std::string url, api_key;
  bool plain = false;
  bool pull = false;
};

void add_chat_flags(CLI::App& app, ChatFlags& flags) {
  constexpr const char* kGroup = "Chat";
  app.add_option("--system,--system-prompt,--sys", flags.system, "The system message")
      ->type_name("TEXT")
      ->group(kGroup);
  app.add_option("--load", flags.load, "Go on with a chat that /save kept")
      ->type_name("NAME")
      ->group(kGroup);
  app.add_flag("--plain", flags.plain, "Text as it comes: no markdown, no styles")->group(kGroup);
  app.add_option("--url", flags.url,
                 "Talk to a server with OpenAI's API instead: http://HOST:PORT, or with its /v1. "
                 "-m names its model; flags of the engine have no meaning")
      ->type_name("URL")
      ->group(kGroup);
  app.add_option("--api-key", flags.api_key,
                 "Its key (default: $HEADRACE_API_KEY, else $OPENAI_API_KEY, which nobody sees in "
                 "the list of processes)")
      ->type_name("KEY")
      ->group(kGroup);
  add_sampling_flags(app, flags.sampling);
  add_adapter_flag(app, flags.model.stack.adapters);
  add_model_flags(app, flags.model, ModelArgument::kFlagOrPositional);
#ifdef HEADRACE_WITH_SERVER
  add_pull_flag(app, flags.pull);
#endif
  add_generation_config_flags(app, flags.model);
  add_template_flag(app, flags.model);
  add_engine_flags(app, flags.model);
  app.footer(kChatFooter);
}

#ifdef HEADRACE_WITH_SERVER
std::string key_of_environment() {
  for (const char* name : {"HEADRACE_API_KEY", "OPENAI_API_KEY"}) {
    const char* key = std::getenv(name);
    if (key != nullptr && *key != '\0') return key;
  }
  return {};
}

Result<std::unique_ptr<ChatBackend>> connect_to_server(const ChatFlags& flags) {
  const std::string key = flags.api_key.empty() ? key_of_environment() : flags.api_key;
  HR_ASSIGN_OR_RETURN(
      auto chat,
      RemoteChat::connect({.url = flags.url, .api_key = key, .model = flags.model.stack.model}));
  return std::unique_ptr<ChatBackend>(std::move(chat));
}
#else
Result<std::unique_ptr<ChatBackend>> connect_to_server(const ChatFlags&) {
  return unsupported("--url: this program was built without what speaks HTTP (HEADRACE_SERVER)");
}
#endif

// The parameters that the command line named.
ChatSampling sampling_of_flags(const SamplingFlags& flags) {
  ChatSampling sampling{.params = resolve_sampling(flags, {}), .stops = flags.stops};
  if (flags.chosen.temperature) sampling.name("temperature");
  if (flags.chosen.top_p) sampling.name("top_p");
  if (flags.chosen.top_k) sampling.name("top_k");
  if (flags.chosen.min_p) sampling.name("min_p");
  if (flags.chosen.repetition_penalty) sampling.name("repetition_penalty");
  if (flags.sampling.presence_penalty != 0) sampling.name("presence_penalty");
  if (flags.sampling.frequency_penalty != 0) sampling.name("frequency_penalty");
  if (flags.sampling.max_tokens >= 0) sampling.name("max_tokens");
  if (flags.sampling.seed) sampling.name("seed");
  return sampling;
}

// Stops an answer that may not have begun yet.
class AnswerStop {
 public:
  // `answer` is under way until this is called with nullptr.
  void watch(ChatAnswer* answer) {
    std::lock_guard lock(mutex_);
    answer_ = answer;
    if (stopped_ && answer_ != nullptr) answer_->cancel();
  }
  void stop() {  // any thread
    std::lock_guard lock(mutex_);
    stopped_ = true;
    if (answer_ != nullptr) answer_->cancel();
  }
  bool stopped() const {
    std::lock_guard lock(mutex_);
    return stopped_;
  }

 private:
  mutable std::mutex mutex_;
  ChatAnswer* answer_ = nullptr;
  bool stopped_ = false;
};

// What the person at the terminal says and sees.
class ChatTerminal {
 public:
  ChatTerminal(ChatSession& session, ChatCommands& commands, SignalWatch& signals,
               LineReader& lines, AnswerScreen::Look look)
      : session_(session), commands_(commands), signals_(signals), lines_(lines), look_(look) {}

  // The program's exit status: 1 where nobody is at a terminal to see that the last answer failed.
  int run() {
    watch_for_signals();
    std::string initial;
    bool edits = false;
    while (const std::optional<std::string> input = read_input(std::exchange(initial, {}))) {
      const bool was_edit = std::exchange(edits, false);
      const ChatCommands::Next next =
          was_edit ? commands_.replace_last(*input) : commands_.take(*input);
      if (next == ChatCommands::Next::kExit) break;
      if (next == ChatCommands::Next::kAnswer) show_answer();
      edits = next == ChatCommands::Next::kEdit;
      if (edits) initial = commands_.last_message();
    }
    return failed_ && !lines_.takes_interrupts() ? 1 : 0;
  }

 private:
  // One input of the user: a line, lines joined by a trailing backslash, or a block: from a line
  // that begins with """ to one, maybe the same, that ends with it. Empty: the input has ended, or
  // Ctrl-C was given twice.
  std::optional<std::string> read_input(const std::string& initial) {
    std::string input, line = initial;
    bool in_block = false;
    while (true) {
      const bool begins = input.empty() && !in_block;
      const LineReader::Event event = lines_.read(begins ? "> " : "... ", line);
      if (event == LineReader::Event::kInterrupt || event == LineReader::Event::kInterruptEmpty) {
        return after_interrupt(event);
      }
      if (event == LineReader::Event::kEnd) {
        return input.empty() ? std::nullopt : std::optional<std::string>(input);
      }
      interrupts_ = 0;
      if (begins && line.starts_with(kBlockMark)) {
        in_block = true;
        line.erase(0, kBlockMark.size());
      }
      if (in_block) {
        const bool last = line.ends_with(kBlockMark);
        if (last) line.resize(line.size() - kBlockMark.size());
        input += line + "\n";
        if (last) return input;
      } else if (line.ends_with('\\')) {
        line.back() = '\n';
        input += line;
      } else {
        return input + line;
      }
      line.clear();
    }
  }

  std::optional<std::string> after_interrupt(LineReader::Event event) {
    if (++interrupts_ >= 2) return std::nullopt;
    if (event == LineReader::Event::kInterruptEmpty) fmt::print("(Ctrl-C again leaves)\n");
    return std::string();
  }

  // Shows one answer as it comes; SIGINT stops it, from before it begins.
  void show_answer() {
    AnswerStop stop;
    signals_.set_handler([&](int signal) {
      if (signal != SIGINT) leave(signal);
      stop.stop();
    });
    const Result<std::unique_ptr<ChatAnswer>> started = session_.begin_answer();
    if (started.ok()) {
      stop.watch(started->get());
      show(**started, stop);
      stop.watch(nullptr);
    } else {
      fmt::print(stderr, "{}\n", terminal_safe(started.status().message()));
      failed_ = true;
    }
    watch_for_signals();
  }

  void show(ChatAnswer& answer, const AnswerStop& stop) {
    std::string text;
    AnswerScreen screen(look_, terminal_size(STDOUT_FILENO).columns);
    while (const std::optional<ChatDelta> delta = answer.next()) {
      if (!delta->thought) text += delta->text;
      screen.set_columns(terminal_size(STDOUT_FILENO).columns);
      write(screen.show(*delta));
    }
    write(screen.finish());
    failed_ = !answer.status().ok();
    if (!answer.status().ok()) {
      fmt::print(stderr, "{}\n", terminal_safe(answer.status().message()));
    } else if (text.empty() && !stop.stopped()) {
      fmt::print(stderr, "(the answer has no text)\n");
    } else {
      print_speed(answer.timings());
    }
    session_.end_answer(answer, text);
  }

  // What is rendered is safe, and has sequences of its own.
  void write(const std::string& text) {
    if (look_ == AnswerScreen::Look::kPlain) return write_to_stdout(text);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  void print_speed(const AnswerTimings& timings) {
    const bool styled = shows_styles(STDERR_FILENO);
    fmt::print(stderr, "{}[{} tokens, {:.1f} tok/s, first after {:.0f} ms]{}\n",
               styled ? "\x1b[2m" : "", timings.predicted_tokens, timings.predicted_per_second(),
               timings.prompt_seconds * 1e3, styled ? "\x1b[0m" : "");
  }

  // Ctrl-C is a key while a line is read. As a signal it came late for an answer, or is meant for a
  // request that a command makes: it ends that, never the program and its chat.
  void watch_for_signals() {
    signals_.set_handler([this](int signal) {
      if (signal != SIGINT || !lines_.takes_interrupts()) leave(signal);
      session_.backend().cancel_request();
    });
  }
  void leave(int signal) {
    lines_.restore_terminal();
    _exit(128 + signal);
  }

  ChatSession& session_;
  ChatCommands& commands_;
  SignalWatch& signals_;
  LineReader& lines_;
  const AnswerScreen::Look look_;
  bool failed_ = false;  // the last answer
  int interrupts_ = 0;   // at the prompt, one after the other
};

bool copy_to_clipboard(std::string_view text) {
  if (!knows_sequences(STDOUT_FILENO)) return false;
  fmt::print("{}", clipboard_sequence(text));
  std::fflush(stdout);
  return true;
}

// $XDG_STATE_HOME/headrace/chat_history; makes its folder.
std::string chat_history_path() {
  const std::string folder = state_folder();
  if (folder.empty() || !make_state_folder(folder)) return {};
  return folder + "/chat_history";
}

Status begin_conversation(const ChatFlags& flags, const SavedChats& saved, ChatSession& session) {
  if (!flags.load.empty()) {
    HR_ASSIGN_OR_RETURN(session.conversation(), saved.load(flags.load));
  }
  if (!flags.system.empty()) session.conversation().set_system(flags.system);
  return ok_status();
}

Result<int> run(ChatFlags& flags) {
#ifdef HEADRACE_WITH_SERVER
  if (flags.url.empty()) {
    HR_RETURN_IF_ERROR(pull_missing_models(flags.model, flags.pull));
  }
#endif
  SignalWatch signals;
  std::unique_ptr<ChatBackend> backend;
  ChatSampling sampling = sampling_of_flags(flags.sampling);
  if (!flags.url.empty()) {
    HR_ASSIGN_OR_RETURN(backend, connect_to_server(flags));
  } else {
    if (!flags.api_key.empty()) return invalid_argument("--api-key needs --url");
    HR_RETURN_IF_ERROR(apply_model_flags(flags.model));
    HR_ASSIGN_OR_RETURN(auto local, LocalChat::load(flags.model.stack));
    sampling.params = resolve_sampling(flags.sampling, local->stack().sampling());
    backend = std::move(local);
  }
  const auto say = [](std::string_view line) { fmt::print("{}\n", terminal_safe(line)); };
  const std::string state = state_folder();
  const SavedChats saved(state.empty() ? "" : state + "/chats");
  ChatSession session(*backend, std::move(sampling), say);
  HR_RETURN_IF_ERROR(begin_conversation(flags, saved, session));
  ChatCommands commands(session, saved, say, copy_to_clipboard);
  if (!flags.load.empty()) commands.loaded_as(flags.load);
  const auto lines = LineReader::create(chat_history_path(), ChatCommands::names());
  if (isatty(STDIN_FILENO) != 0) {
    fmt::print("{}. /help lists the commands.\n", terminal_safe(backend->title()));
  }
  const bool rendered = shows_styles(STDOUT_FILENO) && !flags.plain;
  const int exit_status =
      ChatTerminal(session, commands, signals, *lines,
                   rendered ? AnswerScreen::Look::kRendered : AnswerScreen::Look::kPlain)
          .run();
  signals.set_handler(nullptr);
  return exit_status;
}

}  // namespace

SubcommandRun define_chat(CLI::App& app) {
  auto flags = std::make_shared<ChatFlags>();
  add_chat_flags(app, *flags);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
