// The names that a template has bound at a point of its run. Names are looked up in the current
// frame, then in the one it was opened in, and so on to the root.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/template_context.h"
#include "text/template/template_value.h"

namespace headrace {

class TemplateFrames {
 public:
  // `context` is charged for look-ups, and outlives this.
  explicit TemplateFrames(TemplateContext& context) : context_(context), frames_(1) {}

  // The current frame, by its number; the root is 0.
  size_t current() const { return frames_.size() - 1; }
  // Binds a name in the current frame, or changes what it is bound to there.
  void bind(std::string_view name, Value value);
  // The same without a look. REQUIRES: the frame does not bind the name
  void add(std::string_view name, Value value);
  // Forgets what the current frame binds.
  void clear_current() { frames_.back().bindings.clear(); }
  // null: no frame binds the name. The value lives until a name is bound or a frame is closed.
  const Value* find(std::string_view name);

  // A frame that lives as long as this, opened in `parent` (by default the current one).
  class Scope {
   public:
    Scope(TemplateFrames& frames, size_t parent) : frames_(frames) {
      frames_.frames_.push_back({{}, parent});
    }
    explicit Scope(TemplateFrames& frames) : Scope(frames, frames.current()) {}
    ~Scope() { frames_.frames_.pop_back(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TemplateFrames& frames_;
  };

 private:
  struct Frame {
    std::vector<std::pair<std::string_view, Value>> bindings;
    size_t parent = 0;  // the root is its own parent
  };

  TemplateContext& context_;
  std::vector<Frame> frames_;  // the last is the current one
};

}  // namespace headrace
