// bench weights: the dummy weights of --load-format dummy as a Hugging Face folder, so that loads
// can be timed and other engines can run on the same values.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_bench_weights(CLI::App& app);

}  // namespace headrace
