#include "engine/kv_memory.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/log.h"
#include "tensor/physical_pages.h"

namespace headrace {
namespace {

class PagedMemory final : public KvMemory {
 public:
  PagedMemory(const KvMemoryShape& shape, Buffer pool) : shape_(shape), pool_(std::move(pool)) {}

  Result<const StepPlan*> map(const StepPlan& plan, Stream&) override { return &plan; }
  void copy_pages(Stream& stream, std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies) {
      stream.copy(pool_.data() + copy.to.value * shape_.page_bytes,
                  pool_.data() + copy.from.value * shape_.page_bytes, shape_.page_bytes);
    }
  }
  std::byte* base() const override { return pool_.data(); }
  int32_t padding_entry() const override { return shape_.page_count - 1; }
  std::byte* pool() const override { return pool_.data(); }
  KvMemoryStats stats() const override { return {.bytes = pool_.size()}; }

 private:
  const KvMemoryShape shape_;
  Buffer pool_;
};

// What the two kinds with a place for each (slot, group, index) share: the rewriting of plans.
class RangedMemory : public KvMemory {
 public:
  explicit RangedMemory(const KvMemoryShape& shape)
      : shape_(shape),
        held_(static_cast<size_t>(shape.slot_count) * static_cast<size_t>(shape.group_count)) {}

  Result<const StepPlan*> map(const StepPlan& plan, Stream& stream) override {
    const auto start = std::chrono::steady_clock::now();
    mapped_ = plan;
    begin_plan(stream);
    for (Admission& admission : mapped_.admitted) {
      for (int32_t group = 0; group < shape_.group_count; ++group) held(admission.slot, group) = 0;
      HR_RETURN_IF_ERROR(place(admission.slot, admission.blocks, /*shared=*/true, stream));
    }
    for (Work& work : mapped_.work) {
      HR_RETURN_IF_ERROR(place(work.slot, work.new_blocks, /*shared=*/false, stream));
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    stats_.map_seconds += seconds.count();
    return &mapped_;
  }
  KvMemoryStats stats() const override { return stats_; }

 protected:
  enum class Put {
    kNew,      // nothing is there yet
    kShared,   // others have the page, with its content
    kInstead,  // of a page that the sequence has had there: copy-on-write
  };
  virtual void begin_plan(Stream&) {}
  // Gives `entry` the page's memory.
  virtual Status put(int32_t entry, BlockId page, Put how, Stream& stream) = 0;

  int64_t entry_count() const {
    return int64_t{shape_.slot_count} * shape_.group_count * shape_.pages_per_sequence;
  }
  int32_t entry_of(SlotId slot, int32_t group, int32_t index) const {
    CHECK(index >= 0 && index < shape_.pages_per_sequence);
    return (slot.value * shape_.group_count + group) * shape_.pages_per_sequence + index;
  }

  const KvMemoryShape shape_;
  KvMemoryStats stats_;

 private:
  Status place(SlotId slot, std::vector<GroupBlocks>& groups, bool shared, Stream& stream) {
    for (GroupBlocks& group : groups) {
      for (size_t i = 0; i < group.blocks.size(); ++i) {
        const int32_t index = group.first_index + static_cast<int32_t>(i);
        const int32_t entry = entry_of(slot, group.group, index);
        int32_t& length = held(slot, group.group);
        const Put how = shared ? Put::kShared : index < length ? Put::kInstead : Put::kNew;
        HR_RETURN_IF_ERROR(put(entry, group.blocks[i], how, stream));
        length = std::max(length, index + 1);
        group.blocks[i] = BlockId(entry);
      }
    }
    return ok_status();
  }

  int32_t& held(SlotId slot, int32_t group) {
    return held_[static_cast<size_t>(slot.value * shape_.group_count + group)];
  }

  StepPlan mapped_;
  std::vector<int32_t> held_;  // [slots][groups] pages that the sequence has had a place for
};

// On a CPU each page that is shown is a mapping of its own, of which the system bounds how many a
// process has.
void warn_of_mappings(int64_t entries) {
  int64_t most = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> most) || entries < most) return;
  log_warning(
      "--kv-memory virtual may come to show {} pages, and a process may have {} mappings "
      "(vm.max_map_count): lower --max-num-seqs or --max-model-len, raise it to {}, or use "
      "--kv-memory paged",
      entries, most, 2 * entries);
}

// Entries of the ranges come first; behind them, one page for padding.
class VirtualMemory final : public RangedMemory {
 public:
  static Result<std::unique_ptr<KvMemory>> create(Device& device, const KvMemoryShape& shape) {
    auto memory = std::make_unique<VirtualMemory>(shape);
    HR_ASSIGN_OR_RETURN(memory->pages_,
                        PhysicalPages::create(device, shape.page_bytes, shape.page_count));
    const int64_t entries = memory->entry_count() + 1;
    if (device.kind() == DeviceKind::kCpu) warn_of_mappings(entries);
    HR_ASSIGN_OR_RETURN(memory->base_, memory->pages_->reserve(entries * shape.page_bytes));
    memory->shown_.assign(static_cast<size_t>(entries), -1);
    HR_RETURN_IF_ERROR(memory->show(memory->padding_entry(), BlockId(shape.page_count - 1)));
    memory->stats_.bytes = shape.page_bytes * shape.page_count;
    return std::unique_ptr<KvMemory>(std::move(memory));
  }
  explicit VirtualMemory(const KvMemoryShape& shape) : RangedMemory(shape) {}

