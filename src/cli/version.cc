#include "cli/version.h"

namespace headrace {

std::string_view program_version() { return HEADRACE_VERSION; }
std::string_view build_commit() { return HEADRACE_BUILD_COMMIT; }
int build_number() { return HEADRACE_BUILD_NUMBER; }

}  // namespace headrace
