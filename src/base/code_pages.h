// Memory that the program's code and constants take.
#pragma once

#include <cstddef>

namespace headrace {

// Unmaps the pages of code and constants of the program and its shared libraries; what is used on
// is mapped again from the page cache, 16 pages at a time (about 1 us). For the end of a phase
// whose code is not needed any more: the start runs over 9 MB of it, a load over 7, the steps after
// it over 4. Nothing happens under a debugger, whose breakpoints are in these pages, nor to an
// object with relocations in its code. Returns the bytes of address space passed over. Any thread.
size_t release_code_pages();

}  // namespace headrace
