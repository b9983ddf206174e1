#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

std::vector<size_t> borders(std::string_view text) {
  std::vector<size_t> border(text.size(), 0);
  for (size_t i = 1; i < text.size(); ++i) {
    size_t length = border[i - 1];
    while (length > 0 && text[i] != text[length]) length = border[length - 1];
    border[i] = length + (text[i] == text[length] ? 1 : 0);
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops, bool include_stop, StopShield shield)
    : shield_close_(stop_of(std::move(shield.close))),
      bare_open_(shield.bare_open),
      include_stop_(include_stop) {
  for (std::string& open : shield.opens) {
    if (!open.empty()) shield_opens_.push_back(stop_of(std::move(open)));
  }
  for (std::string& text : stops) stops_.push_back(stop_of(std::move(text)));
}

StopMatcher::Stop StopMatcher::stop_of(std::string text) {
  std::vector<size_t> border = borders(text);
  return {std::move(text), std::move(border)};
}

void StopMatcher::advance(Stop& stop, char byte) {
  if (stop.text.empty()) return;
  while (stop.matched > 0 && stop.text[stop.matched] != byte) {
    stop.matched = stop.border[stop.matched - 1];
  }
  if (stop.text[stop.matched] == byte) ++stop.matched;
}

bool StopMatcher::completes(Stop& mark, char byte) {
  advance(mark, byte);
  if (mark.text.empty() || mark.matched < mark.text.size()) return false;
  mark.matched = 0;
  return true;
}

bool StopMatcher::opens_shield(char byte) {
  constexpr std::string_view kBlank = " \t\r\n";
  bool opens = std::exchange(at_begin_, at_begin_ && kBlank.find(byte) != kBlank.npos) &&
               bare_open_ != 0 && byte == bare_open_;
  for (Stop& open : shield_opens_) opens = completes(open, byte) || opens;
  if (opens) {
    for (Stop& open : shield_opens_) open.matched = 0;
  }
  return opens;
}

void StopMatcher::forget() {
  held_.clear();
  for (Stop& stop : stops_) stop.matched = 0;
}

bool StopMatcher::passes(char byte) const {
  return held_.empty() && !stopped_ && shield_opens_.empty() && bare_open_ == 0 &&
         std::none_of(stops_.begin(), stops_.end(), [byte](const Stop& stop) {
           return !stop.text.empty() && stop.text.front() == byte;
         });
}

StopMatcher::Step StopMatcher::push(std::string_view delta) {
  Step step;
  if (stopped_) return step;
  for (char byte : delta) {
    if (shielded_) {
      step.text.push_back(byte);
      shielded_ = !completes(shield_close_, byte);
      continue;
    }
    held_.push_back(byte);
    size_t keep = 0;
    for (size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      advance(stop, byte);
      keep = std::max(keep, stop.matched);
      const bool complete = !stop.text.empty() && stop.matched == stop.text.size();
      if (complete && (!step.stop || stop.text.size() > stops_[*step.stop].text.size())) {
        step.stop = i;
      }
    }
    if (step.stop) {
      const size_t cut = include_stop_ ? 0 : stops_[*step.stop].text.size();
      step.text.append(held_, 0, held_.size() - cut);
      held_.clear();
      stopped_ = true;
      return step;
    }
    shielded_ = opens_shield(byte);
    if (shielded_) {
      step.text += held_;
      forget();
    } else if (held_.size() > keep) {
      step.text.append(held_, 0, held_.size() - keep);
      held_.erase(0, held_.size() - keep);
    }
  }
  return step;
}

std::string StopMatcher::flush() {
  std::string text = std::move(held_);
  forget();
  stopped_ = shielded_ = false;
  at_begin_ = true;
  shield_close_.matched = 0;
  for (Stop& open : shield_opens_) open.matched = 0;
  return text;
}

}  // namespace headrace
