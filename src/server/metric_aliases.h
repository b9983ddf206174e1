// The same numbers under the names that other dashboards read: SGLang's, and older ones of vLLM.
#pragma once

#include <vector>

#include <prometheus/metric_family.h>

namespace headrace {

// Appends a copy of each family that has such a name, under it.
void add_metric_aliases(std::vector<prometheus::MetricFamily>& families);

}  // namespace headrace
