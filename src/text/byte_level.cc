#include "text/byte_level.h"

#include "text/utf8.h"

namespace headrace {
namespace {

constexpr int kLetterEnd = 0x144;  // 256 + the 68 bytes that do not spell themselves

constexpr bool spells_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> letter{};
  std::array<int16_t, kLetterEnd> byte{};
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  for (auto& byte : alphabet.byte) byte = -1;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int letter = spells_itself(byte) ? byte : next++;
    alphabet.letter[static_cast<size_t>(byte)] = static_cast<uint16_t>(letter);
    alphabet.byte[static_cast<size_t>(letter)] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_to_letter(uint8_t byte) { return kAlphabet.letter[byte]; }

int letter_to_byte(char32_t letter) { return letter < kLetterEnd ? kAlphabet.byte[letter] : -1; }

void append_spelled_bytes(std::string_view spelling, std::string& out) {
  while (!spelling.empty()) {
    const Utf8Step step = utf8_step(spelling);
    const int byte = step.state == Utf8State::kValid ? letter_to_byte(step.code_point) : -1;
    if (byte >= 0) {
      out.push_back(static_cast<char>(byte));
    } else {
      out.append(spelling.substr(0, step.length));
    }
    spelling.remove_prefix(step.length);
  }
}

std::string spell_bytes(std::string_view bytes) {
  std::string out;
  for (char byte : bytes) append_utf8(byte_to_letter(static_cast<uint8_t>(byte)), out);
  return out;
}

}  // namespace headrace
