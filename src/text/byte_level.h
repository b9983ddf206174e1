// GPT-2's byte alphabet: each byte is spelled as one printable character, so that vocabularies and
// merges are plain text. Printable bytes of Latin-1 stand for themselves, the other 68 follow
// from U+0100 in order. From the code published with "Language Models are Unsupervised Multitask
// Learners" (Radford et al. 2019), bytes_to_unicode().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

// The character that spells `byte`, at most U+0143.
char32_t byte_to_letter(uint8_t byte);

// The byte that `letter` spells, or -1.
int letter_to_byte(char32_t letter);

// Appends the bytes that `spelling` stands for. Characters outside the alphabet, and bytes that are
// no UTF-8, are appended as they are.
void append_spelled_bytes(std::string_view spelling, std::string& out);

// The spelling of `bytes`.
std::string spell_bytes(std::string_view bytes);

}  // namespace headrace
