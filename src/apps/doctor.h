// What this machine has of what a model needs, what that means, and what to change.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/named.h"
#include "tensor/cpu_features.h"

namespace headrace {

enum class Verdict {
  kGood,
  kNote,     // it works, and would be better otherwise
  kTrouble,  // something will not work
};
inline constexpr Named<Verdict> kVerdicts[] = {
    {"good", Verdict::kGood}, {"note", Verdict::kNote}, {"trouble", Verdict::kTrouble}};

struct Finding {
  std::string about;  // a word: "cpu"
  Verdict verdict = Verdict::kGood;
  std::string found;   // "avx2, 4 cores"
  std::string remedy;  // what it means and what to change; empty: nothing
};

// Each looks at one thing. `root` stands in front of /proc, /sys and /dev (for tests).
Finding cpu_finding(const CpuFeatures& features);
Finding threads_finding(const std::string& root = "");
Finding memory_finding(const std::string& root = "");
Finding huge_pages_finding(const std::string& root = "");
Finding gpu_finding(const std::string& root = "");
// Of a folder that is there or is to be.
Finding disk_finding(std::string_view about, const std::string& folder);
// Whether a server could listen there.
Finding port_finding(uint16_t port);
// Bytes a second that all threads read; takes half a second.
Finding read_rate_finding();

// All of them, on this machine.
std::vector<Finding> examine_machine(uint16_t port);

// A line a finding, and one for its remedy.
std::string findings_text(const std::vector<Finding>& findings);
Json findings_json(const std::vector<Finding>& findings);
bool has_trouble(const std::vector<Finding>& findings);

}  // namespace headrace
