#include "engine/page_moves.h"

namespace headrace {

void PageMoves::start(const StepPlan& plan, Stream& step_stream) {
  if (loaded_ != nullptr) step_stream.wait(*loaded_);
  loaded_ = nullptr;
  if (plan.stores.empty() && plan.loads.empty()) return;
  if (stream_ == nullptr) stream_ = device_.create_stream();
  if (!plan.stores.empty()) {
    storage_.move_pages(*stream_, plan.stores);
    step_stream.wait(*stream_->record());
  }
  if (plan.loads.empty()) return;
  storage_.move_pages(*stream_, plan.loads);
  loaded_ = stream_->record();
}

}  // namespace headrace
