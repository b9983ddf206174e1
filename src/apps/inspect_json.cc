// The report for programs.
#include "apps/inspect_report.h"
#include "base/json.h"

namespace headrace {
namespace {

Json rope_scaling_json(const RopeScaling& scaling) {
  if (scaling.kind == RopeScaling::Kind::kNone) return Json();
  Json json = Json::object();
  json.set("type", rope_scaling_name(scaling.kind)).set("factor", scaling.factor);
  return std::move(json.set("original_context", scaling.original_context));
}

Json number_or_null(double value) { return value == 0 ? Json() : Json(value); }

Json experts_json(const ExpertConfig& experts) {
  if (experts.count == 0) return Json();
  Json json = Json::object();
  json.set("count", experts.count)
      .set("used", experts.used)
      .set("feed_forward", experts.width)
      .set("shared_feed_forward", experts.shared_width);
  return json;
}

Json config_json(const ModelConfig& config) {
  Json json = Json::object();
  json.set("layers", config.layers)
      .set("hidden", config.hidden)
      .set("feed_forward", config.ffn)
      .set("experts", experts_json(config.experts))
      .set("heads", config.heads)
      .set("kv_heads", config.kv_heads)
      .set("head_dim", config.head_dim)
      .set("vocab", config.vocab)
      .set("context_length", config.context_length)
      .set("rms_eps", static_cast<double>(config.rms_eps))
      .set("rope_theta", config.rope_theta)
      .set("rope_theta_local", number_or_null(config.rope_theta_local))
      .set("rope_dim", config.rope_dim)
      .set("rope_scaling", rope_scaling_json(config.rope_scaling))
      .set("sliding_window", config.window > 0 ? Json(config.window) : Json())
      .set("attention_soft_cap", number_or_null(static_cast<double>(config.attention_soft_cap)))
      .set("logit_soft_cap", number_or_null(static_cast<double>(config.logit_soft_cap)))
      .set("tied_embeddings", config.tied_embeddings);
  return json;
}

Json id_json(TokenId id) { return id < 0 ? Json() : Json(id); }

Json vocab_json(const Vocab& vocab) {
  Json end_ids = Json::array();
  for (const TokenId id : vocab.end_ids) end_ids.push(id);
  Json json = Json::object();
  json.set("model", vocab.model)
      .set("pre", vocab.pre)
      .set("tokens", vocab.tokens.size())
      .set("merges", vocab.merge_count())
      .set("bos", id_json(vocab.bos))
      .set("eos", id_json(vocab.eos))
      .set("unk", id_json(vocab.unk))
      .set("pad", id_json(vocab.pad))
      .set("add_bos", vocab.add_bos)
      .set("add_eos", vocab.add_eos)
      .set("end_ids", std::move(end_ids));
  return json;
}

Json types_json(const std::vector<TypeShare>& shares) {
  Json types = Json::array();
  for (const TypeShare& share : shares) {
    Json type = Json::object();
    type.set("type", share.name).set("tensors", share.tensors).set("bytes", share.bytes);
    types.push(std::move(type.set("supported", share.readable)));
  }
  return types;
}

Json kv_json(const std::vector<KvShare>& shares) {
  Json groups = Json::array();
  for (const KvShare& share : shares) {
    Json group = Json::object();
    group.set("window", share.window > 0 ? Json(share.window) : Json());
    group.set("layers", share.layers).set("bytes_per_token", share.token_bytes);
    groups.push(std::move(group));
  }
  return groups;
}

Json shape_json(const Shape& shape) {
  Json json = Json::array();
  for (int i = 0; i < shape.rank(); ++i) json.push(shape[i]);
  return json;
}

Json tensors_json(const WeightSource& weights) {
  Json tensors = Json::array();
  for (const std::string_view name : weights.names()) {
    const WeightInfo info = *weights.info(name);
    Json row = Json::object();
    row.set("name", name).set("name_in_file", info.name_in_file).set("type", info.type);
    row.set("shape", shape_json(info.shape)).set("bytes", info.bytes);
    tensors.push(std::move(row));
  }
  return tensors;
}

}  // namespace

std::string json_report(const InspectReport& report, bool list_tensors) {
  Json problems = Json::array();
  for (const std::string& problem : report.problems) problems.push(problem);
  const bool known = report.weights.architecture != nullptr;
  Json json = Json::object();
  json.set("file", report.source->path())
      .set("file_bytes", report.weights.file_bytes)
      .set("format", report.title.format)
      .set("name", report.title.name)
      .set("architecture", report.title.architecture)
      .set("config", known ? config_json(report.weights.config) : Json())
      .set("parameters", report.weights.parameter_count)
      .set("tokenizer", report.text.vocab ? vocab_json(*report.text.vocab) : Json())
      .set("chat_template", !report.text.template_source.empty())
      .set("chat_template_compiles", report.text.chat_template.has_value())
      .set("tensor_count", report.tensor_count)
      .set("tensor_bytes", report.tensor_bytes)
      .set("types", types_json(report.types))
      .set("kv_groups", kv_json(report.kv))
      .set("kv_bytes_per_token", report.kv_token_bytes())
      .set("context", report.context)
      .set("kv_bytes", report.kv_context_bytes)
      .set("state_bytes", report.state_bytes)
      .set("kv_bytes_seen", report.kv_seen_bytes)
      .set("kv_page_bytes", report.kv_page_bytes)
      .set("supported", report.problems.empty())
      .set("problems", std::move(problems));
  if (list_tensors && report.weights.weights != nullptr) {
    json.set("tensors", tensors_json(*report.weights.weights));
  }
  return write_json(json) + "\n";
}

}  // namespace headrace
