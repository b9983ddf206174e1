#include "server/openapi.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "server/embedding_request.h"
#include "server/error_response.h"
#include "server/generation_request.h"
#include "server/handlers.h"
#include "server/llama_request.h"
#include "server/messages_request.h"
#include "server/ollama_request.h"
#include "server/openapi_answers.h"
#include "server/response_request.h"
#include "server/score_request.h"
#include "server/sglang_request.h"
#include "server/text_request.h"
#include "server/tgi_request.h"

namespace headrace {
namespace {

using ReadBody = Status (*)(const Json& body, const FieldContext& context);

template <auto kParse>
Status read_with(const Json& body, const FieldContext& context) {
  return kParse(body, context).status();
}
template <OllamaRoute kRoute>
Status read_ollama(const Json& body, const FieldContext& context) {
  return parse_ollama_request(kRoute, body, context).status();
}
template <OllamaEmbedRoute kRoute>
Status read_ollama_embed(const Json& body, const FieldContext& context) {
  return parse_ollama_embed_request(kRoute, body, context).status();
}
Status read_response(const Json& body, const FieldContext& context) {
  return parse_response_request(body, context, {}).status();
}

// How a handler reads its body. Two rows of one handler: it takes either form.
struct BodyRow {
  void (*handle)(RouteCall&);
  ReadBody read;  // null: not by a table of fields
  std::string_view example;
};

constexpr BodyRow kBodies[] = {
    {handle_completions, read_with<parse_completion_request>,
     R"({"prompt": "Once upon a time", "max_tokens": 16})"},
    {handle_chat_completions, read_with<parse_chat_request>,
     R"({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16})"},
    {handle_invocations, read_with<parse_chat_request>,
     R"({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16})"},
    {handle_messages, read_with<parse_messages_request>,
     R"({"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 16})"},
    {handle_count_tokens, read_with<parse_count_tokens_request>,
     R"({"messages": [{"role": "user", "content": "Hello!"}]})"},
    {handle_count_response_tokens, read_response, R"({"input": "Hello!"})"},
    {handle_create_response, read_response, R"({"input": "Hello!", "max_output_tokens": 16})"},
    {handle_ollama_chat, read_ollama<OllamaRoute::kChat>,
     R"({"messages": [{"role": "user", "content": "Hello!"}], "options": {"num_predict": 16}})"},
    {handle_ollama_generate, read_ollama<OllamaRoute::kGenerate>,
     R"({"prompt": "Hello!", "options": {"num_predict": 16}})"},
    {handle_ollama_show, nullptr, R"({"model": "tiny"})"},
    {handle_ollama_pull, nullptr, R"({"stream": false})"},
    {handle_ollama_create, nullptr,
     R"({"model": "mario", "from": "tiny", "system": "You are Mario.",
         "parameters": {"temperature": 0.5}, "stream": false})"},
    {handle_ollama_copy, nullptr, R"({"source": "tiny", "destination": "small"})"},
    {handle_ollama_delete, nullptr, R"({"model": "mario"})"},
    {handle_embeddings, read_with<parse_embedding_request>, R"({"input": "Hello!"})"},
    {handle_llama_embedding, read_with<parse_llama_embedding_request>, R"({"content": "Hello!"})"},
    {handle_ollama_embed, read_ollama_embed<OllamaEmbedRoute::kEmbed>, R"({"input": "Hello!"})"},
    {handle_ollama_embeddings, read_ollama_embed<OllamaEmbedRoute::kEmbeddings>,
     R"({"prompt": "Hello!"})"},
    {handle_score, read_with<parse_score_request>,
     R"({"text_1": "cat", "text_2": ["feline", "town"]})"},
    {handle_rerank, read_with<parse_rerank_request>,
     R"({"query": "cat", "documents": ["feline", "town"]})"},
    {handle_rerank, read_with<parse_tei_rerank_request>,
     R"({"query": "cat", "texts": ["feline", "town"]})"},
    {handle_classify, read_with<parse_classify_request>, R"({"input": "Hello!"})"},
    {handle_pooling, read_with<parse_pooling_request>, R"({"input": "Hello!"})"},
    {handle_llama_completion, read_with<parse_llama_completion>,
     R"({"prompt": "Once upon a time", "n_predict": 16})"},
    {handle_llama_infill, read_with<parse_llama_infill>,
     R"({"input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n", "n_predict": 16})"},
    {handle_generate, read_with<parse_sglang_request>,
     R"({"text": "Once upon a time", "sampling_params": {"max_new_tokens": 16}})"},
    {handle_generate, read_with<parse_tgi_request>,
     R"({"inputs": "Once upon a time", "parameters": {"max_new_tokens": 16}})"},
    {handle_generate_stream, read_with<parse_tgi_request>,
     R"({"inputs": "Once upon a time", "parameters": {"max_new_tokens": 16}})"},
    {handle_tgi_root, read_with<parse_tgi_request>,
     R"({"inputs": "Once upon a time", "parameters": {"max_new_tokens": 16}})"},
    {handle_tokenize, read_with<parse_tokenize_request>, R"({"prompt": "Hello!"})"},
    {handle_detokenize, read_with<parse_detokenize_request>, R"({"tokens": [1, 2, 3]})"},
    {handle_apply_template, read_with<parse_tokenize_request>,
     R"({"messages": [{"role": "user", "content": "Hello!"}]})"},
    {handle_load_model, nullptr, R"({"model": "tiny"})"},
    {handle_unload_model, nullptr, R"({"model": "tiny"})"},
    {handle_load_adapter, nullptr, R"({"lora_name": "sql", "lora_path": "adapters/sql"})"},
    {handle_unload_adapter, nullptr, R"({"lora_name": "sql"})"},
    {handle_create_upload, nullptr,
     R"({"filename": "requests.jsonl", "bytes": 1000, "purpose": "batch",
         "mime_type": "application/jsonl"})"},
    {handle_complete_upload, nullptr, R"({"part_ids": ["part_1"]})"},
    {handle_create_batch, nullptr,
     R"({"input_file_id": "file-1", "endpoint": "/v1/chat/completions",
         "completion_window": "24h"})"},
};

