#include "sched/request.h"

namespace headrace {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
    case FinishReason::kRepetition:
      return "repetition";
    case FinishReason::kFault:
    case FinishReason::kDeadEnd:
      return "error";
  }
  return "unknown";
}

}  // namespace headrace
