// batch: answers a file of requests, as OpenAI's batch API has them.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_batch(CLI::App& app);

}  // namespace headrace
