#include "engine/page_moves.h"

namespace headrace {

void PageMoves::start(const StepPlan& plan, Stream& step_stream) {
  if (moved_ != nullptr) step_stream.wait(*moved_);
  moved_ = nullptr;
  if (plan.stores.empty() && plan.stores_ahead.empty() && plan.loads.empty()) return;
  if (stream_ == nullptr) stream_ = device_.create_stream();
  if (!plan.stores.empty()) {
    storage_.move_pages(*stream_, plan.stores);
    step_stream.wait(*stream_->record());
  }
  if (plan.stores_ahead.empty() && plan.loads.empty()) return;
  storage_.move_pages(*stream_, plan.stores_ahead);
  storage_.move_pages(*stream_, plan.loads);
  moved_ = stream_->record();
}

}  // namespace headrace
