// libFuzzer target: request bodies of every JSON route, from bytes to what the engine would get.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/embedding_request.h"
#include "server/generation_request.h"
#include "server/llama_request.h"
#include "server/messages_request.h"
#include "server/ollama_request.h"
#include "server/response_request.h"
#include "server/score_request.h"
#include "server/sglang_request.h"
#include "server/text_request.h"
#include "server/tgi_request.h"
#include "text/chat_prompt.h"
#include "text/vocab_fixture.h"

namespace headrace {
namespace {

constexpr std::string_view kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor "
    "%}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

Vocab vocab_with_pairs() {
  Vocab vocab = tiny_vocab();
  vocab.pair = PairFrame{{vocab.bos}, {vocab.eos}, {vocab.eos}, true};
  return vocab;
}

struct Model {
  Model()
      : tokenizer(Tokenizer::create(vocab_with_pairs()).value()),
        chat_template(ChatTemplate::compile(kTemplate).value()) {
    encoder = ChatPromptEncoder::create(*tokenizer, chat_template).value();
  }
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat_template;
  std::unique_ptr<ChatPromptEncoder> encoder;
};

const Model& model() {
  static const Model instance;
  return instance;
}

// A checked request must be within every range that the engine relies on.
void check_settings(const GenerationSettings& settings, const FieldContext& context) {
  const SamplingParams& s = settings.sampling;
  CHECK(s.temperature >= 0 && s.temperature <= 100 && s.top_p > 0 && s.top_p <= 1 && s.min_p >= 0 &&
        s.min_p <= 1);
  CHECK(s.top_k >= 0 && s.n >= 1 && s.n <= context.limits.choices_max && s.min_tokens >= 0);
  CHECK(s.repetition_penalty >= 0.01f && s.repetition_penalty <= 100);
  CHECK(s.presence_penalty >= -2 && s.presence_penalty <= 2 && s.frequency_penalty >= -2 &&
        s.frequency_penalty <= 2);
  CHECK(s.logprobs >= -1 && s.logprobs <= context.limits.logprobs_max);
  CHECK(settings.max_tokens.value_or(0) >= 0);
  for (const auto& [id, bias] : s.logit_bias)
    CHECK(id >= 0 && id < context.vocab_size && std::isfinite(bias));
  for (TokenId id : s.stop_token_ids) CHECK(id >= 0 && id < context.vocab_size);
  for (const std::string& stop : settings.stops)
    CHECK(!stop.empty() && stop.size() <= context.limits.stop_bytes_max);
}

void encode_chat(const Json& messages, const Json& variables) {
  const auto ids = model().encoder->encode(messages, variables, {.add_generation_prompt = true});
  if (!ids.ok()) return;
  const auto controls = std::count_if(ids->begin(), ids->end(),
                                      [](TokenId id) { return model().tokenizer->is_control(id); });
  CHECK(controls == static_cast<long>(2 * messages.as_array().size() + 1));
  CHECK(model().tokenizer->decode(*ids, false) ==
        model().encoder->render(messages, variables, {}).value());
}

template <class T>
void check_error(const Result<T>& result) {
  CHECK(result.ok() || result.status().code() == StatusCode::kInvalidArgument);
}

void check_chat(const ChatRequest& request, const FieldContext& context) {
  check_settings(request.settings, context);
  encode_chat(request.messages, Json());
}

template <class T>
void check_parsed(const Result<T>& request, const GenerationSettings& (*settings)(const T&),
                  const FieldContext& context) {
  check_error(request);
  if (request.ok()) check_settings(settings(*request), context);
}

void fuzz_other_protocols(int route, const Json& body, FieldContext context) {
  context.reads_calls = context.reads_reasoning = true;
  context.takes_forms = context.enforces_calls = true;
  const auto of_ollama = [](const OllamaRequest& r) -> const GenerationSettings& {
    return r.chat.settings;
  };
  const auto of_llama = [](const LlamaRequest& r) -> const GenerationSettings& {
    return r.settings;
  };
  if (route == 4) {
    check_parsed<OllamaRequest>(parse_ollama_request(OllamaRoute::kChat, body, context), of_ollama,
                                context);
  } else if (route == 5) {
    check_parsed<OllamaRequest>(parse_ollama_request(OllamaRoute::kGenerate, body, context),
                                of_ollama, context);
  } else if (route == 6) {
    check_parsed<LlamaRequest>(parse_llama_completion(body, context), of_llama, context);
  } else if (route == 7) {
    check_parsed<LlamaRequest>(parse_llama_infill(body, context), of_llama, context);
  } else if (route == 8) {
    check_parsed<SglangRequest>(
        parse_sglang_request(body, context),
        [](const SglangRequest& r) -> const GenerationSettings& { return r.completion.settings; },
        context);
  } else {
    check_parsed<TgiRequest>(
        parse_tgi_request(body, context),
        [](const TgiRequest& r) -> const GenerationSettings& { return r.completion.settings; },
        context);
  }
}

// What the engine gets of a checked request: texts that it takes, ids in the vocabulary.
void check_embeddings(const Result<EmbeddingRequest>& request, const FieldContext& context) {
  constexpr size_t kLengthMax = 8;
  check_error(request);
  if (!request.ok()) return;
  const auto texts = embedding_ids(*request, model().tokenizer.get(),
                                   {.dimensions = 16, .length_max = kLengthMax}, context.limits);
  check_error(texts);
  if (!texts.ok()) return;
  CHECK(texts->size() == request->size() && request->dimensions <= 16);
  for (const auto& ids : *texts) {
    CHECK(!ids.empty() && ids.size() <= kLengthMax);
    for (const TokenId id : ids) CHECK(id >= 0 && id < context.vocab_size);
  }
}

void check_scores(const Result<ScoreRequest>& request, const FieldContext& context) {
  constexpr size_t kLengthMax = 8;
  check_error(request);
  if (!request.ok()) return;
  const EmbeddingSizes sizes{.dimensions = 16, .length_max = kLengthMax};
  const auto pairs = pair_texts(*request, model().tokenizer.get(), sizes, context.limits);
  check_error(pairs);
  if (pairs.ok()) CHECK(pairs->size() == request->second.size());
  const auto texts = compared_texts(*request, model().tokenizer.get(), sizes, context.limits);
  check_error(texts);
  if (texts.ok()) CHECK(texts->size() == request->first.size() + request->second.size());
  const auto prompts =
      prompt_texts(*request, nullptr, model().tokenizer.get(), sizes, context.limits);
  check_error(prompts);
  if (prompts.ok()) CHECK(prompts->size() == request->second.size());
  for (const auto* each : {&pairs, &texts, &prompts}) {
    if (!each->ok()) continue;
    for (const EmbeddingText& text : **each) {
      CHECK(!text.ids.empty() && text.ids.size() <= kLengthMax);
      CHECK(text.second_count >= 0 && text.second_count < static_cast<int32_t>(text.ids.size()));
      for (const TokenId id : text.ids) CHECK(id >= 0 && id < context.vocab_size);
    }
  }
}

void fuzz_body(int route, const Json& body) {
  static const RequestLimits limits;
  const FieldContext context{limits, model().tokenizer->vocab_size()};
  if (route == 0) {
    auto request = parse_completion_request(body, context);
    check_error(request);
    if (request.ok()) check_settings(request->settings, context);
  } else if (route == 1) {
    auto request = parse_chat_request(body, context);
    check_error(request);
    if (request.ok()) check_chat(*request, context);
  } else if (route == 2) {
    auto request = parse_tokenize_request(body, context);
    check_error(request);
    if (request.ok() && request->messages) encode_chat(*request->messages, Json());
  } else if (route == 3) {
    check_error(parse_detokenize_request(body, context));
  } else if (route < 10) {
    fuzz_other_protocols(route, body, context);
  } else if (route == 10) {
    auto request = parse_messages_request(body, context);
    check_error(request);
    if (request.ok()) check_chat(request->chat, context);
  } else if (route == 12) {
    check_embeddings(parse_embedding_request(body, context), context);
    check_embeddings(parse_pooling_request(body, context), context);
    check_embeddings(parse_classify_request(body, context), context);
    check_scores(parse_score_request(body, context), context);
    check_scores(parse_rerank_request(body, context), context);
    check_scores(parse_tei_rerank_request(body, context), context);
  } else if (route == 13) {
    check_embeddings(parse_ollama_embed_request(OllamaEmbedRoute::kEmbed, body, context), context);
  } else if (route == 14) {
    check_embeddings(parse_ollama_embed_request(OllamaEmbedRoute::kEmbeddings, body, context),
                     context);
  } else {
    auto request = parse_response_request(body, context, {});
    check_error(request);
    if (request.ok()) check_chat(request->chat, context);
  }
}

}  // namespace
}  // namespace headrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Result<Json> body = parse_json(text);
  if (body.ok()) fuzz_body(data[0] % 15, *body);
  return 0;
}
