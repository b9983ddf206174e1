#include "tensor/kernel_trace.h"

#include <cxxabi.h>

#include <cstdlib>

namespace headrace {
namespace {

std::string demangled(const std::string& mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
  const std::string name = status == 0 ? text : mangled;
  std::free(text);
  return name;
}

}  // namespace

// "void a::(anonymous namespace)::name<T, 8>(Args)" -> "name"
std::string kernel_family(const std::string& mangled) {
  const std::string name = demangled(mangled);
  size_t first = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '<') return name.substr(first, i - first);
    if (c == '(' && name.compare(i, 11, "(anonymous ") != 0) return name.substr(first, i - first);
    if (c == ' ' && name.compare(i, 11, " namespace)") != 0) first = i + 1;
    if (c == ':') first = i + 1;
  }
  return name.substr(first);
}

}  // namespace headrace
