#include "server/random_id.h"

#include <sys/random.h>

#include <array>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {

std::string random_hex_id() {
  std::array<uint64_t, 2> bits{};
  // 16 bytes come whole or not at all, and wait only while the machine starts.
  CHECK(::getrandom(bits.data(), sizeof(bits), 0) == sizeof(bits));
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

uint64_t random_seed() {
  uint64_t bits = 0;
  CHECK(::getrandom(&bits, sizeof(bits), 0) == sizeof(bits));
  return bits;
}

}  // namespace headrace
