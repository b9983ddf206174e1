#include "models/lora_slots.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include <fmt/format.h>

#include "ops/linear/lora_linear.h"

namespace headrace {
namespace {

// An adapter that is gone for whoever counts them may still be giving its slot back.
constexpr std::chrono::seconds kLoraSlotWait{1};

// Where every factor lies in a slot, and how large a slot is.
struct LoraSlotPlan {
  std::vector<std::vector<LoraPlace>> places;  // [sites]
  int64_t slot_bytes = 0;
  int32_t factor_count = 0;

  static LoraSlotPlan of(std::span<const MatrixStack> sites, int32_t rank_max, DType dtype) {
    LoraSlotPlan plan;
    for (const MatrixStack& site : sites) {
      std::vector<LoraPlace>& places = plan.places.emplace_back();
      int64_t first_column = 0;
      for (const MatrixStack::Rows& rows : site.rows) {
        LoraPlace& place = places.emplace_back();
        place.a = plan.slot_bytes;
        place.b = place.a + lora_a_bytes(dtype, rank_max, site.columns);
        place.index = plan.factor_count++;
        place.columns = rows.count;
        place.first_column = first_column;
        plan.slot_bytes = place.b + lora_b_bytes(dtype, rank_max, rows.count);
        first_column += rows.count;
      }
      CHECK(places.size() <= kLoraPlacesMax);
    }
    return plan;
  }
};

}  // namespace

int64_t LoraSlots::bytes(std::span<const MatrixStack> sites, Sizes sizes, DType dtype) {
  const LoraSlotPlan plan = LoraSlotPlan::of(sites, sizes.rank_max, dtype);
  return sizes.count *
         (plan.slot_bytes + plan.factor_count * static_cast<int64_t>(sizeof(LoraScale)));
}

Result<std::shared_ptr<LoraSlots>> LoraSlots::create(Device& device,
                                                     std::span<const MatrixStack> sites,
                                                     Sizes sizes, DType dtype) {
  CHECK(sizes.count > 0 && sizes.rank_max > 0);
  LoraSlotPlan plan = LoraSlotPlan::of(sites, sizes.rank_max, dtype);
  std::shared_ptr<LoraSlots> slots(new LoraSlots);
  slots->sizes_ = sizes;
  slots->places_ = std::move(plan.places);
  slots->view_ = {.slot_bytes = plan.slot_bytes,
                  .factor_count = plan.factor_count,
                  .dtype = dtype,
                  .rank_max = sizes.rank_max};
  HR_ASSIGN_OR_RETURN(slots->memory_, device.allocate(sizes.count * plan.slot_bytes));
  HR_ASSIGN_OR_RETURN(slots->scales_, device.allocate(sizes.count * slots->scale_bytes()));
  const auto stream = device.create_stream();
  stream->fill_zero(slots->scales_.data(), slots->scales_.size());
  HR_RETURN_IF_ERROR(stream->synchronize());
  slots->view_.memory = slots->memory_.data();
  slots->view_.scales = reinterpret_cast<const LoraScale*>(slots->scales_.data());
  for (int32_t slot = sizes.count; slot-- > 0;) slots->free_.push_back(slot);
  return slots;
}

Result<int32_t> LoraSlots::take() {
  std::unique_lock lock(mutex_);
  if (!given_back_.wait_for(lock, kLoraSlotWait, [&] { return !free_.empty(); })) {
    return exhausted(fmt::format("{} adapters are in the GPU's memory, which is the most "
                                 "(--max-cpu-loras): unload one",
                                 sizes_.count),
                     "lora_name");
  }
  const int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void LoraSlots::give_back(int32_t slot) {
  {
    const std::lock_guard lock(mutex_);
    CHECK(slot >= 0 && slot < sizes_.count);
    free_.push_back(slot);
  }
  given_back_.notify_one();
}

int64_t lora_slots_workspace_bytes(std::span<const MatrixStack> sites, int64_t rows,
                                   LoraSlots::Sizes sizes) {
  const int64_t tasks = lora_tasks_max(rows, sizes.count);
  int64_t bytes = 0;
  for (const MatrixStack& site : sites) {
    bytes = std::max(bytes, lora_tasks_workspace_bytes(tasks, site.columns, std::ssize(site.rows),
                                                       sizes.rank_max));
  }
  return bytes;
}

}  // namespace headrace
