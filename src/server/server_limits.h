// Every bound of the HTTP edge, with its default, in one place. Limits attach to types of data, not
// to routes, so no route can forget one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/json.h"

namespace headrace {

struct HttpLimits {
  size_t head_bytes_max = 32 << 10;  // request line and header block; over: 431
  size_t line_bytes_max = 8 << 10;
  int header_count_max = 100;
  size_t body_bytes_max = 8 << 20;  // enforced while reading, chunked or not; over: 413
  // Of a body whose length is announced, on routes that take uploads; others keep body_bytes_max.
  size_t upload_bytes_max = 0;
  size_t unread_body_bytes_max = 4 << 10;  // on routes that do not look at it; over: 413
  // Of all bodies in memory at a time, as far as they have come, and of all uploads; over: 503.
  size_t bodies_bytes_max = size_t{512} << 20;
  size_t uploads_bytes_max = size_t{512} << 20;
  int chunk_size_digits_max = 8;
  int chunk_count_max = 64 << 10;
  double head_seconds_max = 10;  // from the first byte to the last of the head; over: 408
  // Without bytes of a body. Each 64 KiB that have come give a second back, never more than these:
  // a body may come as slowly as that, and nothing is earned by what is only announced. Over: 408.
  double body_seconds_max = 30;
  double idle_seconds_max = 60;           // between requests of a connection
  int connections_max = 4096;             // over: accepting pauses
  int connections_per_address_max = 256;  // over: 429 and close
  size_t unsent_bytes_max = 256 << 10;    // of one stream; over: the stream pauses
  // Of an answer that waits for its peer. What is taken gives time again, at 16 KiB a second; when
  // it is over, the request is aborted.
  double stalled_write_seconds_max = 30;
};

// Prefixes that clients pin (cache_pins.h).
struct PinLimits {
  int64_t tokens_per_key = -1;  // -1: a quarter of the cache; 0: no pins
  int32_t pins_per_key = 64;
};

struct RequestLimits {
  // Of a body. Elements: 40 bytes each and more; prompts of token ids have one a token, and a model
  // whose context is longer raises the bound to it (ServerState::json_limits).
  JsonLimits json{.depth_max = 64,
                  .key_count_max = 100'000,
                  .object_keys_max = 4096,  // four times what logit_bias may hold
                  .element_count_max = 512 << 10};
  int32_t template_kwargs_max = 64;    // members of chat_template_kwargs
  int32_t choices_max = 128;           // `n`, as OpenAI's; --max-num-seqs bounds it too
  int32_t beams_max = 64;              // of a search, which --max-num-seqs bounds too
  int32_t prompts_max = 256;           // of one completion request
  int32_t embedding_texts_max = 2048;  // of one request for embeddings, as OpenAI's
  // Of the vectors of all requests that wait, run or are being written, as f32; more: 429.
  size_t embedding_bytes_max = size_t{256} << 20;
  // Of an answer that is not streamed, by answer_token_bytes(): over: 400. Of all of them that are
  // made or being written; over: 503.
  size_t answer_bytes_max = 64 << 20;
  size_t answers_bytes_max = size_t{512} << 20;
  int32_t logprobs_max = 20;  // `logprobs`, `top_logprobs`
  int32_t stops_max = 16;
  size_t stop_bytes_max = 256;  // of one stop string
  int32_t logit_bias_max = 1024;
  int32_t stop_token_ids_max = 1024;
  int32_t bad_words_max = 1024;  // each of as many bytes as a stop string
  int32_t messages_max = 16384;
  size_t tokenize_bytes_max = 2 << 20;  // of a text of /tokenize: 0.1 to 0.5 s of a thread
  size_t label_bytes_max = 256;         // request_id, user, cache_salt
  double queue_seconds_max = 30;        // waiting for the first step; over: 503. 0: no bound
  // The same of background requests (service_tier flex): as long as OpenAI's clients wait.
  double flex_queue_seconds_max = 600;
  // Waiting for a model to be loaded, where there are several; over: 503. 0: no bound
  double model_load_seconds_max = 300;
  // A stream that is silent for so long gets a comment, as proxies cut what is silent for 60 s.
  double ping_seconds = 30;  // 0: none
  PinLimits pins;
  double pin_seconds_max = 24 * 3600;
  size_t stored_response_bytes_max = 32 << 20;  // of each API key (response_store.h); 0: none
  size_t pending_tokens_max = 1 << 16;  // of one request, behind a paused stream; over: aborted
};

}  // namespace headrace
