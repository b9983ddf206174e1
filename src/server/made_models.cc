#include "server/made_models.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include <fmt/format.h>

#include "server/header_text.h"
#include "server/ready_model.h"

namespace headrace {
namespace {

// Ollama's options and what they are on OpenAI's routes: the first of `openai`, unless the body
// says one of them.
struct ParameterName {
  std::string_view ollama;
  std::array<std::string_view, 4> openai;
};
constexpr ParameterName kParameterNames[] = {
    {"temperature", {"temperature"}},
    {"top_k", {"top_k"}},
    {"top_p", {"top_p"}},
    {"min_p", {"min_p"}},
    {"repeat_penalty", {"repetition_penalty", "repeat_penalty"}},
    {"repeat_last_n", {"repeat_last_n"}},
    {"presence_penalty", {"presence_penalty"}},
    {"frequency_penalty", {"frequency_penalty"}},
    {"seed", {"seed"}},
    {"stop", {"stop"}},
    {"num_predict", {"max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens"}},
};

// What of a made model the requests of a route can say.
enum class Saying : uint8_t {
  kNothing,    // its base alone answers
  kFields,     // parameters are fields of OpenAI's completions
  kChat,       // so they are of its chats, and there are turns
  kTurns,      // turns without parameters: nothing is sampled
  kMessages,   // Anthropic's
  kResponses,  // OpenAI's
  kOptions,    // Ollama's
};
struct RouteSaying {
  std::string_view path;
  Saying saying;
};
constexpr RouteSaying kRouteSayings[] = {
    {"/v1/chat/completions", Saying::kChat},
    {"/chat/completions", Saying::kChat},
    {"/invocations", Saying::kChat},
    {"/v1/completions", Saying::kFields},
    {"/completion", Saying::kFields},
    {"/completions", Saying::kFields},
    {"/infill", Saying::kFields},
    {"/apply-template", Saying::kTurns},
    {"/tokenize", Saying::kTurns},
    {"/detokenize", Saying::kNothing},
    {"/v1/messages", Saying::kMessages},
    {"/v1/messages/count_tokens", Saying::kMessages},
    {"/v1/responses", Saying::kResponses},
    {"/v1/responses/input_tokens", Saying::kResponses},
    {"/api/chat", Saying::kOptions},
    {"/api/generate", Saying::kOptions},
    {"/api/embed", Saying::kNothing},
    {"/api/embeddings", Saying::kNothing},
    {"/v1/embeddings", Saying::kNothing},
    {"/embedding", Saying::kNothing},
    {"/embeddings", Saying::kNothing},
};

const RouteSaying* find_saying(std::string_view path) {
  const auto found = std::find_if(std::begin(kRouteSayings), std::end(kRouteSayings),
                                  [&](const RouteSaying& each) { return each.path == path; });
  return found == std::end(kRouteSayings) ? nullptr : found;
}

bool says(const Json& body, std::string_view name) {
  const Json* value = body.find(name);
  return value && !value->is_null();
}

void apply_options(const Json& parameters, Json& body) {
  const Json* own = body.find("options");
  if (own && !own->is_null() && !own->is_object()) return;  // its reader refuses it
  Json options = parameters;
  if (own && own->is_object()) {
    for (const auto& [name, value] : own->as_object()) options.set(name, value);
  }
  body.set("options", std::move(options));
}

// What a parameter is called where it has none of OpenAI's older names.
std::string_view name_of(const ParameterName& parameter, Saying saying) {
  if (saying == Saying::kMessages && parameter.ollama == "stop") return "stop_sequences";
  if (saying == Saying::kResponses && parameter.ollama == "num_predict") return "max_output_tokens";
  return parameter.openai[0];
}

void apply_fields(const Json& parameters, Saying saying, Json& body) {
  for (const ParameterName& parameter : kParameterNames) {
    const auto& [ollama, names] = parameter;
    const std::string_view name = name_of(parameter, saying);
    const Json* value = parameters.find(ollama);
    if (!value || value->is_null()) continue;
    // Ollama's -1 and -2: as long as it likes.
    if (ollama == "num_predict" && value->is_number() && value->as_double() < 1) continue;
    const bool said =
        says(body, name) || std::any_of(names.begin(), names.end(), [&](std::string_view other) {
          return !other.empty() && says(body, other);
        });
    if (!said) body.set(name, *value);
  }
}

// Ollama's prompts: neither a raw one has a system turn, nor one with a suffix.
bool is_bare(const Json& body) {
  const Json* raw = body.find("raw");
  return (raw && *raw == Json(true)) || says(body, "suffix");
}

// A conversation that has a system turn has its own.
void apply_system_turn(const std::string& system, Json& body) {
  const Json* messages = body.find("messages");
  if (!messages || !messages->is_array() || messages->as_array().empty()) return;
  const Json* role = messages->as_array().front().find("role");
  if (role && *role == Json("system")) return;
  Json::Array all = {Json::object().set("role", "system").set("content", system)};
  all.insert(all.end(), messages->as_array().begin(), messages->as_array().end());
  body.set("messages", Json(std::move(all)));
}

// --- Modelfiles ---

constexpr std::string_view kQuotes = "\"\"\"";
// With comments and a licence; what is kept of it is bounded by less.
constexpr size_t kModelfileBytesMax = size_t{256} << 10;
constexpr int kParameterLinesMax = 256;

// What stands behind a word of a Modelfile: the rest of the line, or between quotes, of which three
// go over lines. `text` goes on behind it. False: quotes that are not closed.
bool take_value(std::string_view& text, std::string& value) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(begin);
  if (text.starts_with(kQuotes)) {
    const size_t end = text.find(kQuotes, kQuotes.size());
    if (end == text.npos) return false;
    value = text.substr(kQuotes.size(), end - kQuotes.size());
    text.remove_prefix(end + kQuotes.size());
    return true;
  }
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = trim(text.substr(0, end));
  text.remove_prefix(end);
  if (line.size() >= 2 && line.starts_with('"') && line.ends_with('"')) {
    line = line.substr(1, line.size() - 2);
  }
  value = line;
  return true;
}

// Numbers and switches are what they are, all else is a text.
Json parameter_value(const std::string& text) {
  const Result<Json> parsed = parse_json(text);
  const bool plain = parsed.ok() && (parsed->is_number() || parsed->is_bool());
  return plain ? *parsed : Json(text);
}

Status take_parameter(std::string_view line, Json& parameters) {
  const size_t space = std::min(line.find_first_of(" \t"), line.size());
  const std::string name(line.substr(0, space));
  std::string_view rest = line.substr(space);
  std::string value;
  take_value(rest, value);
  if (name.empty() || value.empty()) {
    return invalid_argument("PARAMETER must be a name and a value");
  }
  if (name != "stop") {
    parameters.set(name, parameter_value(value));
    return ok_status();
  }
  const Json* before = parameters.find("stop");
  Json stops = before ? *before : Json::array();
  parameters.set("stop", stops.push(value));
  return ok_status();
}

std::string upper(std::string_view word) {
  std::string text(word);
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

Status take_command(const std::string& word, std::string value, Json& json, Json& parameters) {
  static constexpr std::pair<std::string_view, std::string_view> kMembers[] = {
      {"FROM", "from"},         {"SYSTEM", "system"},   {"TEMPLATE", "template"},
      {"ADAPTER", "adapters"},  {"LICENSE", "license"}, {"MESSAGE", "messages"},
      {"REQUIRES", "requires"},
  };
  if (word == "PARAMETER") return take_parameter(value, parameters);
  const auto found = std::find_if(std::begin(kMembers), std::end(kMembers),
                                  [&](const auto& each) { return each.first == word; });
  if (found == std::end(kMembers)) {
    return invalid_argument(fmt::format(
        "{} is no word of a Modelfile: there are FROM, PARAMETER and SYSTEM", word.substr(0, 32)));
  }
  json.set(found->second, std::move(value));
  return ok_status();
}

}  // namespace

Result<Json> modelfile_json(std::string_view text) {
  if (text.size() > kModelfileBytesMax) {
    return invalid_argument(fmt::format("modelfile has {} bytes, of which {} are taken",
                                        text.size(), kModelfileBytesMax),
                            "modelfile");
  }
  Json json = Json::object(), parameters = Json::object();
  const char* counted = text.data();
  int64_t line = 1;
  int parameter_lines = 0;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (text.empty()) break;
    line += std::count(counted, text.data(), '\n');
    counted = text.data();
    const size_t space = std::min(text.find_first_of(" \t\r\n"), text.size());
    const std::string word = upper(text.substr(0, space));
    text.remove_prefix(space);
    std::string value;
    if (word == "PARAMETER" && ++parameter_lines > kParameterLinesMax) {
      return invalid_argument(
          fmt::format("modelfile has more than {} lines with PARAMETER", kParameterLinesMax),
          "modelfile");
    }
    if (word.starts_with('#')) {
      text.remove_prefix(std::min(text.find('\n'), text.size()));
      continue;
    }
    const bool closed = take_value(text, value);
    Status status = closed ? take_command(word, std::move(value), json, parameters)
                           : invalid_argument(R"(""" is not closed)");
    if (!status.ok()) {
      return invalid_argument(fmt::format("modelfile line {}: {}", line, status.message()),
                              "modelfile");
    }
  }
  return json.set("parameters", std::move(parameters));
}

