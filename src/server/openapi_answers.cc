#include "server/openapi_answers.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "server/handlers.h"

namespace headrace {
namespace {

constexpr std::string_view kEventStream = "text/event-stream", kLines = "application/x-ndjson";

constexpr std::string_view kChatAnswer = R"({
  "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {
    "id": {"type": "string"}, "object": {"const": "chat.completion"},
    "created": {"type": "integer"}, "model": {"type": "string"},
    "choices": {"type": "array", "minItems": 1, "items": {
      "type": "object", "required": ["index", "message", "logprobs", "finish_reason"],
      "properties": {
        "index": {"type": "integer"},
        "message": {
          "type": "object", "required": ["role", "content"],
          "properties": {
            "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
            "reasoning": {"type": "string"},
            "tool_calls": {"type": "array", "items": {
              "type": "object", "required": ["id", "type", "function"],
              "properties": {"function": {
                "type": "object", "required": ["name", "arguments"],
                "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}}}}}}}},
        "logprobs": {"type": ["object", "null"]},
        "finish_reason": {"enum": ["stop", "length", "tool_calls", "repetition", "error"]}}}},
    "system_fingerprint": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/Usage"}}})";

constexpr std::string_view kCompletionAnswer = R"({
  "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
  "properties": {
    "id": {"type": "string"}, "object": {"const": "text_completion"},
    "created": {"type": "integer"}, "model": {"type": "string"},
    "choices": {"type": "array", "minItems": 1, "items": {
      "type": "object", "required": ["index", "text", "logprobs", "finish_reason"],
      "properties": {
        "index": {"type": "integer"}, "text": {"type": "string"},
        "logprobs": {"type": ["object", "null"]}, "finish_reason": {"enum": ["stop", "length", "repetition", "error"]}}}},
    "system_fingerprint": {"type": "string"},
    "usage": {"$ref": "#/components/schemas/Usage"}}})";

constexpr std::string_view kResponseAnswer = R"({
  "type": "object", "required": ["id", "object", "created_at", "status", "model", "output"],
  "properties": {
    "id": {"type": "string"}, "object": {"const": "response"}, "created_at": {"type": "integer"},
    "status": {"enum": ["completed", "incomplete", "failed", "in_progress", "queued", "cancelled"]},
    "model": {"type": "string"},
    "output": {"type": "array", "items": {
      "type": "object", "required": ["type", "id", "status"],
      "properties": {"type": {"enum": ["message", "reasoning", "function_call"]}}}},
    "usage": {"type": ["object", "null"]}}})";

constexpr std::string_view kMessageAnswer = R"({
  "type": "object", "required": ["id", "type", "role", "model", "content", "stop_reason", "usage"],
  "properties": {
    "id": {"type": "string"}, "type": {"const": "message"}, "role": {"const": "assistant"},
    "content": {"type": "array", "items": {
      "type": "object", "required": ["type"],
      "properties": {"type": {"enum": ["text", "thinking", "tool_use"]}}}},
    "stop_reason": {"type": "string"},
    "usage": {"type": "object", "required": ["input_tokens", "output_tokens"],
              "properties": {"input_tokens": {"type": "integer"},
                             "output_tokens": {"type": "integer"}}}}})";

constexpr std::string_view kEmbeddingsAnswer = R"({
  "type": "object", "required": ["object", "data", "model", "usage"],
  "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {
    "type": "object", "required": ["object", "index", "embedding"]}}}})";

constexpr std::string_view kLlamaEmbeddingsAnswer = R"({
  "type": "array", "items": {
    "type": "object", "required": ["index", "embedding"],
    "properties": {"index": {"type": "integer"}, "embedding": {"type": "array"}}}})";

constexpr std::string_view kListAnswer = R"({
  "type": "object", "required": ["object", "data"],
  "properties": {"object": {"const": "list"},
                 "data": {"type": "array", "items": {"type": "object"}}}})";

constexpr std::string_view kModelAnswer = R"({
  "type": "object", "required": ["id", "object", "created", "owned_by"],
  "properties": {"id": {"type": "string"}, "object": {"const": "model"},
                 "created": {"type": "integer"}}})";

constexpr std::string_view kOllamaChatAnswer = R"({
  "type": "object", "required": ["model", "created_at", "message", "done"],
  "properties": {"model": {"type": "string"}, "created_at": {"type": "string"},
                 "message": {"type": "object", "required": ["role", "content"]},
                 "done": {"const": true}, "done_reason": {"type": "string"},
                 "total_duration": {"type": "integer"}, "eval_count": {"type": "integer"}}})";

