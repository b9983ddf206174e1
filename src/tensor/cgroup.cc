#include "tensor/cgroup.h"

#include <fstream>

namespace headrace {
namespace {

void add_folders(const std::string& mount, std::string group, bool v2,
                 std::vector<CgroupFolder>& folders) {
  folders.push_back({mount, v2});  // a container often sees its own group here
  while (group.size() > 1) {
    folders.push_back({mount + group, v2});
    group.erase(group.rfind('/'));
  }
}

}  // namespace

// Lines of /proc/self/cgroup: "0::/a/b" (v2), "4:cpu,cpuacct:/a/b" (v1).
std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  const std::string name(controller);
  std::vector<CgroupFolder> folders;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      add_folders(mount, group, true, folders);
      add_folders(mount + "/unified", group, true, folders);
    } else if (("," + controllers + ",").find("," + name + ",") != line.npos) {
      add_folders(mount + "/" + name, group, false, folders);
      if (controllers != name) add_folders(mount + "/" + controllers, group, false, folders);
    }
  }
  return folders;
}

}  // namespace headrace
