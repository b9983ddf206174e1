// A vendor's library that is opened when it is needed, so that the program starts without it.
#pragma once

#include <dlfcn.h>

#include <span>
#include <string>

namespace headrace {

// Never closed: its threads and what it registered may outlive every user.
class SharedLibrary {
 public:
  // The first of the places that opens; a name without a folder is looked for where the loader
  // looks (LD_LIBRARY_PATH).
  explicit SharedLibrary(std::span<const char* const> places) {
    for (const char* place : places) {
      if (handle_ == nullptr) handle_ = ::dlopen(place, RTLD_NOW | RTLD_LOCAL);
    }
  }

  bool is_open() const { return handle_ != nullptr; }
  // Whether it has a function of this name; `out` is its type's pointer. REQUIRES: is_open()
  template <class Function>
  bool find(const char* name, Function& out) const {
    out = reinterpret_cast<Function>(::dlsym(handle_, name));
    return out != nullptr;
  }

 private:
  void* handle_ = nullptr;
};

// For messages: "libnccl.so.2, /usr/lib/libnccl.so.2".
inline std::string places_text(std::span<const char* const> places) {
  std::string text;
  for (const char* place : places) text += (text.empty() ? "" : ", ") + std::string(place);
  return text;
}

}  // namespace headrace
