#include "cli/pooling_flags.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/command_line.h"

namespace headrace {
namespace {

constexpr const char* kPoolingGroup = "Vectors and scores";

// What vLLM's --task was.
enum class TaskChoice : uint8_t { kAuto, kGenerate, kEmbed, kClassify, kScore };
constexpr Named<TaskChoice> kTasks[] = {
    {"auto", TaskChoice::kAuto},   {"generate", TaskChoice::kGenerate},
    {"embed", TaskChoice::kEmbed}, {"embedding", TaskChoice::kEmbed},
    {"score", TaskChoice::kScore}, {"classify", TaskChoice::kClassify},
};

void set_task(TaskChoice task, PoolingOptions& options) {
  if (task == TaskChoice::kAuto) return;
  options.runner = task == TaskChoice::kGenerate ? RunnerChoice::kGenerate : RunnerChoice::kPooling;
  if (task == TaskChoice::kEmbed) options.convert = ConvertChoice::kEmbed;
  if (task == TaskChoice::kClassify) options.convert = ConvertChoice::kClassify;
}

// Switched off (--embedding=false) it says nothing.
void add_task_switch(CLI::App& app, const std::string& names, TaskChoice task,
                     PoolingOptions& options, const std::string& description) {
  const auto take = [&options, task](int64_t count) {  // below 0: off
    if (count > 0) set_task(task, options);
  };
  app.add_flag_function(names, take, description)->group(kPoolingGroup);
}

// The name without regard to letters' case, as vLLM's files have it.
Status read_pooling_type(const Json::Member& member, PoolingOptions& options) {
  std::string name = member.second.is_string() ? member.second.as_string() : "";
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto pooling = value_named(kPoolingChoices, name);
  const bool taken =
      pooling && *pooling != PoolingChoice::kModel && *pooling != PoolingChoice::kRank;
  if (!taken) {
    return invalid_argument(fmt::format("{} must be one of LAST, CLS, MEAN, MAX", member.first));
  }
  options.pooling = *pooling;
  return ok_status();
}

Status read_switch(const Json::Member& member, bool& out) {
  if (!member.second.is_bool()) {
    return invalid_argument(fmt::format("{} must be true or false", member.first));
  }
  out = member.second.as_bool();
  return ok_status();
}

Status read_pooler_member(const Json::Member& member, PoolingOptions& options) {
  const std::string& name = member.first;
  if (name == "pooling_type" || name == "seq_pooling_type") {
    return read_pooling_type(member, options);
  }
  if (name == "normalize" || name == "use_activation") {
    bool normalise = true;
    HR_RETURN_IF_ERROR(read_switch(member, normalise));
    options.normalise = normalise;
    return ok_status();
  }
  return invalid_argument(fmt::format(
      "{} is not supported: there are pooling_type, seq_pooling_type and normalize", name));
}

Status read_override(const Json::Member& member, PoolingOptions& options) {
  const auto& [name, value] = member;
  if (name == "is_original_qwen3_reranker") return read_switch(member, options.two_way);
  if (name == "architectures") return ok_status();  // tokens make a head whatever the class
  if (name != "classifier_from_token") {
    return invalid_argument(
        fmt::format("{} is not supported: a model is used as its file says, but for "
                    "classifier_from_token and is_original_qwen3_reranker",
                    name));
  }
  options.classifier_tokens.clear();
  const bool is_list = value.is_array() && !value.as_array().empty();
  for (const Json& token : is_list ? value.as_array() : Json::Array{Json()}) {
    if (!token.is_string() || token.as_string().empty()) {
      return invalid_argument("classifier_from_token must be a list of tokens");
    }
    options.classifier_tokens.push_back(token.as_string());
  }
  return ok_status();
}

using ReadMember = Status (*)(const Json::Member&, PoolingOptions&);

Status read_members(std::string_view text, ReadMember read, PoolingOptions& options) {
  HR_ASSIGN_OR_RETURN(const Json json, parse_json(text));
  if (!json.is_object()) return invalid_argument("is not a JSON object");
  for (const Json::Member& member : json.as_object()) HR_RETURN_IF_ERROR(read(member, options));
  return ok_status();
}

using ReadJson = Status (*)(std::string_view, PoolingOptions&);

void add_json(CLI::App& app, const std::string& names, ReadJson read, PoolingOptions& options,
              const std::string& description) {
  const std::string flag = names.substr(0, names.find(','));
  app.add_option_function<std::string>(
         names,
         [&options, read, flag](const std::string& text) {
           const Status status = read(text, options);
           if (!status.ok()) throw CLI::ValidationError(flag, status.message());
         },
         description)
      ->type_name("JSON")
      ->group(kPoolingGroup);
}

}  // namespace

Status read_pooler_config(std::string_view json, PoolingOptions& options) {
  return read_members(json, read_pooler_member, options);
}

Status read_hf_overrides(std::string_view json, PoolingOptions& options) {
  return read_members(json, read_override, options);
}

void add_pooling_flags(CLI::App& app, PoolingOptions& options) {
  add_choice(app, "--runner", options.runner, kRunnerChoices,
             "What the model is for: to generate text, or vectors and scores of texts (pooling); "
             "auto: what its files say")
      ->group(kPoolingGroup);
  add_choice(app, "--convert", options.convert, kConvertChoices,
             "Of pooling: vectors (embed), or scores and classes by a head (classify); auto: what "
             "its files say")
      ->group(kPoolingGroup);
  add_task_switch(app, "--embedding,--embeddings,--is-embedding", TaskChoice::kEmbed, options,
                  "Vectors of texts from a model that generates: --runner pooling --convert embed");
  add_task_switch(app, "--reranking,--rerank", TaskChoice::kClassify, options,
                  "Scores by the model's head: --runner pooling --convert classify");
  app.add_option_function<std::string>(
         "--task",
         [&options](const std::string& name) { set_task(*value_named(kTasks, name), options); },
         "The same as one word")
      ->check(CLI::IsMember(names_of(kTasks)))
      ->group(kPoolingGroup);
  add_choice(app, "--pooling", options.pooling, kPoolingChoices,
             "Which rows make a text's vector; model: what its files say, else the last token's")
      ->group(kPoolingGroup);
  add_json(app, "--pooler-config,--override-pooler-config", read_pooler_config, options,
           "The same and their length, as {\"pooling_type\": \"MEAN\", \"normalize\": false}");
  add_json(app, "--hf-overrides", read_hf_overrides, options,
           "Scores by the logits of tokens, as {\"classifier_from_token\": [\"no\", \"yes\"], "
           "\"is_original_qwen3_reranker\": true}");
}

}  // namespace headrace
