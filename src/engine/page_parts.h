// What others see as a page where each of several runners has a part of it (ranks, stages): the
// pages of all of them, one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

// As Runner::read_page() and write_page(), one runner after the other, to the first error.
template <class Runners>
Status read_page_of(const Runners& runners, TierPage from, std::span<std::byte> to) {
  for (const auto& runner : runners) {
    const auto own = static_cast<size_t>(runner->page_bytes());
    HR_RETURN_IF_ERROR(runner->read_page(from, to.first(own)));
    to = to.subspan(own);
  }
  return ok_status();
}
template <class Runners>
Status write_page_of(const Runners& runners, std::span<const std::byte> from, BlockId to) {
  for (const auto& runner : runners) {
    const auto own = static_cast<size_t>(runner->page_bytes());
    HR_RETURN_IF_ERROR(runner->write_page(from.first(own), to));
    from = from.subspan(own);
  }
  return ok_status();
}

}  // namespace headrace
