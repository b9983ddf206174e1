#include "text/template/template_frames.h"

namespace headrace {

void TemplateFrames::bind(std::string_view name, Value value) {
  for (auto& [bound, old] : frames_.back().bindings) {
    if (bound == name) {
      old = std::move(value);
      return;
    }
  }
  add(name, std::move(value));
}

void TemplateFrames::add(std::string_view name, Value value) {
  frames_.back().bindings.emplace_back(name, std::move(value));
}

const Value* TemplateFrames::find(std::string_view name) {
  for (size_t at = current();; at = frames_[at].parent) {
    context_.charge(frames_[at].bindings.size() / 64);
    for (const auto& [bound, value] : frames_[at].bindings) {
      if (bound == name) return &value;
    }
    if (at == 0) return nullptr;
  }
}

}  // namespace headrace
