// One line on a terminal's stderr that shows how far loading is, and vanishes when it is done.
#pragma once

#include <memory>
#include <string_view>

#include "stack/model_stack.h"

namespace headrace {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();  // erases the line
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // For ModelStack::load(); empty where stderr is no terminal. Must not outlive this.
  LoadProgress callback();

 private:
  void show(std::string_view stage, double done);

  const bool terminal_;
  int percent_shown_ = -1;
};

// Loads a model under a progress line. `source`: as of ModelStack::load().
Result<std::unique_ptr<ModelStack>> load_with_progress(
    const StackOptions& options, std::unique_ptr<ModelSource> source = nullptr);

}  // namespace headrace
