#include "apps/doctor_command.h"

#include <memory>
#include <vector>

#include <fmt/format.h>

#include "apps/doctor.h"
#include "cli/command_line.h"

namespace headrace {
namespace {

constexpr const char* kDoctorFooter = R"(Exit code 1: something will not work here.

Examples:
  headrace doctor
  headrace doctor --json | jq '.findings[] | select(.verdict != "good")')";

struct DoctorFlags {
  bool json = false;
  uint16_t port = 8000;
};

}  // namespace

SubcommandRun define_doctor(CLI::App& app) {
  auto flags = std::make_shared<DoctorFlags>();
  app.add_flag("--json", flags->json, "As an object")->group("Flags");
  app.add_option("--port", flags->port, "Of a server that is to be")
      ->check(CLI::Range(1, 65535))
      ->type_name("N")
      ->group("Flags");
  app.footer(kDoctorFooter);
  return [flags]() -> Result<int> {
    const std::vector<Finding> findings = examine_machine(flags->port);
    fmt::print("{}",
               flags->json ? write_json(findings_json(findings)) + "\n" : findings_text(findings));
    return has_trouble(findings) ? 1 : 0;
  };
}

}  // namespace headrace