std::string MadeModel::parameters_text() const {
  std::string text;
  for (const auto& [parameter, value] : parameters.as_object()) {
    const Json::Array values = value.is_array() ? value.as_array() : Json::Array{value};
    for (const Json& each : values) text += fmt::format("{} {}\n", parameter, write_json(each));
  }
  return text;
}

std::string MadeModel::modelfile() const {
  std::string text = fmt::format("FROM {}\n", base);
  const std::string lines = parameters_text();
  for (size_t at = 0; at < lines.size();) {
    const size_t end = lines.find('\n', at) + 1;
    text += "PARAMETER " + lines.substr(at, end - at);
    at = end;
  }
  if (!system.empty()) text += fmt::format("SYSTEM {}{}{}\n", kQuotes, system, kQuotes);
  return text;
}

bool takes_made_models(std::string_view path) { return find_saying(path) != nullptr; }

void apply_made_model(const MadeModel& model, std::string_view path, Json& body) {
  const Saying saying = find_saying(path)->saying;
  body.set("model", model.base);
  if (saying == Saying::kOptions) {
    apply_options(model.parameters, body);
  } else if (saying != Saying::kNothing && saying != Saying::kTurns) {
    apply_fields(model.parameters, saying, body);
  }
  if (model.system.empty()) return;
  const bool of_prompt = path == "/api/generate";
  if (saying == Saying::kResponses) {
    if (!says(body, "instructions")) body.set("instructions", model.system);
  } else if (saying == Saying::kMessages || of_prompt) {
    if (!says(body, "system") && !(of_prompt && is_bare(body))) body.set("system", model.system);
  } else if (saying != Saying::kFields && saying != Saying::kNothing) {
    apply_system_turn(model.system, body);
  }
}

