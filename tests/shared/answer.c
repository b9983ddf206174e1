/* answer MODEL QUESTION: prints an answer as it comes. */
#include <headrace.h>
#include <stdio.h>

static int print_text(void* context, const char* text, size_t length) {
  (void)context;
  fwrite(text, 1, length, stdout);
  fflush(stdout);
  return 0; /* go on */
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const char* flags[] = {"--max-model-len", "1024"};
  headrace_model* model = headrace_load(argv[1], flags, 2);
  if (model == NULL) {
    fprintf(stderr, "%s\n", headrace_error());
    return 1;
  }
  headrace_sampling sampling = headrace_default_sampling(model);
  sampling.temperature = 0;
  sampling.max_tokens = 32;
  char messages[4096]; /* a question with quotes would have to be escaped */
  snprintf(messages, sizeof(messages), "[{\"role\": \"user\", \"content\": \"%s\"}]", argv[2]);
  headrace_result result;
  headrace_status status = headrace_chat(model, messages, &sampling, print_text, NULL, &result);
  if (status == HEADRACE_OK) {
    printf("\n[%d tokens, %s]\n", result.answer_tokens, result.finish_reason);
  } else {
    fprintf(stderr, "%s\n", headrace_error());
  }
  headrace_free(model);
  return status == HEADRACE_OK ? 0 : 1;
}
