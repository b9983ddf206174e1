// Base64 (RFC 4648, section 4), as tokenizer.json holds binary tables.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace headrace {

// Empty where `text` is not base64 with its padding.
std::optional<std::string> decode_base64(std::string_view text);
std::string encode_base64(std::string_view bytes);

}  // namespace headrace
