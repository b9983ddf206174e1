#include "apps/secret_arguments.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

namespace headrace {
namespace {

constexpr std::array<std::string_view, 6> kSecretFlags = {
    "api-key", "metrics-key", "worker-api-key", "admin-key", "hf-token", "hft"};

// "--api_key" and "-api-key" are "api-key" (command_line.h).
bool is_secret_flag(std::string_view name) {
  const size_t dashes = std::min(name.find_first_not_of('-'), name.size());
  if (dashes < 1 || dashes > 2) return false;
  std::string plain(name.substr(dashes));
  std::replace(plain.begin(), plain.end(), '_', '-');
  return std::find(kSecretFlags.begin(), kSecretFlags.end(), plain) != kSecretFlags.end();
}

// Nothing stays, not even the length.
void hide(char* value) {
  const size_t size = std::strlen(value);
  std::memset(value, 0, size);
  if (size > 0) *value = '*';
}

}  // namespace

void hide_secret_arguments(int argc, char** argv) {
  bool hides = false;  // values of a secret flag follow
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with('-')) {
      if (hides) hide(argv[i]);
      continue;
    }
    const size_t equals = argument.find('=');
    hides = is_secret_flag(argument.substr(0, equals));
    if (hides && equals != argument.npos) hide(argv[i] + equals + 1);
    hides = hides && equals == argument.npos;
  }
}

}  // namespace headrace
