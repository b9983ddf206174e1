#include "server/model_fixture.h"

#include "text/byte_level.h"
#include "text/vocab_fixture.h"

namespace headrace {

TestModel::TestModel(FakeEngineOptions options, std::string_view script) {
  Vocab vocab = tiny_vocab();
  vocab.pair = PairFrame{
      .front = {vocab.bos}, .middle = {vocab.eos}, .back = {vocab.eos}, .second_type = true};
  auto created = Tokenizer::create(std::move(vocab));
  CHECK(created.ok());
  tokenizer = std::move(*created);
  auto compiled = ChatTemplate::compile(kChatMlTemplate);
  CHECK(compiled.ok());
  chat_template = std::make_unique<ChatTemplate>(std::move(*compiled));
  options.vocab_size = tokenizer->vocab_size();
  options.end_id = control("<|im_end|>");
  if (!script.empty()) options.scripts.emplace_back();
  for (char c : script) {
    if (c == '\x1e') {
      options.scripts.emplace_back();
    } else {
      options.scripts.back().push_back(byte_token(static_cast<unsigned char>(c)));
    }
  }
  engine = std::make_unique<FakeEngine>(std::move(options));
}

ServedModel TestModel::served() const {
  ServedModel model;
  model.engine = engine.get();
  model.tokenizer = tokenizer.get();
  model.chat_template = chat_template.get();
  model.names = {"tiny", "tiny-alias"};
  model.max_model_len = engine->options().scheduler.max_model_len;
  model.created_unix_s = 1700000000;
  return model;
}

TokenId TestModel::byte_token(unsigned char byte) const {
  return control(spell_bytes(std::string(1, static_cast<char>(byte))));
}

TokenId TestModel::control(std::string_view spelling) const {
  const auto& tokens = tokenizer->vocab().tokens;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (tokens[id] == spelling) return static_cast<TokenId>(id);
  }
  CHECK_MSG(false, "no such token");
  return -1;
}

}  // namespace headrace
