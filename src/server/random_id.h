// What is drawn for a request that names none. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

// 128 random bits as hex, from the kernel: unique between processes too, and who knows any number
// of them knows nothing of the others.
std::string random_hex_id();
uint64_t random_seed();  // of an answer whose request names none

}  // namespace headrace
