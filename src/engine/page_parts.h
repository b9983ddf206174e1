// What others see as a page where each of several runners has a part of it (ranks, stages): the
// pages of all of them, one behind the other.
#pragma once

#include <cstdint>
#include <ranges>

#include "base/status.h"
#include "engine/runner.h"

namespace headrace {

// `runners`: a range of pointers to them.
template <class Runners>
int64_t bytes_of_page(const Runners& runners) {
  int64_t bytes = 0;
  for (const auto& runner : runners) bytes += runner->page_bytes();
  return bytes;
}

// Calls work(runner, its part of `bytes`) for one runner after the other, to the first error.
template <class Runners, class Bytes, class Work>
Status with_page_parts(const Runners& runners, Bytes bytes, const Work& work) {
  for (const auto& runner : runners) {
    const auto own = static_cast<size_t>(runner->page_bytes());
    HR_RETURN_IF_ERROR(work(*runner, bytes.first(own)));
    bytes = bytes.subspan(own);
  }
  return ok_status();
}

}  // namespace headrace
