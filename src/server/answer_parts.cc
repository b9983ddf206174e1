#include "server/answer_parts.h"

#include <utility>

#include "base/json.h"

namespace headrace {
namespace {

bool holds_object(const std::string& text) {
  const Result<Json> json = parse_json(text);
  return json.ok() && json->is_object();
}

}  // namespace

std::vector<PartStep> AnswerParts::take(const OutputEvents& events) {
  std::vector<PartStep> steps;
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
        grow(AnswerPart::Kind::kText, event.text, steps);
        break;
      case OutputEvent::Kind::kReasoning:
        if (!hide_thoughts_) grow(AnswerPart::Kind::kThought, event.text, steps);
        break;
      case OutputEvent::Kind::kCallBegin:
        begin({.kind = AnswerPart::Kind::kCall,
               .name = event.text,
               .call_id = event.call_id,
               .call = event.call},
              steps);
        break;
      case OutputEvent::Kind::kArguments:
        grow(AnswerPart::Kind::kCall, event.text, steps);
        break;
      case OutputEvent::Kind::kCallEnd:
        end(true, steps);
        break;
    }
  }
  return steps;
}

std::vector<PartStep> AnswerParts::finish(bool cut) {
  std::vector<PartStep> steps;
  end(!cut, steps);
  return steps;
}

void AnswerParts::begin(AnswerPart part, std::vector<PartStep>& steps) {
  end(true, steps);
  open_ = true;
  parts_.push_back(std::move(part));
  steps.push_back({PartStep::Kind::kBegin, parts_.size() - 1});
}

void AnswerParts::grow(AnswerPart::Kind kind, const std::string& text,
                       std::vector<PartStep>& steps) {
  if (!open_ || parts_.back().kind != kind) begin({.kind = kind}, steps);
  parts_.back().text += text;
  steps.push_back({PartStep::Kind::kText, parts_.size() - 1, text});
}

void AnswerParts::end(bool complete, std::vector<PartStep>& steps) {
  if (!std::exchange(open_, false)) return;
  AnswerPart& part = parts_.back();
  part.complete = part.kind == AnswerPart::Kind::kCall ? holds_object(part.text) : complete;
  steps.push_back({PartStep::Kind::kEnd, parts_.size() - 1});
}

}  // namespace headrace
