// KvMemory: where the pages of the KV pool lie, as kernels see them. Three managers behind one
// interface (--kv-memory):
//
//   paged       page b at base + b * page_bytes; kernels go through block tables (PagedAttention)
//   virtual     each sequence has a range of addresses for its whole context; pages are mapped into
//               it as the scheduler gives them, one page into several ranges where it is shared
//               (vAttention; OpenPPL's). To kernels a sequence is contiguous
//   contiguous  each sequence has memory for its whole context, whatever it uses; a page that is
//               shared is copied. The baseline
//
// Kernels address all three by block tables: an entry e is at base() + e * page_bytes. In the
// last two a sequence's entries follow one another.
//
// Used by the engine thread. A plan is mapped when it is submitted: on a GPU that is beside the
// step before it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/named.h"
#include "base/status.h"
#include "sched/step_plan.h"
#include "tensor/device.h"

namespace headrace {

enum class KvMemoryKind : uint8_t { kPaged, kVirtual, kContiguous };
inline constexpr Named<KvMemoryKind> kKvMemoryKinds[] = {
    {"paged", KvMemoryKind::kPaged},
    {"virtual", KvMemoryKind::kVirtual},
    {"contiguous", KvMemoryKind::kContiguous},
};

struct KvMemoryShape {
  int64_t page_bytes = 0;
  int32_t page_count = 0;  // of the pool
  int32_t slot_count = 0;
  int32_t group_count = 0;
  int32_t pages_per_sequence = 0;  // of the longest, in one group
};

struct KvMemoryStats {
  int64_t bytes = 0;    // of memory
  uint64_t mapped = 0;  // pages that were mapped into a range
  uint64_t copied = 0;  // shared pages that were copied (contiguous)
  double map_seconds = 0;
};

class KvMemory {
 public:
  // kInvalidArgument where the device cannot map pages of this size; kExhausted.
  static Result<std::unique_ptr<KvMemory>> create(KvMemoryKind kind, Device& device,
                                                  const KvMemoryShape& shape);
  // The size of a page that this kind can map on the device; kInvalidArgument where that is more
  // than an eighth larger than `page_bytes`.
  static Result<int64_t> page_bytes_for(KvMemoryKind kind, Device& device, int64_t page_bytes);
  virtual ~KvMemory() = default;

  // Returns the plan with entries of block tables in the place of pages; it lives until the next
  // call. Pages that are shared or new have their memory from now on; copies are started on
  // `stream`.
  virtual Result<const StepPlan*> map(const StepPlan& plan, Stream& stream) = 0;
  // Copies pages on write, in the places that map() gave. REQUIRES: map() of the same plan was
  // called
  virtual void copy_pages(Stream& stream, std::span<const BlockCopy> copies) = 0;
  // Where the page of entry 0 lies.
  virtual std::byte* base() const = 0;
  // An entry that nothing else uses, for rows of padding: the pool's last page.
  virtual int32_t padding_entry() const = 0;
  // Page 0 of pages side by side, for moves between tiers; null: there are none (contiguous).
  virtual std::byte* pool() const = 0;
  virtual KvMemoryStats stats() const = 0;

  // Has the system find all of its memory now, and not when a page is written first: 11 MB for a
  // token of 32 sequences, where a virtual machine's host took 1.1 ms a MiB. Clears it. REQUIRES:
  // memory of the CPU that nothing has used yet
  void populate(ThreadPool& threads);
};

}  // namespace headrace
