/* Headrace in a C program: loads a model into this process and answers with it.
 *
 * A model may be used by any threads at once; their requests share steps, as a server's do. What a
 * call takes stays the caller's; strings are UTF-8 and end in 0 unless a length is beside them.
 * Calls that fail return NULL or a status that is not HEADRACE_OK, and headrace_error() says in one
 * line what was in the way. No call ends the process, and none prints. */
#ifndef HEADRACE_H
#define HEADRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum headrace_status {
  HEADRACE_OK = 0,
  HEADRACE_INVALID = 1, /* the caller's mistake: a value, a flag, a text that does not fit */
  HEADRACE_FAILED = 2   /* a file, memory, an engine that stopped */
} headrace_status;

/* "0.1.0" */
const char* headrace_version(void);
/* Of the last call of this thread that failed; valid until its next call. "" if none has. */
const char* headrace_error(void);

/* ---- models */

typedef struct headrace_model headrace_model;

/* `model`: a .gguf file, a folder, or a name that `headrace pull` has fetched. `flags`:
 * `flag_count` flags of `headrace run` as they are typed ("--max-model-len", "2048"); NULL where
 * there are none. */
headrace_model* headrace_load(const char* model, const char* const* flags, size_t flag_count);
/* Waits for calls that use it to end: they must have. NULL is nothing. */
void headrace_free(headrace_model* model);

/* Tokens that a prompt and its answer may have together. */
int32_t headrace_context_length(const headrace_model* model);
/* Numbers of a vector; 0 of a model that generates text. */
int32_t headrace_dimensions(const headrace_model* model);

/* ---- text */

typedef struct headrace_sampling {
  float temperature; /* 0: always the most probable token */
  float top_p;       /* (0, 1]; 1: off */
  float min_p;       /* [0, 1]; 0: off */
  int32_t top_k;     /* 0: off */
  float repetition_penalty, presence_penalty, frequency_penalty;
  int64_t seed;            /* < 0: another one each time */
  int32_t max_tokens;      /* < 0: as many as the context holds */
  const char* const* stop; /* texts that end an answer and are no part of it */
  size_t stop_count;
} headrace_sampling;

/* What the model's makers suggest; 256 tokens at most. */
headrace_sampling headrace_default_sampling(const headrace_model* model);

/* Called by the calling thread with each piece of an answer: whole characters. Other than 0 ends
 * the answer, which is no error. */
typedef int (*headrace_on_text)(void* context, const char* text, size_t length);

typedef struct headrace_result {
  int32_t prompt_tokens, answer_tokens;
  int32_t cached_tokens;     /* of the prompt, that were not computed again */
  const char* finish_reason; /* "stop", "length", or "abort" where on_text ended it; never freed */
} headrace_result;

/* Continues `prompt`. `sampling`, `on_text` and `result` may be NULL. */
headrace_status headrace_generate(headrace_model* model, const char* prompt,
                                  const headrace_sampling* sampling, headrace_on_text on_text,
                                  void* context, headrace_result* result);
/* Answers a conversation through the model's own template. `messages`: a JSON array as of OpenAI's
 * chat completions, [{"role": "user", "content": "Hello"}]. */
headrace_status headrace_chat(headrace_model* model, const char* messages,
                              const headrace_sampling* sampling, headrace_on_text on_text,
                              void* context, headrace_result* result);

/* ---- vectors */

/* Of `count` texts, into vectors[count][headrace_dimensions(model)]. */
headrace_status headrace_embed(headrace_model* model, const char* const* texts, size_t count,
                               float* vectors);

#ifdef __cplusplus
}
#endif
#endif
