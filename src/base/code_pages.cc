#include "base/code_pages.h"

#include <link.h>
#include <sys/mman.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace headrace {
namespace {

constexpr uintptr_t kCodePage = 4096;

bool traced() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("TracerPid:")) return line.find_first_of("123456789") != std::string::npos;
  }
  return true;  // unknown: leave everything as it is
}

// Whether the loader wrote addresses into the object's code: its pages are not those of the file.
bool has_text_relocations(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    if (object.dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
    const auto* entry =
        reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + object.dlpi_phdr[i].p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_TEXTREL) return true;
      if (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL) != 0) return true;
    }
  }
  return false;
}

// Segments that are never written (code, constants, tables of symbols) are as they are in their
// file.
int release_segments(dl_phdr_info* object, size_t, void* released) {
  if (has_text_relocations(*object)) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    const uintptr_t first = (begin + kCodePage - 1) / kCodePage * kCodePage;
    const uintptr_t last = (begin + segment.p_memsz) / kCodePage * kCodePage;
    if (last <= first) continue;
    if (::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) == 0) {
      *static_cast<size_t*>(released) += last - first;
    }
  }
  return 0;
}

}  // namespace

size_t release_code_pages() {
  size_t released = 0;
  if (!traced()) ::dl_iterate_phdr(release_segments, &released);
  return released;
}

}  // namespace headrace
