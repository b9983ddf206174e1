// Secrets on the command line: everybody on the machine sees it (ps, /proc/PID/cmdline).
#pragma once

namespace headrace {

// Overwrites the values of --api-key, --metrics-key, --worker-api-key and --admin-key, in all their
// spellings, in the memory that
// the system shows; call it when they have been copied. Between the start of the program and this
// call they can be seen: a file or the environment has no such moment.
void hide_secret_arguments(int argc, char** argv);

}  // namespace headrace