  void copy_pages(Stream& stream, std::span<const BlockCopy> copies) override {
    for (const BlockCopy& copy : copies) {
      stream.copy(pool() + copy.to.value * shape_.page_bytes,
                  pool() + copy.from.value * shape_.page_bytes, shape_.page_bytes);
    }
  }
  std::byte* base() const override { return base_; }
  int32_t padding_entry() const override { return static_cast<int32_t>(entry_count()); }
  std::byte* pool() const override { return pages_->linear(); }

 private:
  // A step in flight may still use the page that another takes the place of.
  Status put(int32_t entry, BlockId page, Put how, Stream& stream) override {
    if (how == Put::kInstead) HR_RETURN_IF_ERROR(stream.synchronize());
    return show(entry, page);
  }

  // What a sequence that has left its slot showed stays until another takes the place.
  Status show(int32_t entry, BlockId page) {
    int32_t& shown = shown_[static_cast<size_t>(entry)];
    if (shown == page.value) return ok_status();
    HR_RETURN_IF_ERROR(pages_->map(base_ + entry * shape_.page_bytes, page.value));
    shown = page.value;
    ++stats_.mapped;
    return ok_status();
  }

  std::unique_ptr<PhysicalPages> pages_;
  std::byte* base_ = nullptr;
  std::vector<int32_t> shown_;  // [entries] page, -1: none
};

// Choices of a request share the prompt's pages: each gets a copy when the step that computes the
// prompt has been submitted. (There is no prefix cache to share with others.)
class ContiguousMemory final : public RangedMemory {
 public:
  static Result<std::unique_ptr<KvMemory>> create(Device& device, const KvMemoryShape& shape) {
    auto memory = std::make_unique<ContiguousMemory>(shape);
    const int64_t entries = memory->entry_count() + 1;
    HR_ASSIGN_OR_RETURN(memory->memory_, device.allocate(entries * shape.page_bytes));
    memory->entries_.assign(static_cast<size_t>(shape.page_count), -1);
    memory->stats_.bytes = memory->memory_.size();
    return std::unique_ptr<KvMemory>(std::move(memory));
  }
  explicit ContiguousMemory(const KvMemoryShape& shape) : RangedMemory(shape) {}

  // A copy's place is that of the page it is made of, where its sequence's own content is.
  void copy_pages(Stream&, std::span<const BlockCopy>) override {}
  std::byte* base() const override { return memory_.data(); }
  int32_t padding_entry() const override { return static_cast<int32_t>(entry_count()); }
  std::byte* pool() const override { return nullptr; }

 private:
  void begin_plan(Stream& stream) override {
    for (const auto& [to, page] : pending_) {
      const int32_t from = entries_[static_cast<size_t>(page.value)];
      CHECK_MSG(from >= 0, "a shared page that nobody wrote");
      if (from == to) continue;
      stream.copy(memory_.data() + to * shape_.page_bytes,
                  memory_.data() + from * shape_.page_bytes, shape_.page_bytes);
      ++stats_.copied;
    }
    pending_.clear();
  }
  Status put(int32_t to, BlockId page, Put how, Stream&) override {
    if (how == Put::kShared) {
      pending_.emplace_back(to, page);
    } else {
      entries_[static_cast<size_t>(page.value)] = to;
    }
    return ok_status();
  }

  Buffer memory_;
  std::vector<int32_t> entries_;                      // [pages] who computed it; -1: nobody
  std::vector<std::pair<int32_t, BlockId>> pending_;  // to, of: after the step just submitted
};

}  // namespace

Result<int64_t> KvMemory::page_bytes_for(KvMemoryKind kind, Device& device, int64_t page_bytes) {
  if (kind != KvMemoryKind::kVirtual) return page_bytes;
  HR_ASSIGN_OR_RETURN(const int64_t unit, PhysicalPages::granularity(device));
  const int64_t padded = (page_bytes + unit - 1) / unit * unit;
  if (padded - page_bytes <= page_bytes / 8) return padded;
  return invalid_argument(
      fmt::format("--kv-memory virtual maps pages of {} KiB, and this model's are {} KiB: use "
                  "--kv-memory paged",
                  unit >> 10, page_bytes >> 10),
      "kv_memory");
}

void KvMemory::populate(ThreadPool& threads) {
  constexpr int64_t kSlice = int64_t{2} << 20;
  std::byte* const begin = pool() != nullptr ? pool() : base();
  const int64_t bytes = stats().bytes;
  threads.parallel_for((bytes + kSlice - 1) / kSlice, 1, [&](int64_t first, int64_t last) {
    const int64_t from = first * kSlice, to = std::min(last * kSlice, bytes);
    std::fill(begin + from, begin + to, std::byte{0});
  });
}

Result<std::unique_ptr<KvMemory>> KvMemory::create(KvMemoryKind kind, Device& device,
                                                   const KvMemoryShape& shape) {
  const int64_t entries =
      int64_t{shape.slot_count} * shape.group_count * shape.pages_per_sequence + 1;
  if (entries > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("--max-num-seqs x --max-model-len is too much for --kv-memory",
                            "kv_memory");
  }
  if (kind == KvMemoryKind::kVirtual) return VirtualMemory::create(device, shape);
  if (kind == KvMemoryKind::kContiguous) return ContiguousMemory::create(device, shape);
  HR_ASSIGN_OR_RETURN(Buffer pool, device.allocate(shape.page_bytes * shape.page_count));
  return std::unique_ptr<KvMemory>(std::make_unique<PagedMemory>(shape, std::move(pool)));
}

}  // namespace headrace
