// Chat templates that have a name: what --chat-template takes in place of a file, as llama-server
// does. They render as llama.cpp's templates of these names do (its llama-chat.cpp), for models
// whose file has none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// The Jinja text; empty: there is none of that name.
std::string_view named_template(std::string_view name);

// All names, in alphabetical order.
std::vector<std::string> template_names();

}  // namespace headrace
