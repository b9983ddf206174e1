// Chat templates of real models against Jinja 2's own output.
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "text/chat_template.h"

namespace headrace::chat_template_golden_test {
namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Json> read_rows(const std::string& path) {
  std::istringstream file(read_file(path));
  std::vector<Json> rows;
  for (std::string line; std::getline(file, line, '\n');) {
    Result<Json> row = parse_json(line);
    EXPECT_TRUE(row.ok()) << row.status().message();
    if (row.ok()) rows.push_back(*std::move(row));
  }
  return rows;
}

TEST(ChatTemplateGolden, ModelsTemplates) {
  int rendered = 0;
  for (const Json& row : read_rows("tests/data/text/chat_templates.jsonl")) {
    const std::string& model = row.find("model")->as_string();
    SCOPED_TRACE(model + " " + row.find("id")->as_string());
    const auto chat_template =
        ChatTemplate::compile(read_file("tests/data/text/" + model + ".jinja"));
    ASSERT_TRUE(chat_template.ok()) << chat_template.status().message();
    const auto text =
        render_chat(*chat_template, Vocab(), *row.find("messages"), *row.find("tools"),
                    row.find("add_generation_prompt")->as_bool(), nullptr);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, row.find("rendered")->as_string());
    ++rendered;
  }
  EXPECT_EQ(rendered, 16);
}

// template_cases.jsonl, written by make_template_cases.py with Python's jinja2: a line with the
// variables of all cases, then {template, rendered} or {template, error: true} a line.
TEST(ChatTemplateGolden, ConstructsAsJinja2) {
  const std::vector<Json> rows = read_rows("tests/data/text/template_cases.jsonl");
  ASSERT_GT(rows.size(), 800u);
  const Json& variables = *rows[0].find("variables");
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string& source = rows[i].find("template")->as_string();
    SCOPED_TRACE(source);
    const auto chat_template = ChatTemplate::compile(source);
    if (rows[i].find("error") != nullptr) {
      EXPECT_FALSE(chat_template.ok() && chat_template->render(variables).ok());
      continue;
    }
    EXPECT_TRUE(chat_template.ok()) << chat_template.status().message();
    if (!chat_template.ok()) continue;
    const auto text = chat_template->render(variables, 1'700'000'000);
    EXPECT_TRUE(text.ok()) << text.status().message();
    if (text.ok()) {
      EXPECT_EQ(*text, rows[i].find("rendered")->as_string());
    }
  }
}

}  // namespace
}  // namespace headrace::chat_template_golden_test
