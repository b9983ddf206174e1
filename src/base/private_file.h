// Files that hold what users sent and got: nobody else on the machine is to read them, at no
// moment, and a name that somebody else has put there leads nowhere. Any thread.
#pragma once

#include <string>

namespace headrace {

// A new file, for its owner alone from the first moment, open to be read and written. What was at
// `path` (left by a crash, or a symbolic link that waits for us) is unlinked, not followed.
// Returns the descriptor; -1: errno says why.
int create_private_file(const std::string& path);

// Opens a file that is there, or makes it as above. A symbolic link is refused (ELOOP). `flags` are
// further ones of open(2).
int open_private_file(const std::string& path, int flags);

// Opens a file to be read, if it is a regular one of this user's (or root's) that nobody else may
// write: else somebody else could have put it there. -1: errno says why (EPERM for those two).
int open_own_file(const std::string& path);

}  // namespace headrace