Status MadeModels::put(const std::string& owner, MadeModel model) {
  std::lock_guard lock(mutex_);
  const std::pair key(owner, model.name);
  const auto own = std::count_if(models_.begin(), models_.end(),
                                 [&](const auto& each) { return each.first.first == owner; });
  if (!models_.contains(key) && static_cast<size_t>(own) >= kPerOwnerMax) {
    return exhausted(fmt::format("{} models are made, which is the most: /api/delete removes one",
                                 kPerOwnerMax));
  }
  models_.insert_or_assign(key, std::make_shared<const MadeModel>(std::move(model)));
  return ok_status();
}

MadeModels::Made MadeModels::find(const std::string& owner, std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto found = models_.find({owner, without_latest(std::string(name))});
  return found == models_.end() ? nullptr : found->second;
}

bool MadeModels::erase(const std::string& owner, std::string_view name) {
  std::lock_guard lock(mutex_);
  return models_.erase({owner, without_latest(std::string(name))}) > 0;
}

std::vector<MadeModels::Made> MadeModels::all(const std::string& owner) const {
  std::vector<Made> models;
  std::lock_guard lock(mutex_);
  for (const auto& [key, model] : models_) {
    if (key.first == owner) models.push_back(model);
  }
  return models;
}

}  // namespace headrace
