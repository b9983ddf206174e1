#include "weights/architecture_map.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/mapped_file.h"
#include "weights/model_family.h"

namespace headrace {
namespace {

constexpr size_t kMapBytesMax = 1 << 20;
constexpr std::string_view kMembers[] = {"class", "like", "config", "values", "tensors"};

size_t places_in(std::string_view name) {
  size_t count = 0;
  for (size_t at = name.find("{}"); at != name.npos; at = name.find("{}", at + 2)) ++count;
  return count;
}

// What a path of keys, "a.b", leads to; null: there is none.
const Json* find_path(const Json& json, std::string_view path) {
  const Json* at = &json;
  while (at != nullptr && !path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    at = at->is_object() ? at->find(path.substr(0, dot)) : nullptr;
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return at;
}

}  // namespace

Status ArchitectureMap::wrong(std::string_view member, std::string_view what) const {
  return invalid_argument(fmt::format("--architecture-map: {}: {}: {}", path_, member, what),
                          "architecture-map");
}

Result<ArchitectureMap> ArchitectureMap::read(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file.ok()) return file.status().with_context("--architecture-map");
  const auto bytes = (*file)->bytes();
  if (bytes.size() > kMapBytesMax) {
    return invalid_argument(fmt::format("--architecture-map: {}: {} bytes, a map has at most {}",
                                        path, bytes.size(), kMapBytesMax),
                            "architecture-map");
  }
  const auto json =
      parse_json(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  if (!json.ok()) return json.status().with_context("--architecture-map: " + path);
  return from_json(*json, path);
}

Result<ArchitectureMap> ArchitectureMap::from_json(const Json& json, std::string_view path) {
  ArchitectureMap map;
  map.path_ = path;
  if (!json.is_object()) return map.wrong("map", "is no JSON object");
  for (const auto& [name, value] : json.as_object()) {
    if (std::ranges::find(kMembers, name) != std::end(kMembers)) continue;
    return map.wrong(printable(name), "is no member (known: class, like, config, values, tensors)");
  }
  for (const auto& [name, text] :
       {std::pair("class", &map.own_class_), {"like", &map.known_class_}}) {
    const Json* const member = json.find(name);
    if (member == nullptr || !member->is_string()) return map.wrong(name, "is no name of a class");
    *text = member->as_string();
  }
  if (find_hf_family(map.own_class_) != nullptr) {
    return map.wrong("class", fmt::format("\"{}\" is known, and needs no map", map.own_class_));
  }
  if (find_hf_family(map.known_class_) == nullptr) {
    return map.wrong("like", fmt::format("\"{}\" is not supported (known: {})",
                                         printable(map.known_class_), known_hf_classes()));
  }
  HR_ASSIGN_OR_RETURN(map.keys_, map.pairs(json, "config"));
  HR_ASSIGN_OR_RETURN(map.tensors_, map.pairs(json, "tensors"));
  HR_RETURN_IF_ERROR(map.check_tensors());
  if (const Json* const values = json.find("values")) {
    if (!values->is_object()) return map.wrong("values", "is no object");
    map.values_ = *values;
  }
  return map;
}

Result<std::vector<ArchitectureMap::Pair>> ArchitectureMap::pairs(const Json& json,
                                                                  std::string_view member) const {
  std::vector<Pair> pairs;
  const Json* const given = json.find(member);
  if (given == nullptr) return pairs;
  if (!given->is_object()) return wrong(member, "is no object");
  for (const auto& [known, own] : given->as_object()) {
    if (!own.is_string() || own.as_string().empty()) {
      return wrong(member, fmt::format("\"{}\" has no name", printable(known)));
    }
    pairs.push_back({known, own.as_string()});
  }
  return pairs;
}

Status ArchitectureMap::check_tensors() const {
  for (const Pair& pair : tensors_) {
    if (places_in(pair.known) == places_in(pair.own)) continue;
    return wrong("tensors", fmt::format("\"{}\" and \"{}\" have not equally many {{}}",
                                        printable(pair.known), printable(pair.own)));
  }
  return ok_status();
}

Result<Json> ArchitectureMap::apply(const Json& config) const {
  const Json* const list = config.is_object() ? config.find("architectures") : nullptr;
  const bool named = list != nullptr && list->is_array() && !list->as_array().empty() &&
                     list->as_array().front().is_string();
  const std::string own = named ? list->as_array().front().as_string() : "";
  if (own != own_class_) {
    return wrong("class", fmt::format("the model's config.json is of \"{}\", not of \"{}\"",
                                      printable(own), printable(own_class_)));
  }
  Json known = config;
  for (const Pair& pair : keys_) {
    const Json* const value = find_path(config, pair.own);
    if (value == nullptr) {
      return wrong("config", fmt::format("the model's config.json has no \"{}\", which is to be {}",
                                         printable(pair.own), printable(pair.known)));
    }
    known.set(pair.known, *value);
  }
  for (const auto& [key, value] : values_.as_object()) known.set(key, value);
  known.set("architectures", Json(Json::Array{Json(known_class_)}));
  return known;
}

Result<std::shared_ptr<const MappedNames>> ArchitectureMap::names(HfTensorNames known) const {
  auto mapped = std::make_shared<MappedNames>();
  for (const Pair& pair : tensors_) {
    const auto row = std::ranges::find(known, pair.known, &HfTensorName::hf);
    if (row == known.end()) {
      return wrong("tensors",
                   fmt::format("\"{}\" is no tensor of {}", printable(pair.known), known_class_));
    }
    HfTensorName own = *row;
    own.hf = mapped->strings.emplace_back(pair.own);
    mapped->rows.push_back(own);
  }
  for (const HfTensorName& row : known) {
    if (std::ranges::find(tensors_, row.hf, &Pair::known) == tensors_.end()) {
      mapped->rows.push_back(row);
    }
  }
  return std::shared_ptr<const MappedNames>(std::move(mapped));
}

}  // namespace headrace
