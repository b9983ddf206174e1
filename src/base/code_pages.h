// Memory that the program's code takes.
#pragma once

#include <cstddef>

namespace headrace {

// Unmaps the pages of code of the program and its shared libraries; what runs on is mapped again
// from the page cache, 16 pages at a time (about 1 us). For the end of a phase whose code is not
// needed any more: a load runs over 7 MB of it, the steps after it over 3. Nothing happens under a
// debugger, whose breakpoints are in these pages. Returns the bytes of address space passed over.
// Any thread.
size_t release_code_pages();

}  // namespace headrace
