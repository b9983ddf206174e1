// quantize: a model's weights to few bits, in a new file or folder.
#pragma once

#include "cli/subcommand.h"

namespace headrace {

SubcommandRun define_quantize(CLI::App& app);

}  // namespace headrace