Json parsed(std::string_view text) { return *parse_json(text); }

Json number_schema(const FieldNote& field) {
  const bool whole = field.type == FieldType::kInteger;
  const auto bound = [](double value) {
    const bool exact = std::abs(value) < 0x1p62 && value == std::trunc(value);
    return exact ? Json(static_cast<int64_t>(value)) : Json(value);
  };
  Json schema = Json::object().set("type", whole ? "integer" : "number");
  schema.set(field.range.above_low ? "exclusiveMinimum" : "minimum", bound(field.range.low));
  return schema.set("maximum", bound(field.range.high));
}

Json properties_of(const std::vector<FieldNote>& notes);

Json field_schema(const FieldNote& field) {
  if (!field.inside.empty()) {
    return Json::object().set("type", "object").set("properties", properties_of(field.inside));
  }
  if (field.schema) return parsed(field.schema);
  switch (field.type) {
    case FieldType::kBool:
      return Json::object().set("type", "boolean");
    case FieldType::kInteger:
    case FieldType::kNumber:
      return number_schema(field);
    case FieldType::kString:
      return Json::object().set("type", "string").set("maxLength", RequestLimits{}.label_bytes_max);
    case FieldType::kAny:
      break;
  }
  return Json::object();
}

Json properties_of(const std::vector<FieldNote>& notes) {
  Json properties = Json::object();
  for (const FieldNote& note : notes) properties.set(note.name, field_schema(note));
  return properties;
}

// The members of the example without which the reader refuses it.
Json required_members(const BodyRow& row, const Json& example, const FieldContext& context) {
  Json required = Json::array();
  for (const auto& [name, value] : example.as_object()) {
    Json::Object others = example.as_object();
    std::erase_if(others, [&name = name](const auto& member) { return member.first == name; });
    if (!row.read(Json(std::move(others)), context).ok()) required.push(name);
  }
  return required;
}

Json body_schema(const BodyRow& row) {
  const RequestLimits limits;
  std::vector<FieldNote> notes;
  FieldContext context{.limits = limits, .vocab_size = 1 << 20};
  const Json example = parsed(row.example);
  Json schema = Json::object().set("type", "object");
  if (!row.read) return schema.set("example", example);
  context.notes = &notes;
  CHECK_MSG(row.read(example, context).ok(), "an example of a body is refused");
  context.notes = nullptr;
  schema.set("properties", properties_of(notes));
  Json required = required_members(row, example, context);
  if (!required.as_array().empty()) schema.set("required", std::move(required));
  return schema.set("example", example);
}

// Null: nothing is known of it but that it is an object.
Json json_body(const Route& route) {
  Json forms = Json::array();
  for (const BodyRow& row : kBodies) {
    if (row.handle == route.handle) forms.push(body_schema(row));
  }
  if (forms.as_array().empty()) return Json::object().set("type", "object");
  if (forms.as_array().size() == 1) return forms.as_array().front();
  return Json::object().set("anyOf", std::move(forms));
}

Json content_of(std::string_view type, Json schema) {
  return Json::object().set(type, Json::object().set("schema", std::move(schema)));
}

Json request_body(const Route& route) {
  const bool upload = route.limit == LimitClass::kUpload;
  Json schema = upload ? Json::object().set("type", "object") : json_body(route);
  const char* type = upload ? "multipart/form-data" : "application/json";
  return Json::object().set("required", true).set("content", content_of(type, std::move(schema)));
}

// "post_v1_files_id"
std::string operation_id(const Route& route) {
  std::string id;
  for (char c : route.method) id += static_cast<char>(c | 0x20);
  for (char c : route.path) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (word) id += c;
    if (!word && id.back() != '_') id += '_';
  }
  if (id.back() == '_') id.pop_back();
  return id;
}

Json security_of(const Route& route) {
  if (route.auth == AuthClass::kOpen) return Json::array();
  const auto scheme = [](const char* name) { return Json::object().set(name, Json::array()); };
  return Json(Json::Array{scheme("bearer"), scheme("key")});
}

