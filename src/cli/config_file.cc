#include "cli/config_file.h"

#include <yaml.h>

#include <algorithm>
#include <istream>
#include <iterator>
#include <memory>

#include <fmt/format.h>

#include "base/json.h"

namespace headrace {
namespace {

constexpr size_t kConfigBytesMax = 1 << 20;

Status error_at(const yaml_mark_t& mark, std::string_view what) {
  return invalid_argument(fmt::format("line {}: {}", mark.line + 1, what));
}

// A document and what is read of it.
class Document {
 public:
  static Result<std::unique_ptr<Document>> parse(std::string_view text) {
    std::unique_ptr<yaml_parser_t, void (*)(yaml_parser_t*)> parser(new yaml_parser_t,
                                                                    [](yaml_parser_t* p) {
                                                                      yaml_parser_delete(p);
                                                                      delete p;
                                                                    });
    CHECK(yaml_parser_initialize(parser.get()) == 1);
    yaml_parser_set_input_string(parser.get(), reinterpret_cast<const unsigned char*>(text.data()),
                                 text.size());
    auto document = std::make_unique<Document>();
    document->loaded_ = yaml_parser_load(parser.get(), &document->document_) == 1;
    if (!document->loaded_) {
      return error_at(parser->problem_mark,
                      fmt::format("this is no YAML: {}", parser->problem ? parser->problem : ""));
    }
    return document;
  }
  Document() = default;
  ~Document() {
    if (loaded_) yaml_document_delete(&document_);
  }
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;

  Result<std::vector<ConfigEntry>> entries() {
    std::vector<ConfigEntry> entries;
    const yaml_node_t* root = yaml_document_get_root_node(&document_);
    if (root == nullptr) return entries;  // an empty file
    if (root->type != YAML_MAPPING_NODE) {
      return error_at(root->start_mark, "expected flags and their values, as 'port: 8000'");
    }
    for (auto* pair = root->data.mapping.pairs.start; pair < root->data.mapping.pairs.top; ++pair) {
      HR_ASSIGN_OR_RETURN(ConfigEntry entry, read_entry(*node(pair->key), *node(pair->value)));
      for (const ConfigEntry& before : entries) {
        if (before.name == entry.name) {
          return error_at(node(pair->key)->start_mark, fmt::format("{} stands twice", entry.name));
        }
      }
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  const yaml_node_t* node(int index) { return yaml_document_get_node(&document_, index); }

  Result<ConfigEntry> read_entry(const yaml_node_t& key, const yaml_node_t& value) {
    if (key.type != YAML_SCALAR_NODE) return error_at(key.start_mark, "a flag's name is one word");
    ConfigEntry entry{.name = text_of(key), .line = static_cast<int>(key.start_mark.line) + 1};
    if (is_null(value)) {
      return error_at(key.start_mark, fmt::format("{} has no value", entry.name));
    }
    HR_ASSIGN_OR_RETURN(const Json json, json_of(value));
    entry.json = write_json(json);
    if (value.type == YAML_SEQUENCE_NODE) {
      for (auto* item = value.data.sequence.items.start; item < value.data.sequence.items.top;
           ++item) {
        HR_ASSIGN_OR_RETURN(std::string text, value_of(*node(*item)));
        entry.values.push_back(std::move(text));
      }
    } else {
      HR_ASSIGN_OR_RETURN(std::string text, value_of(value));
      entry.values.push_back(std::move(text));
    }
    return entry;
  }

  // As it would stand on a command line.
  Result<std::string> value_of(const yaml_node_t& node) {
    if (node.type == YAML_SCALAR_NODE) return text_of(node);
    HR_ASSIGN_OR_RETURN(const Json json, json_of(node));
    return write_json(json);
  }

  static std::string text_of(const yaml_node_t& node) {
    return {reinterpret_cast<const char*>(node.data.scalar.value), node.data.scalar.length};
  }
  static bool is_plain(const yaml_node_t& node) {
    return node.type == YAML_SCALAR_NODE && node.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
  }
  static bool is_null(const yaml_node_t& node) {
    if (!is_plain(node)) return false;
    const std::string text = text_of(node);
    return text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL";
  }

  // libyaml bounds the depth. Plain words that JSON knows are what JSON says; all else is text.
  Result<Json> json_of(const yaml_node_t& from) {
    if (++nodes_read_ > kConfigBytesMax / 8) return error_at(from.start_mark, "too many values");
    if (is_null(from)) return Json();
    if (from.type == YAML_SCALAR_NODE) {
      const std::string text = text_of(from);
      if (!is_plain(from)) return Json(text);
      Result<Json> parsed = parse_json(text);
      return parsed.ok() ? std::move(parsed).value() : Json(text);
    }
    if (from.type == YAML_SEQUENCE_NODE) {
      Json list = Json::array();
      for (auto* item = from.data.sequence.items.start; item < from.data.sequence.items.top;
           ++item) {
        HR_ASSIGN_OR_RETURN(Json value, json_of(*node(*item)));
        list.push(std::move(value));
      }
      return list;
    }
    Json object = Json::object();
    for (auto* pair = from.data.mapping.pairs.start; pair < from.data.mapping.pairs.top; ++pair) {
      const yaml_node_t& key = *node(pair->key);
      if (key.type != YAML_SCALAR_NODE) return error_at(key.start_mark, "a key must be one word");
      HR_ASSIGN_OR_RETURN(Json value, json_of(*node(pair->value)));
      object.set(text_of(key), std::move(value));
    }
    return object;
  }

  yaml_document_t document_{};
  bool loaded_ = false;
  size_t nodes_read_ = 0;  // aliases count each time
};

// What CLI11 asks for the values of flags that the command line does not have.
class YamlConfig final : public CLI::Config {
 public:
  explicit YamlConfig(const CLI::App& app) : app_(app) {}

  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const std::string text(std::istreambuf_iterator<char>(input), {});
    const Result<std::vector<ConfigEntry>> entries = parse_config(text);
    if (!entries.ok()) throw CLI::ValidationError("--config", entries.status().message());
    std::vector<CLI::ConfigItem> items;
    for (const ConfigEntry& entry : *entries) {
      CLI::ConfigItem& item = items.emplace_back();
      item.name = entry.name;
      std::replace(item.name.begin(), item.name.end(), '_', '-');
      const CLI::Option* option = app_.get_option_no_throw("--" + item.name);
      if (option == nullptr || !option->get_configurable()) {
        throw CLI::ValidationError(
            "--config", fmt::format("line {}: {} is no flag of 'headrace {}'", entry.line,
                                    entry.name, app_.get_name()));
      }
      const bool many = option->get_items_expected_max() > 1;
      item.inputs =
          many || entry.values.size() == 1 ? entry.values : std::vector<std::string>{entry.json};
    }
    return items;
  }

 private:
  const CLI::App& app_;
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view yaml) {
  if (yaml.size() > kConfigBytesMax) {
    return invalid_argument(fmt::format("it is longer than {} bytes", kConfigBytesMax));
  }
  HR_ASSIGN_OR_RETURN(const std::unique_ptr<Document> document, Document::parse(yaml));
  return document->entries();
}

void add_config_flag(CLI::App& app) {
  app.config_formatter(std::make_shared<YamlConfig>(app));
  app.set_config("--config", "",
                 "Flags from a YAML file, as 'max-num-seqs: 32'; the command line goes before it")
      ->type_name("FILE")
      ->group("Other");
}

}  // namespace headrace
