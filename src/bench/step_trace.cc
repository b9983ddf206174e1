#include "bench/step_trace.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "base/check.h"

namespace headrace {

Result<StepTrace> trace_of_step(std::span<const KernelRun> runs, int32_t steps, int32_t layers) {
  CHECK(steps > kTracedSteps + 4 && layers > 0);
  std::map<std::string, std::vector<size_t>> places;
  std::vector<std::string> names;
  for (const KernelRun& run : runs) {
    names.push_back(kernel_family(run.name));
    places[names.back()].push_back(names.size() - 1);
  }
  // From one launch of a kernel that each step starts once to the next is a step. The last step may
  // be counted late, and one more be dropped.
  const auto once = std::find_if(places.begin(), places.end(), [&](const auto& place) {
    return std::abs(static_cast<int64_t>(place.second.size()) - steps) <= 2;
  });
  if (once == places.end()) return corrupt("the trace holds no kernel that each step starts once");
  const size_t middle = (once->second.size() - kTracedSteps) / 2;
  const size_t first = once->second[middle], last = once->second[middle + kTracedSteps];
  const auto a_step = [](int64_t ns) { return static_cast<double>(ns) * 1e-3 / kTracedSteps; };

  std::map<std::string, KernelFamily> families;
  for (size_t i = first; i < last; ++i) {
    KernelFamily& family = families[names[i]];
    family.name = names[i];
    family.launches += 1.0 / kTracedSteps;
    family.microseconds += a_step(runs[i].end_ns - runs[i].start_ns);
  }
  StepTrace trace{.period = a_step(runs[last].start_ns - runs[first].start_ns)};
  for (auto& [name, family] : families) {
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
                           {"step_us", trace.period},
                           {"families", std::move(families)}});
}

std::string to_text(const StepTrace& trace) {
  std::string text = fmt::format(
      "launches        {:.1f} a step, {:.0f} a layer; kernels take {:.1f} of {:.1f} us\n",
      trace.launches, trace.launches_per_layer, trace.microseconds, trace.period);
  for (const KernelFamily& family : trace.families) {
    text +=
        fmt::format("  {:>9.1f} us {:>5.1f} % {:>7.1f} x  {}\n", family.microseconds,
                    100 * family.microseconds / trace.microseconds, family.launches, family.name);
  }
  return text;
}

}  // namespace headrace