constexpr std::string_view kOllamaGenerateAnswer = R"({
  "type": "object", "required": ["model", "created_at", "response", "done"],
  "properties": {"model": {"type": "string"}, "created_at": {"type": "string"},
                 "response": {"type": "string"}, "done": {"const": true}}})";

constexpr std::string_view kOllamaModelsAnswer = R"({
  "type": "object", "required": ["models"],
  "properties": {"models": {"type": "array", "items": {
    "type": "object", "required": ["name", "model", "size", "digest", "details"]}}}})";

constexpr std::string_view kLlamaAnswer = R"({
  "anyOf": [{"$ref": "#/components/schemas/LlamaCompletion"},
            {"type": "array", "items": {"$ref": "#/components/schemas/LlamaCompletion"}}]})";

constexpr std::string_view kTokenizeAnswer = R"({
  "type": "object", "required": ["tokens"],
  "properties": {"tokens": {"type": "array"}, "count": {"type": "integer"},
                 "max_model_len": {"type": "integer"}}})";

constexpr std::string_view kTextsAnswer = R"({
  "type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}})";
constexpr std::string_view kCountAnswer = R"({
  "type": "object", "required": ["input_tokens"],
  "properties": {"input_tokens": {"type": "integer", "minimum": 1}}})";
constexpr std::string_view kVersionAnswer = R"({
  "type": "object", "required": ["version"], "properties": {"version": {"type": "string"}}})";
constexpr std::string_view kStatusAnswer = R"({
  "type": "object", "required": ["status"], "properties": {"status": {"const": "ok"}}})";
constexpr std::string_view kGeneratedAnswer = R"({"type": ["object", "array"]})";

struct AnswerRow {
  void (*handle)(RouteCall&);
  std::string_view schema;
  std::string_view stream = {};  // its media type
};

constexpr AnswerRow kAnswers[] = {
    {handle_health, kStatusAnswer},
    {handle_version, kVersionAnswer},
    {handle_ollama_version, kVersionAnswer},
    {handle_models, kListAnswer},
    {handle_model, kModelAnswer},
    {handle_chat_completions, kChatAnswer, kEventStream},
    {handle_completions, kCompletionAnswer, kEventStream},
    {handle_create_response, kResponseAnswer, kEventStream},
    {handle_response, kResponseAnswer},
    {handle_messages, kMessageAnswer, kEventStream},
    {handle_count_tokens, kCountAnswer},
    {handle_count_response_tokens, kCountAnswer},
    {handle_embeddings, kEmbeddingsAnswer},
    {handle_llama_embedding, kLlamaEmbeddingsAnswer},
    {handle_ollama_chat, kOllamaChatAnswer, kLines},
    {handle_ollama_generate, kOllamaGenerateAnswer, kLines},
    {handle_ollama_tags, kOllamaModelsAnswer},
    {handle_ollama_ps, kOllamaModelsAnswer},
    {handle_llama_completion, kLlamaAnswer, kEventStream},
    {handle_llama_infill, kLlamaAnswer, kEventStream},
    {handle_generate, kGeneratedAnswer, kEventStream},
    {handle_tokenize, kTokenizeAnswer},
    {handle_detokenize, kTextsAnswer},
    {handle_apply_template, kTextsAnswer},
    {handle_files, kListAnswer},
    {handle_batches, kListAnswer},
};

}  // namespace

Json answer_content(const Route& route) {
  const auto row = std::find_if(std::begin(kAnswers), std::end(kAnswers),
                                [&](const AnswerRow& each) { return each.handle == route.handle; });
  if (row == std::end(kAnswers)) return {};
  const auto form = [](Json schema) { return Json::object().set("schema", std::move(schema)); };
  Json content = Json::object().set("application/json", form(*parse_json(row->schema)));
  if (row->stream.empty()) return content;
  return content.set(row->stream, form(Json::object().set("type", "string")));
}

Json answer_components() {
  return *parse_json(R"({
    "Error": {
      "type": "object", "required": ["error"],
      "properties": {
        "error": {"anyOf": [
          {"type": "string", "minLength": 1},
          {"type": "object", "required": ["message"],
           "properties": {"message": {"type": "string", "minLength": 1},
                          "type": {"type": "string"}}}]}}},
    "Usage": {
      "type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
      "properties": {"prompt_tokens": {"type": "integer", "minimum": 1},
                     "completion_tokens": {"type": "integer", "minimum": 0},
                     "total_tokens": {"type": "integer", "minimum": 1}}},
    "LlamaCompletion": {
      "type": "object", "required": ["content", "stop", "stop_type", "tokens_predicted", "timings"],
      "properties": {"content": {"type": "string"}, "stop": {"const": true},
                     "stop_type": {"enum": ["none", "eos", "limit", "word"]}}}})");
}

}  // namespace headrace
