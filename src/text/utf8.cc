#include "text/utf8.h"

#include <cstdint>
#include <cstring>

namespace headrace {
namespace {

struct LeadByte {
  size_t length;                   // 0 = no character starts with it
  uint8_t second_min, second_max;  // the first continuation byte's range
};

LeadByte lead_byte(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const uint8_t first = static_cast<uint8_t>(bytes[0]);
  const LeadByte lead = lead_byte(first);
  if (lead.length == 1) return {Utf8State::kValid, 1, first};
  if (lead.length == 0) return {Utf8State::kInvalid, 1, 0};
  char32_t code_point = first & (0x7F >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8State::kIncomplete, i, 0};
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Utf8State::kInvalid, i, 0};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {Utf8State::kValid, lead.length, code_point};
}

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t word;
    if (at + sizeof(word) <= bytes.size()) {  // eight ASCII bytes at once
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      if ((word & 0x8080808080808080ull) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.state != Utf8State::kValid) break;
    at += step.length;
  }
  return at;
}

size_t append_replacing_invalid(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t valid = valid_utf8_prefix(bytes);
    out.append(bytes.substr(0, valid));
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    const Utf8Step step = utf8_step(bytes);
    if (step.state == Utf8State::kIncomplete) return bytes.size();
    out.append(kReplacementCharacter);
    bytes.remove_prefix(step.length);
  }
  return 0;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  if (append_replacing_invalid(bytes, out) > 0) out.append(kReplacementCharacter);
  return out;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

}  // namespace headrace
