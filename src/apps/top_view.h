// What `top` shows of a server: numbers from one look at it to the next, as rows of a terminal. No
// clock, no connection.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "apps/metrics_text.h"
#include "terminal/style.h"
#include "terminal/terminal.h"

namespace headrace {

// One look at a server.
struct ServerLook {
  double seconds = 0;  // on any clock that goes on
  MetricsText metrics;
  std::vector<std::string> models;
};

class TopView {
 public:
  explicit TopView(std::string url) : url_(std::move(url)) {}

  void add(ServerLook look);
  // Nobody answered; `why` is shown until somebody does.
  void add_failure(std::string why) { failure_ = std::move(why); }

  // Rows that are no wider and no more than that.
  StyledTexts frame(const TerminalSize& size) const;

 private:
  void add_requests(StyledTexts& out) const;
  void add_memory(int columns, StyledTexts& out) const;
  void add_speed(StyledTexts& out) const;
  void add_latencies(StyledTexts& out) const;
  void add_plot(const TerminalSize& size, int rows_used, StyledTexts& out) const;
  double rate(std::string_view counter) const;

  const std::string url_;
  std::string failure_;
  std::deque<ServerLook> looks_;  // of the last minute, the first at least
  std::deque<double> speeds_;     // tokens a second of answers, from look to look
};

}  // namespace headrace
