#include "apps/step_trace.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

namespace headrace {

StepTrace trace_of_step(std::span<const KernelRun> less, std::span<const KernelRun> more,
                        int32_t steps, int32_t layers) {
  std::map<std::string, KernelFamily> families;
  const auto add = [&](std::span<const KernelRun> runs, double share) {
    for (const KernelRun& run : runs) {
      KernelFamily& family = families[kernel_family(run.name)];
      family.launches += share;
      family.microseconds += share * static_cast<double>(run.end_ns - run.start_ns) * 1e-3;
    }
  };
  add(more, 1.0 / steps);
  add(less, -1.0 / steps);
  StepTrace trace;
  for (auto& [name, family] : families) {
    // Kernels of the prompt alone cancel out, but for the noise of their times.
    if (std::abs(family.launches) < 0.5 / steps) continue;
    family.name = name;
    trace.launches += family.launches;
    trace.launches_per_layer += std::floor((family.launches + 0.01) / layers);
    trace.microseconds += family.microseconds;
    trace.families.push_back(std::move(family));
  }
  std::sort(trace.families.begin(), trace.families.end(),
            [](const auto& a, const auto& b) { return a.microseconds > b.microseconds; });
  return trace;
}

Json to_json(const StepTrace& trace) {
  Json families = Json::array();
  for (const KernelFamily& family : trace.families) {
    families.push(Json(Json::Object{
        {"kernel", family.name}, {"launches", family.launches}, {"us", family.microseconds}}));
  }
  return Json(Json::Object{{"launches_per_step", trace.launches},
                           {"launches_per_layer", trace.launches_per_layer},
                           {"kernel_us_per_step", trace.microseconds},
                           {"families", std::move(families)}});
}

std::string to_text(const StepTrace& trace) {
  std::string text =
      fmt::format("launches        {:.1f} a step, {:.0f} a layer; kernels take {:.1f} us\n",
                  trace.launches, trace.launches_per_layer, trace.microseconds);
  for (const KernelFamily& family : trace.families) {
    text +=
        fmt::format("  {:>9.1f} us {:>5.1f} % {:>7.1f} x  {}\n", family.microseconds,
                    100 * family.microseconds / trace.microseconds, family.launches, family.name);
  }
  return text;
}

}  // namespace headrace
