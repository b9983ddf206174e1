#include "apps/top_command.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "apps/signal_watch.h"
#include "apps/top_view.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/command_line.h"
#include "server/http_client.h"
#include "terminal/safe_text.h"
#include "terminal/screen.h"
#include "terminal/terminal.h"

namespace headrace {
namespace {

constexpr const char* kTopFooter = R"(Examples:
  headrace top
  headrace top --url http://10.0.0.7:8000 --interval 5
  headrace top --once

q leaves. --once looks twice, --interval apart, and prints what it sees.)";

constexpr double kAnswerSeconds = 5;  // of a server, until it counts as gone
constexpr size_t kModelNameBytesMax = 200;
constexpr double kResizeSeconds = 0.1;  // a new size of the window is seen within

struct TopFlags {
  std::string url = "http://127.0.0.1:8000";
  std::string api_key;
  double interval = 1;
  bool once = false;
};

void add_top_flags(CLI::App& app, TopFlags& flags) {
  constexpr const char* kGroup = "Server";
  app.add_option("--url,url", flags.url, "The server: http://HOST:PORT")
      ->type_name("URL")
      ->group(kGroup);
  app.add_option("--api-key", flags.api_key,
                 "Its key, or that of its metrics (default: $HEADRACE_API_KEY)")
      ->type_name("KEY")
      ->group(kGroup);
  app.add_option("--interval", flags.interval, "Seconds from one look to the next")
      ->check(number_between(0.1, 3600))
      ->type_name("X")
      ->group(kGroup);
  app.add_flag("--once", flags.once, "Print what is seen, and end")->group(kGroup);
  app.footer(kTopFooter);
}

// A server that is asked, until that is given up.
class TopServer {
 public:
  explicit TopServer(HttpClient& client) : client_(client) {}
  Result<HttpReply> get(std::string_view path) {
    return client_.request(path, {}, nullptr, &given_up_);
  }
  void give_up() {  // any thread
    given_up_ = true;
    client_.cancel();
  }

