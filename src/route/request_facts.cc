#include "route/request_facts.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>

#include "base/checksum.h"
#include "route/json_members.h"

namespace headrace {
namespace {

constexpr int64_t kUsualOutputTokens = 256;
constexpr int64_t kOutputTokensMax = 4096;  // few answers are as long as they may be
constexpr int64_t kNamedTokensMax = int64_t{1} << 40, kChoicesMax = 1 << 16;  // of what is counted
constexpr size_t kBlocksMax = 4096;                                           // a mebibyte of text
constexpr size_t kLabelBytesMax = 256;

// What a request costs its worker. kText: no step of a model, so that no key's limits count it.
enum class Work { kGenerates, kEncodes, kText };

// Computed and forgotten. `streams`: what a body means that does not say `stream`.
struct ComputeRoute {
  std::string_view path;
  Work work;
  bool streams;
};
constexpr ComputeRoute kComputeRoutes[] = {
    {"/v1/chat/completions", Work::kGenerates, false},
    {"/v1/completions", Work::kGenerates, false},
    {"/v1/responses", Work::kGenerates, false},
    {"/v1/messages", Work::kGenerates, false},
    {"/chat/completions", Work::kGenerates, false},
    {"/completions", Work::kGenerates, false},
    {"/completion", Work::kGenerates, false},
    {"/infill", Work::kGenerates, false},
    {"/generate", Work::kGenerates, false},
    {"/generate_stream", Work::kGenerates, true},
    {"/", Work::kGenerates, false},
    {"/invocations", Work::kGenerates, false},
    {"/api/chat", Work::kGenerates, true},
    {"/api/generate", Work::kGenerates, true},
    {"/v1/messages/count_tokens", Work::kText, false},
    {"/v1/embeddings", Work::kEncodes, false},
    {"/api/embed", Work::kEncodes, false},
    {"/api/embeddings", Work::kEncodes, false},
    {"/score", Work::kEncodes, false},
    {"/v1/score", Work::kEncodes, false},
    {"/rerank", Work::kEncodes, false},
    {"/v1/rerank", Work::kEncodes, false},
    {"/v2/rerank", Work::kEncodes, false},
    {"/reranking", Work::kEncodes, false},
    {"/v1/reranking", Work::kEncodes, false},
    {"/classify", Work::kEncodes, false},
    {"/pooling", Work::kEncodes, false},
    {"/tokenize", Work::kText, false},
    {"/detokenize", Work::kText, false},
    {"/apply-template", Work::kText, false},
};

constexpr std::string_view kEveryoneRoutes[] = {
    "/flush_cache",       "/reset_prefix_cache",  "/v1/load_lora_adapter",
    "/load_lora_adapter", "/models/load",         "/v1/unload_lora_adapter",
    "/models/unload",     "/unload_lora_adapter", "/sleep",
    "/wake_up",           "/api/create",          "/api/copy",
    "/api/delete"};

// Below these a path goes on with the id of what one worker has.
constexpr std::string_view kOwnedPrefixes[] = {"/v1/responses/", "/v1/files/", "/v1/uploads/",
                                               "/v1/batches/", "/v1/cache/pins/"};
constexpr std::string_view kHomePrefixes[] = {"/v1/files", "/v1/uploads", "/v1/batches"};

uint64_t hash_of(std::string_view text, uint64_t seed) {
  return checksum64(std::as_bytes(std::span(text.data(), text.size())), seed);
}

// The members that a prompt is made of, in the order in which templates render them.
enum Part { kSalt, kTools, kSystem, kText, kPartCount };
struct PromptMember {
  std::string_view name;
  Part part;
};
constexpr PromptMember kPromptMembers[] = {
    {"cache_salt", kSalt}, {"tools", kTools},    {"system", kSystem}, {"instructions", kSystem},
    {"messages", kText},   {"prompt", kText},    {"input", kText},    {"inputs", kText},
    {"text", kText},       {"input_ids", kText},
};

// What clients say today of how hard they take a question to be.
constexpr struct {
  std::string_view effort;
  double difficulty;
} kEfforts[] = {{"none", 0.1},   {"minimal", 0.2}, {"low", 0.3},
                {"medium", 0.5}, {"high", 0.8},    {"xhigh", 1}};

// The bound of an answer's tokens that a member names, or one inside of it: of Ollama, of TGI, of
// SGLang. Nothing: it names none.
std::optional<long long> length_of(std::string_view key, std::string_view value) {
  if (key == "max_tokens" || key == "max_completion_tokens" || key == "max_output_tokens" ||
      key == "n_predict" || key == "max_new_tokens") {
    return json_integer(value);
  }
  if (key == "options") return json_integer(json_member(value, "num_predict"));
  if (key == "parameters" || key == "sampling_params") {
    return json_integer(json_member(value, "max_new_tokens"));
  }
  return std::nullopt;
}

double difficulty_of(std::string_view effort) {
  for (const auto& each : kEfforts) {
    if (each.effort == effort) return each.difficulty;
  }
  return 0.5;
}

void append_blocks(std::string_view text, uint64_t seed, std::vector<uint64_t>& blocks) {
  uint64_t chain = seed;
  while (text.size() >= kRouteBlockBytes && blocks.size() < kBlocksMax) {
    chain = hash_of(text.substr(0, kRouteBlockBytes), chain);
    blocks.push_back(chain);
    text.remove_prefix(kRouteBlockBytes);
  }
}

}  // namespace

RequestFacts::RequestFacts(const HttpRequest& request) {
  is_get = request.method == "GET" || request.method == "HEAD";
  read_path(request);
  for (const std::string_view name : {"x-session-id", "x-user-id"}) {
    if (session.empty()) session = request.header(name).substr(0, kLabelBytesMax);
  }
  const std::string_view said = request.header("x-headrace-difficulty");
  const bool reads = kind == RouteKind::kCompute || request.path == "/v1/batches";
  if (reads && request.method == "POST") read_body(request);
  if (!said.empty()) {
    const double number = std::strtod(std::string(said.substr(0, 32)).c_str(), nullptr);
    difficulty = number >= 0 && number <= 1 ? number : 0.5;
  }
  if (kind != RouteKind::kHome) return;
  std::string_view key = request.header("authorization");
  if (key.empty()) key = request.header("x-api-key");
  client = std::to_string(hash_of(key, 1));
}

void RequestFacts::read_path(const HttpRequest& request) {
  const std::string_view path = request.path;
  const auto route = std::find_if(std::begin(kComputeRoutes), std::end(kComputeRoutes),
                                  [&](const ComputeRoute& each) { return each.path == path; });
  if (route != std::end(kComputeRoutes) && request.method == "POST") {
    kind = RouteKind::kCompute;
    streams = route->streams;
    computes = route->work != Work::kText;
    output_tokens = route->work == Work::kGenerates ? kUsualOutputTokens : 0;
    return;
  }
  if (!is_get && std::count(std::begin(kEveryoneRoutes), std::end(kEveryoneRoutes), path) > 0) {
    kind = RouteKind::kEveryone;
    return;
  }
  for (const std::string_view prefix : kOwnedPrefixes) {
    if (!path.starts_with(prefix) || path.size() == prefix.size()) continue;
    kind = RouteKind::kOwned;
    owned_id = path.substr(prefix.size(), path.find('/', prefix.size()) - prefix.size());
    return;
  }
  for (const std::string_view prefix : kHomePrefixes) {
    if (path == prefix) kind = RouteKind::kHome;
  }
}

void RequestFacts::read_body(const HttpRequest& request) {
  std::array<std::string_view, kPartCount> parts;
  int64_t choices = 1;
  for (JsonMembers members(request.body); members.next();) {
    const std::string_view key = members.key(), value = members.value();
    // Nobody who means well escapes a letter of a name: it could be the router's own.
    if (key == "headrace_resume" || key.find('\\') != key.npos) reserved = true;
    if (key == "model") {
      model = json_string(value);
      model_begin = members.value_begin();
      model_bytes = value.size();
    } else if (key == "stream" && output_tokens > 0) {
      streams = value == "true";
    } else if (key == "previous_response_id" || key == "input_file_id") {
      // A body may say it again, and mean nothing by it.
      if (const auto id = json_string(value); !id.empty()) owned_id = id;
    } else if (key == "background") {
      background = request.path == "/v1/responses" && value != "false" && value != "null";
    } else if (key == "n") {
      choices = std::clamp<int64_t>(json_integer(value).value_or(1), 1, kChoicesMax);
    } else if (key == "prompt_cache_key" || key == "session_id" || key == "user") {
      const bool better = session.empty() || key != "user";
      if (better) session = json_string(value).substr(0, kLabelBytesMax);
    } else if (const auto length = length_of(key, value)) {
      if (output_tokens > 0 && *length >= 0) {  // below: as much as there is room for
        output_tokens = std::clamp<int64_t>(*length, 1, kOutputTokensMax);
        named_tokens = std::clamp<int64_t>(*length, 1, kNamedTokensMax);
      }
    } else if (key == "reasoning_effort") {
      difficulty = difficulty_of(json_string(value));
    } else if (key == "reasoning") {
      difficulty = difficulty_of(json_string(json_member(value, "effort")));
    }
    for (const PromptMember& member : kPromptMembers) {
      if (key == member.name) parts[member.part] = value;
    }
  }
  if (!owned_id.empty()) kind = RouteKind::kOwned;
  named_tokens *= choices;
  one_answer = choices == 1 && !parts[kText].starts_with('[');
  uint64_t seed = hash_of(parts[kSalt], hash_of(model, 0));
  std::string head;
  for (const Part part : {kTools, kSystem}) head += parts[part];
  const size_t bytes = head.size() + parts[kText].size();
  prompt_tokens = static_cast<int64_t>(bytes * kTokensPerRouteBlock / kRouteBlockBytes) + 1;
  if (!head.empty()) {
    append_blocks(head, seed, blocks);
    seed = hash_of(head, seed);  // what is behind its last whole block counts with what follows
  }
  append_blocks(parts[kText], seed, blocks);
}

std::vector<std::string> ids_kept_by_worker(std::string_view body) {
  constexpr std::string_view kKept[] = {"resp_", "file-", "file_", "batch_", "upload_", "pin_"};
  std::vector<std::string> ids;
  for (JsonMembers members(body); members.next();) {
    const std::string_view key = members.key();
    if (key == "response") {  // of the first event of a stream
      const std::string_view id = json_string(json_member(members.value(), "id"));
      if (id.starts_with(kKept[0])) ids.emplace_back(id);
    }
    if (key != "id" && key != "output_file_id" && key != "error_file_id" && key != "cache_pin") {
      continue;
    }
    const std::string_view id = json_string(members.value());
    const bool kept = std::any_of(std::begin(kKept), std::end(kKept),
                                  [&](std::string_view each) { return id.starts_with(each); });
    if (kept) ids.emplace_back(id);
  }
  return ids;
}

}  // namespace headrace
