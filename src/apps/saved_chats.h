// Chats that are kept by name, each in a file of its owner's alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/conversation.h"
#include "base/status.h"

namespace headrace {

class SavedChats {
 public:
  // `folder` is made when something is saved; empty: there is no place for any.
  explicit SavedChats(std::string folder) : folder_(std::move(folder)) {}

  // `name`: letters, digits, blanks, "-", "_" and "." in between; or a path, which has a "/" or
  // ends in ".json". Where the chat lies then. A file that is there is replaced, as a whole.
  Result<std::string> save(std::string_view name, const Conversation& conversation) const;
  bool has(std::string_view name) const;
  Result<Conversation> load(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted

 private:
  Result<std::string> path_of(std::string_view name) const;

  const std::string folder_;
};

// $XDG_STATE_HOME (or ~/.local/state; a relative path is none, as its specification has it)
// /headrace: what the terminal's programs keep. Empty where there is none.
std::string state_folder();

// Makes `folder` and those above it, for their owner alone, where they are not there. False: it
// cannot.
bool make_state_folder(const std::string& folder);

}  // namespace headrace
