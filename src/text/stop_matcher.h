// Finds stop strings in streamed text and holds back what may turn out to be one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// The marks between which no stop string is looked for. No `opens` and no `bare_open`: none.
struct StopShield {
  std::vector<std::string> opens = {};
  std::string close = {};  // empty: up to the end of the text
  char bare_open = 0;      // opens as a mark does where it is the first character but white space
};

// The stop string that is complete first wins; of those complete at the same byte, the longest
// (whose text starts first). So the result does not depend on how the text was cut into deltas.
// Knuth-Morris-Pratt for each stop string: O(stops) a byte. One thread at a time.
class StopMatcher {
 public:
  struct Step {
    std::string text;            // may leave now
    std::optional<size_t> stop;  // index of the stop string that was found
  };

  // Empty stop strings never match. include_stop: the stop string is part of the text.
  StopMatcher(std::vector<std::string> stops, bool include_stop, StopShield shield = {});

  // After a stop was found, further text is dropped.
  Step push(std::string_view delta);
  // What is held when the text ends without a stop. Then the matcher starts anew.
  std::string flush();
  size_t held_bytes() const { return held_.size(); }
  // Nothing is held and no stop string begins with `byte`: pushing it would only give it back.
  bool passes(char byte) const;

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // border[i]: longest proper prefix that ends text[0..i]
    size_t matched = 0;          // bytes of `text` that end what was pushed so far
  };
  static Stop stop_of(std::string text);
  static void advance(Stop& stop, char byte);
  static bool completes(Stop& mark, char byte);
  bool opens_shield(char byte);
  void forget();

  std::vector<Stop> stops_;
  std::vector<Stop> shield_opens_;
  Stop shield_close_;
  const char bare_open_;
  bool at_begin_ = true;  // white space alone has come
  bool shielded_ = false;
  const bool include_stop_;
  std::string held_;  // the longest end of the text that begins a stop string
  bool stopped_ = false;
};

}  // namespace headrace