 private:
  HttpClient& client_;
  std::atomic<bool> given_up_{false};
};

// Names of models; none where the server does not tell (a key that only reads metrics).
std::vector<std::string> models_of(TopServer& server) {
  std::vector<std::string> names;
  const Result<HttpReply> reply = server.get("/v1/models");
  if (!reply.ok() || reply->status != 200) return names;
  const Result<Json> list = parse_json(reply->body);
  const Json* data = list.ok() ? list->find("data") : nullptr;
  if (data == nullptr || !data->is_array()) return names;
  for (const Json& each : data->as_array()) {
    const Json* name = each.find("id");
    if (name != nullptr && name->is_string())
      names.push_back(safe_line(name->as_string(), kModelNameBytesMax));
  }
  return names;
}

Result<ServerLook> look_at(TopServer& server) {
  HR_ASSIGN_OR_RETURN(const HttpReply reply, server.get("/metrics"));
  if (reply.status == 401 || reply.status == 403) {
    return invalid_argument("/metrics wants a key: give it with --api-key");
  }
  if (reply.status != 200) {
    return unavailable(fmt::format("/metrics was answered {}", reply.status));
  }
  ServerLook look{.seconds = SystemClock().now_seconds(),
                  .metrics = MetricsText::parse(reply.body),
                  .models = {}};
  if (!look.metrics.has("vllm:num_requests_running")) {
    return unsupported("/metrics has none of the numbers of an LLM server (vllm:...)");
  }
  look.models = models_of(server);
  return look;
}

Result<int> print_once(TopServer& server, const TopFlags& flags) {
  TopView view(flags.url);
  HR_ASSIGN_OR_RETURN(ServerLook first, look_at(server));
  view.add(std::move(first));
  std::this_thread::sleep_for(std::chrono::duration<double>(flags.interval));
  HR_ASSIGN_OR_RETURN(ServerLook second, look_at(server));
  view.add(std::move(second));
  const StyledTexts frame = view.frame(terminal_size(STDOUT_FILENO));
  fmt::print("{}", shows_styles(STDOUT_FILENO) ? ansi_text(frame) : plain_text(frame));
  return 0;
}

// False: a key says that it is enough. A window of another size is drawn anew.
bool wait_for_next(Screen& screen, const TopView& view, double seconds, bool styled) {
  constexpr char kInterrupt = 3, kEnd = 4;
  const SystemClock clock;
  const double end = clock.now_seconds() + seconds;
  TerminalSize size = terminal_size(STDOUT_FILENO);
  while (true) {
    const double left = end - clock.now_seconds();
    if (left <= 0) return true;
    const std::optional<char> key = screen.wait_for_key(std::min(left, kResizeSeconds));
    if (key && (*key == 'q' || *key == 'Q' || *key == kInterrupt || *key == kEnd)) return false;
    const TerminalSize now = terminal_size(STDOUT_FILENO);
    if (now.columns == size.columns && now.rows == size.rows) continue;
    size = now;
    const StyledTexts frame = view.frame(size);
    screen.draw(styled ? ansi_text(frame) : plain_text(frame));
  }
}

// What the server says; empty: a key says that it is enough before it has.
std::optional<Result<ServerLook>> look_while_watching_keys(TopServer& server, Screen& screen,
                                                           const TopView& view, bool styled) {
  std::future<Result<ServerLook>> look =
      std::async(std::launch::async, [&server] { return look_at(server); });
  constexpr auto kGlance = std::chrono::milliseconds(20);  // most servers answer in that
  while (look.wait_for(kGlance) != std::future_status::ready) {
    if (wait_for_next(screen, view, kResizeSeconds, styled)) continue;
    server.give_up();
    return std::nullopt;  // when the future is destroyed, the look has ended
  }
  return look.get();
}

Result<int> watch(TopServer& server, const TopFlags& flags, SignalWatch& signals) {
  TopView view(flags.url);
  // A server that is not there is an error; one that goes may come again.
  HR_ASSIGN_OR_RETURN(ServerLook first, look_at(server));
  view.add(std::move(first));
  const bool styled = shows_styles(STDOUT_FILENO);
  Screen screen;
  signals.set_handler([&screen](int signal) {
    screen.restore();
    _exit(128 + signal);
  });
  while (true) {
    const StyledTexts frame = view.frame(terminal_size(STDOUT_FILENO));
    screen.draw(styled ? ansi_text(frame) : plain_text(frame));
    if (!wait_for_next(screen, view, flags.interval, styled)) break;
    std::optional<Result<ServerLook>> look = look_while_watching_keys(server, screen, view, styled);
    if (!look) break;
    if (look->ok()) {
      view.add(**std::move(look));
    } else {
      view.add_failure(look->status().message());
    }
  }
  signals.set_handler(nullptr);
  return 0;
}

Result<int> run(TopFlags& flags) {
  const char* key = std::getenv("HEADRACE_API_KEY");
  if (flags.api_key.empty() && key != nullptr) flags.api_key = key;
  Result<std::unique_ptr<HttpClient>> client =
      HttpClient::create({.url = flags.url,
                          .api_key = flags.api_key,
                          .receive_seconds = kAnswerSeconds,
                          .answer_seconds = kAnswerSeconds});
  if (!client.ok()) return client.status().with_context("--url");
  TopServer server(**client);
  if (flags.once) return print_once(server, flags);
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) {
    return invalid_argument("this is no terminal: --once prints what is seen");
  }
  if (!knows_sequences(STDOUT_FILENO)) {
    return invalid_argument(
        "this terminal obeys no escape sequences ($TERM): --once prints what is seen");
  }
  SignalWatch signals;
  return watch(server, flags, signals);
}

}  // namespace

SubcommandRun define_top(CLI::App& app) {
  auto flags = std::make_shared<TopFlags>();
  add_top_flags(app, *flags);
  return [flags] { return run(*flags); };
}

}  // namespace headrace
