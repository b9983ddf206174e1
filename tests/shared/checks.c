/* checks MODEL: what headrace.h promises, beside the example. Prints what does not hold. */
#include <headrace.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static int failed = 0;
#define EXPECT(condition)                                                        \
  do {                                                                           \
    if (!(condition)) {                                                          \
      fprintf(stderr, "%s:%d: %s (error: %s)\n", __FILE__, __LINE__, #condition, \
              headrace_error());                                                 \
      failed = 1;                                                                \
    }                                                                            \
  } while (0)

typedef struct {
  char text[4096];
  size_t length;
  int pieces, pieces_max; /* 0: no bound */
} kept_text;

static int keep(void* context, const char* text, size_t length) {
  kept_text* kept = context;
  if (kept->length + length >= sizeof(kept->text)) return 1;
  memcpy(kept->text + kept->length, text, length);
  kept->text[kept->length += length] = 0;
  return ++kept->pieces == kept->pieces_max;
}

static headrace_sampling greedy(headrace_model* model, int tokens) {
  headrace_sampling sampling = headrace_default_sampling(model);
  sampling.temperature = 0;
  sampling.max_tokens = tokens;
  return sampling;
}

static void* ask(void* model) {
  static kept_text answers[8];
  static int next = 0;
  kept_text* kept = &answers[__atomic_fetch_add(&next, 1, __ATOMIC_SEQ_CST)];
  headrace_sampling sampling = greedy(model, 8);
  return headrace_generate(model, "The capital of France is", &sampling, keep, kept, NULL) ==
                 HEADRACE_OK
             ? kept->text
             : NULL;
}

static void answers(headrace_model* model) {
  headrace_sampling sampling = greedy(model, 8);
  kept_text whole = {0}, stopped = {0}, left = {.pieces_max = 2};
  headrace_result result;
  EXPECT(headrace_generate(model, "The capital of France is", &sampling, keep, &whole, &result) ==
         HEADRACE_OK);
  EXPECT(strstr(whole.text, "Paris") != NULL && whole.pieces > 2);
  EXPECT(result.answer_tokens == 8 && result.prompt_tokens > 3 &&
         strcmp(result.finish_reason, "length") == 0);

  const char* stops[] = {"seven"};
  sampling = greedy(model, 40);
  sampling.stop = stops;
  sampling.stop_count = 1;
  EXPECT(headrace_generate(model, "One, two, three,", &sampling, keep, &stopped, &result) ==
         HEADRACE_OK);
  EXPECT(strstr(stopped.text, "six") != NULL && strstr(stopped.text, "seven") == NULL);
  EXPECT(strcmp(result.finish_reason, "stop") == 0);

  sampling = greedy(model, 900);
  EXPECT(headrace_generate(model, "One, two, three,", &sampling, keep, &left, &result) ==
         HEADRACE_OK);
  EXPECT(left.pieces == 2 && strcmp(result.finish_reason, "abort") == 0 &&
         result.answer_tokens < 100);
  EXPECT(headrace_generate(model, "One", NULL, NULL, NULL, NULL) == HEADRACE_OK);

  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, ask, model);
  for (int i = 0; i < 4; ++i) {
    void* text = NULL;
    pthread_join(threads[i], &text);
    EXPECT(text != NULL && strcmp(text, whole.text) == 0);
  }
}

static void mistakes(headrace_model* model) {
  headrace_sampling sampling = greedy(model, 8);
  sampling.temperature = -1;
  EXPECT(headrace_generate(model, "x", &sampling, NULL, NULL, NULL) == HEADRACE_INVALID);
  EXPECT(strstr(headrace_error(), "temperature is -1") != NULL);
  sampling = greedy(model, 0);
  EXPECT(headrace_generate(model, "x", &sampling, NULL, NULL, NULL) == HEADRACE_INVALID);
  EXPECT(headrace_generate(model, "", NULL, NULL, NULL, NULL) == HEADRACE_INVALID);
  EXPECT(strstr(headrace_error(), "the prompt is empty") != NULL);
  EXPECT(headrace_chat(model, "[{]", NULL, NULL, NULL, NULL) == HEADRACE_INVALID);
  EXPECT(headrace_chat(model, "{}", NULL, NULL, NULL, NULL) == HEADRACE_INVALID);
  float vector[1];
  const char* text = "x";
  EXPECT(headrace_embed(model, &text, 1, vector) == HEADRACE_INVALID);
  EXPECT(strstr(headrace_error(), "gives no vectors") != NULL);
  EXPECT(headrace_load("/no/such.gguf", NULL, 0) == NULL &&
         strstr(headrace_error(), "/no/such.gguf") != NULL);
  const char* flags[] = {"--no-such-flag"};
  EXPECT(headrace_load("/no/such.gguf", flags, 1) == NULL &&
         strstr(headrace_error(), "--no-such-flag") != NULL);
  EXPECT(strchr(headrace_error(), '\n') == NULL);
}

static void vectors(const char* path) {
  const char* flags[] = {"--embedding", "--max-model-len", "256"};
  headrace_model* model = headrace_load(path, flags, 3);
  EXPECT(model != NULL);
  if (model == NULL) return;
  enum { kMost = 4096 };
  static float rows[3 * kMost];
  const int width = headrace_dimensions(model);
  EXPECT(width > 0 && width <= kMost);
  const char* texts[] = {"Cats sleep most of the day.", "Kittens sleep most of the day.",
                         "The court has ruled on the tax."};
  EXPECT(headrace_embed(model, texts, 3, rows) == HEADRACE_OK);
  double near = 0, far = 0;
  for (int i = 0; i < width; ++i) {
    near += rows[i] * rows[width + i];
    far += rows[i] * rows[2 * width + i];
  }
  EXPECT(near > far);
  EXPECT(headrace_generate(model, "x", NULL, NULL, NULL, NULL) == HEADRACE_INVALID);
  headrace_free(model);
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  EXPECT(strcmp(headrace_error(), "") == 0 && headrace_version()[0] != 0);
  const char* flags[] = {"--max-model-len", "1024"};
  headrace_model* model = headrace_load(argv[1], flags, 2);
  EXPECT(model != NULL);
  if (model != NULL) {
    EXPECT(headrace_context_length(model) == 1024 && headrace_dimensions(model) == 0);
    answers(model);
    mistakes(model);
    headrace_free(model);
  }
  headrace_free(NULL);
  vectors(argv[1]);
  if (!failed) puts("all holds");
  return failed;
}
