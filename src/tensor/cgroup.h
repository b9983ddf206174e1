// The control groups that this process is in, as the kernel shows them: containers and services set
// their limits there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct CgroupFolder {
  std::string path;
  bool v2 = false;  // the names of its files are those of cgroup v2
};

// Folders of the groups on the way from the process's own up to the root, of both versions; each
// may have a limit, and a folder need not exist. `controller`: "cpu", "memory". `root` stands in
// front of /proc and /sys (for tests).
std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& root = "");

}  // namespace headrace
