#include "quantize/quantize_journal.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr size_t kJournalBytesMax = 1 << 20;

}  // namespace

// Settings are compared as they read back.
QuantizeJournal::QuantizeJournal(std::string path, Json settings)
    : path_(std::move(path)), settings_(parse_json(write_json(settings)).value()) {}

std::vector<double> QuantizeJournal::read() const {
  std::ifstream file(path_, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file || text.size() > kJournalBytesMax) return {};
  const auto json = parse_json(text);
  if (!json.ok() || !json->is_object()) return {};
  const Json* settings = json->find("settings");
  const Json* errors = json->find("errors");
  if (settings == nullptr || *settings != settings_) return {};
  std::vector<double> done;
  if (errors == nullptr || !errors->is_array()) return {};
  for (const Json& error : errors->as_array())
    done.push_back(error.is_number() ? error.as_double() : -1);
  return done;
}

// Under another name first: what is there is always whole.
Status QuantizeJournal::write(const std::vector<double>& errors) const {
  Json list = Json::array();
  for (const double error : errors) list.push(error);
  const std::string next = path_ + ".next";
  std::ofstream file(next, std::ios::binary);
  file << write_json(Json::object().set("settings", settings_).set("errors", std::move(list)));
  file.close();
  if (file && std::rename(next.c_str(), path_.c_str()) == 0) return ok_status();
  return internal_error(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
}

void QuantizeJournal::remove() const { std::remove(path_.c_str()); }

}  // namespace headrace