Json operation(const Route& route) {
  Json json = Json::object().set("operationId", operation_id(route));
  if (route.path.find("{id}") != route.path.npos) {
    json.set("parameters", Json::Array{Json::object()
                                           .set("name", "id")
                                           .set("in", "path")
                                           .set("required", true)
                                           .set("schema", Json::object().set("type", "string"))});
  }
  if (route.limit != LimitClass::kNoBody) json.set("requestBody", request_body(route));
  Json responses = Json::object();
  Json good = Json::object().set("description", "The answer, or the begin of a stream");
  if (Json content = answer_content(route); !content.is_null()) {
    good.set("content", std::move(content));
  }
  responses.set("200", std::move(good));
  const Json words = Json::object().set("$ref", "#/components/schemas/Error");
  responses.set("default", Json::object()
                               .set("description", "An error: its message names the field")
                               .set("content", content_of("application/json", words)));
  return json.set("responses", std::move(responses)).set("security", security_of(route));
}

Json components() {
  Json schemes = Json::object();
  schemes.set("bearer", Json::object().set("type", "http").set("scheme", "bearer"));
  schemes.set("key",
              Json::object().set("type", "apiKey").set("in", "header").set("name", "X-API-Key"));
  return Json::object()
      .set("securitySchemes", std::move(schemes))
      .set("schemas", answer_components());
}

std::string escaped(std::string_view text) {
  std::string html;
  for (char c : text) {
    if (c == '<') {
      html += "&lt;";
    } else if (c == '&') {
      html += "&amp;";
    } else {
      html += c;
    }
  }
  return html;
}

// The schemas of a body's forms, one each.
std::vector<const Json*> forms_of(const Json& operation) {
  const Json* body = operation.find("requestBody");
  const Json* content = body ? body->find("content") : nullptr;
  if (!content) return {};
  const Json* schema = content->as_object().front().second.find("schema");
  const Json* any = schema->find("anyOf");
  if (!any) return {schema};
  std::vector<const Json*> forms;
  for (const Json& form : any->as_array()) forms.push_back(&form);
  return forms;
}

void append_form(std::string& html, const Json& schema) {
  if (const Json* example = schema.find("example")) {
    html += fmt::format("<pre>{}</pre>\n", escaped(write_json(*example)));
  }
  const Json* properties = schema.find("properties");
  if (!properties) return;
  html += "<table>\n";
  for (const auto& [name, field] : properties->as_object()) {
    html += fmt::format("<tr><td><code>{}</code></td><td><code>{}</code></td></tr>\n",
                        escaped(name), escaped(write_json(field)));
  }
  html += "</table>\n";
}

}  // namespace

std::string_view example_body(const Route& route) {
  const auto row = std::find_if(std::begin(kBodies), std::end(kBodies),
                                [&](const BodyRow& each) { return each.handle == route.handle; });
  return row == std::end(kBodies) ? std::string_view() : row->example;
}

Json openapi_document() {
  Json paths = Json::object();
  for (const Route& route : routes()) {
    if (route.model == ModelClass::kNotServed) continue;
    std::string method;
    for (char c : route.method) method += static_cast<char>(c | 0x20);
    const Json* others = paths.find(route.path);
    Json operations = others ? *others : Json::object();
    paths.set(route.path, operations.set(method, operation(route)));
  }
  // Of the interface: which program answers is told to who has a key (/version).
  Json info = Json::object().set("title", "Headrace").set("version", "1");
  return Json::object()
      .set("openapi", "3.1.0")
      .set("info", std::move(info))
      .set("paths", std::move(paths))
      .set("components", components());
}

std::string openapi_page(const Json& document) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Headrace</title>\n"
      "<style>body{font:15px sans-serif;max-width:70em;margin:2em auto;padding:0 1em}"
      "pre{background:#eee;padding:.5em;overflow:auto}td{padding:0 1em 0 0;vertical-align:top}"
      "summary{cursor:pointer;padding:.2em}</style></head><body>\n<h1>Headrace</h1>\n"
      "<p>Every route of this server; the same for programs: "
      "<a href=\"openapi.json\">openapi.json</a></p>\n";
  for (const auto& [path, operations] : document.find("paths")->as_object()) {
    for (const auto& [method, operation] : operations.as_object()) {
      html += fmt::format("<details><summary><b>{}</b> <code>{}</code></summary>\n", method,
                          escaped(path));
      for (const Json* form : forms_of(operation)) append_form(html, *form);
      html += "</details>\n";
    }
  }
  return html + "</body></html>\n";
}

void handle_openapi(RouteCall& call) {
  static const std::string document = write_json(openapi_document());
  HttpResponse response;
  response.body = document;
  call.exchange->respond(std::move(response));
}

void handle_docs(RouteCall& call) {
  static const std::string page = openapi_page(openapi_document());
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.headers.push_back(
      {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"});
  response.body = page;
  call.exchange->respond(std::move(response));
}

}  // namespace headrace
