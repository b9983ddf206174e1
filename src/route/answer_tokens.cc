#include "route/answer_tokens.h"

#include <algorithm>

#include "route/json_members.h"

namespace headrace {

int64_t events_in(std::string_view bytes, StreamFraming framing) {
  if (framing == StreamFraming::kLines) return std::ranges::count(bytes, '\n');
  int64_t count = 0;
  while (true) {
    const size_t end = bytes.find("\n\n");
    if (end == bytes.npos) return count;
    if (!bytes.starts_with(':')) ++count;
    bytes.remove_prefix(end + 2);
  }
}

int64_t generated_tokens(std::string_view body) {
  for (const std::string_view place : {"usage", "meta_info", ""}) {
    const std::string_view object = place.empty() ? body : json_member(body, place);
    for (const std::string_view name :
         {"completion_tokens", "output_tokens", "eval_count", "tokens_predicted"}) {
      if (const auto tokens = json_integer(json_member(object, name))) {
        return std::max<int64_t>(0, *tokens);
      }
    }
  }
  constexpr size_t kBytesPerToken = kRouteBlockBytes / kTokensPerRouteBlock;
  return static_cast<int64_t>(body.size() / kBytesPerToken);
}

}  // namespace headrace
