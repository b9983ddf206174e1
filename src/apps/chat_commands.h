// What a person types in a chat: messages, and the commands that begin with "/". One row of a table
// for each command; help and completion are made of it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/chat_session.h"
#include "apps/saved_chats.h"

namespace headrace {

class ChatCommands {
 public:
  enum class Next {
    kRead,
    kAnswer,  // ChatSession::begin_answer() is due
    kEdit,    // the user's last message is to be edited, and given to replace_last()
    kExit,
  };
  using Say = ChatSession::Say;
  // Puts a text where others can paste it from. False: there is no way.
  using Copy = std::function<bool(std::string_view text)>;

  // `session` and `saved` must outlive this.
  ChatCommands(ChatSession& session, const SavedChats& saved, Say say, Copy copy);

  // A command ("/help") or a message of the user.
  Next take(std::string_view input);
  // The user's last message is another; answers behind it are gone. kRead where it is empty.
  Next replace_last(std::string_view text);
  std::string last_message() const;
  // The conversation is the saved chat of that name.
  void loaded_as(std::string_view name) { names_.assign(1, std::string(name)); }

  // "/help", "/exit", ...
  static std::vector<std::string> names();

 private:
  struct Command {
    std::string_view name, argument, summary;
    Next (ChatCommands::*run)(std::string_view argument);
  };
  static const Command kCommands[];

  Next help(std::string_view);
  Next exit(std::string_view) { return Next::kExit; }
  Next clear(std::string_view);
  Next system(std::string_view text);
  Next save(std::string_view name);
  Next load(std::string_view name);
  Next retry(std::string_view);
  Next edit(std::string_view text);
  Next copy(std::string_view what);
  Next set(std::string_view assignment);
  Next model(std::string_view name);
  Next tokens(std::string_view);
  void list_saved();
  void list_models();

  ChatSession& session_;
  const SavedChats& saved_;
  const Say say_;
  const Copy copy_;
  std::vector<std::string> names_;  // under which the chat was loaded or saved, the latest last
};

}  // namespace headrace
