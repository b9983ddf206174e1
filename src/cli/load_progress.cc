#include "cli/load_progress.h"

#include <utility>

#include "terminal/progress.h"

namespace headrace {

Result<std::unique_ptr<ModelStack>> load_with_progress(const StackOptions& options,
                                                       std::unique_ptr<ModelSource> source) {
  Progress progress("load");
  LoadProgress report;
  if (progress.visible()) {
    report = [&progress](std::string_view stage, double done) {
      progress.begin(stage);
      progress.update(done, 1);
    };
  }
  return ModelStack::load(options, report, std::move(source));
}

}  // namespace headrace
