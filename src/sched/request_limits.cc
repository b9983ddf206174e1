#include "sched/request_limits.h"

#include <algorithm>

#include <fmt/format.h>

#include "kv/eviction_queue.h"
#include "kv/kv_demand.h"

namespace headrace {
namespace {

Status require_positive(int32_t value, std::string_view option) {
  if (value > 0) return ok_status();
  return invalid_argument(fmt::format("{} is {}, it must be at least 1", option, value),
                          std::string(option));
}

// A unit of the prefix cache counts its pages, one in each group, in 8 bits.
constexpr size_t kGroupsMax = 64;

Status check_groups(const SchedulerOptions& options) {
  if (options.groups.empty()) return invalid_argument("there is no KV group", "groups");
  if (options.groups.size() > kGroupsMax) {
    return invalid_argument(fmt::format("{} KV groups, {} are the most: layers of as many kinds "
                                        "(windows, key heads, their sizes) are not supported",
                                        options.groups.size(), kGroupsMax),
                            "groups");
  }
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const KvGroupSpec& group = options.groups[i];
    if (group.block_tokens <= 0) {
      return invalid_argument(
          fmt::format("KV group {} has {} tokens a block", i, group.block_tokens), "groups");
    }
    if (group.kind == KvKind::kSliding && options.allocation == KvAllocation::kReserveMax) {
      return invalid_argument(
          "--kv-memory contiguous reserves whole contexts and knows no sliding window, which this "
          "model has: use --kv-memory paged or virtual",
          "kv-memory");
    }
    if (group.kind == KvKind::kSliding && group.window <= 0) {
      return invalid_argument(fmt::format("KV group {} slides over {} tokens", i, group.window),
                              "groups");
    }
  }
  return ok_status();
}

Status check_states(const SchedulerOptions& options) {
  if (!options.state_checkpoints) return ok_status();
  if (*options.state_checkpoints < 0) {
    return invalid_argument(
        fmt::format("state_checkpoints is {}, it must not be negative", *options.state_checkpoints),
        "state_checkpoints");
  }
  if (!options.tiers.empty()) {
    return invalid_argument("states of sequences are kept in no tier below the pool", "tiers");
  }
  const ProposalOptions& proposals = options.proposals;
  if (proposals.method != ProposalMethod::kNone || proposals.source != nullptr) {
    return invalid_argument("states of sequences do not undo a rejected proposal", "proposals");
  }
  return ok_status();
}

Status check_answered(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  const auto refuse = [](std::string message) {
    return invalid_argument(std::move(message), "answered");
  };
  if (sampling.n != 1) return refuse("an answer goes on alone: n must be 1");
  if (sampling.prompt_logprobs >= 0) {
    return refuse("an answer that goes on has no log-probabilities of its prompt");
  }
  const auto tokens = static_cast<int64_t>(request.answered.size());
  if (tokens < sampling.max_tokens) return ok_status();
  return refuse(fmt::format("the answer has {} tokens, and max_tokens is {}: it has ended", tokens,
                            sampling.max_tokens));
}

// The first of its parameters that a search has no use for; nullptr: there is none.
const char* outside_of_search(const Request& request) {
  const SamplingParams& sampling = request.sampling;
  if (request.constraint != nullptr) return "structured output";
  if (sampling.repetition_penalty != 1.0f) return "repetition_penalty";
  if (sampling.presence_penalty != 0.0f) return "presence_penalty";
  if (sampling.frequency_penalty != 0.0f) return "frequency_penalty";
  if (sampling.dry.on()) return "dry_multiplier";
  if (!sampling.logit_bias.empty()) return "logit_bias";
  return request.answered.empty() ? nullptr : "an answer that was begun elsewhere";
}

Status check_beams(const SchedulerOptions& options, const Request& request) {
  const int32_t width = request.beams->width;
  const auto refuse = [](std::string message, std::string field) {
    return invalid_argument(std::move(message), std::move(field));
  };
  if (width < 1)
    return refuse(fmt::format("beam_width is {}, it must be at least 1", width), "beam_width");
  if (request.sampling.n > width) {
    return refuse(fmt::format("n is {}, more than the {} beams that there are answers of",
                              request.sampling.n, width),
                  "n");
  }
  if (width > options.max_num_seqs) {
    return refuse(fmt::format("beam_width is {}, more than the {} sequences that run at once",
                              width, options.max_num_seqs),
                  "beam_width");
  }
  if (request.sampling.max_tokens < 1) {
    return refuse("max_tokens is 0, and use_beam_search searches for at least one", "max_tokens");
  }
  if (const char* other = outside_of_search(request)) {
    return refuse(fmt::format("use_beam_search does not go with {}", other), "use_beam_search");
  }
  if (options.state_checkpoints) {
    return refuse("use_beam_search is not supported by this model: its layers keep states",
                  "use_beam_search");
  }
  if (options.allocation == KvAllocation::kReserveMax) {
    return refuse(
        "use_beam_search needs --kv-memory paged or virtual: contiguous memory shares "
        "no page",
        "use_beam_search");
  }
  return ok_status();
}

// The last token is sampled, never computed.
int64_t length_computed(const SchedulerOptions& options, int64_t prompt, int32_t tokens) {
  const bool reserves = options.allocation == KvAllocation::kReserveMax;
  return reserves ? options.max_model_len : prompt + std::max(0, tokens - 1);
}

// Of n answers of so many tokens behind one prompt, or of a search of so many beams (0: none).
int64_t pages_for_answers(const SchedulerOptions& options, int64_t prompt, int32_t tokens,
                          int32_t n, int32_t beams) {
  const int64_t length = length_computed(options, prompt, tokens);
  if (beams == 0) {
    return peak_pages_forked(options.groups, prompt, length, options.max_num_batched_tokens, n);
  }
  // Beams that gave way may share no page when they come again, and each copies one to write it.
  const int64_t one = peak_pages(options.groups, length, options.max_num_batched_tokens);
  return beams * (one + static_cast<int64_t>(options.groups.size()));
}

}  // namespace

Status check_options(const SchedulerOptions& options) {
  HR_RETURN_IF_ERROR(require_positive(options.max_num_seqs, "max_num_seqs"));
  HR_RETURN_IF_ERROR(require_positive(options.max_num_batched_tokens, "max_num_batched_tokens"));
  HR_RETURN_IF_ERROR(require_positive(options.max_model_len, "max_model_len"));
  HR_RETURN_IF_ERROR(require_positive(options.max_queued_requests, "max_queued_requests"));
  HR_RETURN_IF_ERROR(require_positive(options.steps_in_flight_max, "steps_in_flight_max"));
  HR_RETURN_IF_ERROR(require_positive(options.cohorts.count, "cohorts"));
  HR_RETURN_IF_ERROR(require_positive(options.block_count, "block_count"));
  HR_RETURN_IF_ERROR(check_groups(options));
  HR_RETURN_IF_ERROR(check_states(options));
  HR_RETURN_IF_ERROR(require_positive(options.promote_after_steps, "promote_after_steps"));
  HR_RETURN_IF_ERROR(require_positive(options.openppl.joining_max, "max_prefill_seqs"));
  if (!(options.mlfq_quantum_seconds >= 0)) {
    return invalid_argument(fmt::format("mlfq_quantum_seconds is {}, it must be at least 0",
                                        options.mlfq_quantum_seconds),
                            "mlfq_quantum_seconds");
  }
  if (options.slo_classes.empty()) return invalid_argument("there is no class", "slo_classes");
  HR_RETURN_IF_ERROR(find_eviction_rule(options.prefix_cache_eviction).status());
  if (!options.chunked_prefill && options.max_num_batched_tokens < options.max_model_len) {
    return invalid_argument(
        fmt::format("without chunked prefill a prompt is one step: max_num_batched_tokens {} must "
                    "be at least max_model_len {}",
                    options.max_num_batched_tokens, options.max_model_len),
        "max_num_batched_tokens");
  }
  return ok_status();
}

int32_t answer_tokens_max(const SchedulerOptions& options, int64_t prompt_tokens, int32_t n,
                          int32_t beams, int32_t most) {
  int32_t low = 1;
  for (int32_t high = most; high > low;) {
    const int32_t tokens = high - (high - low) / 2;
    if (pages_for_answers(options, prompt_tokens, tokens, n, beams) <= options.block_count) {
      low = tokens;
    } else {
      high = tokens - 1;
    }
  }
  return low;
}

int64_t pages_for_request(const SchedulerOptions& options, const Request& request) {
  return pages_for_answers(options, static_cast<int64_t>(request.prompt.size()),
                           request.sampling.max_tokens, request.sampling.n,
                           request.beams ? request.beams->width : 0);
}

Status check_request(const SchedulerOptions& options, const Request& request) {
  const SamplingParams& sampling = request.sampling;
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  if (prompt == 0) return invalid_argument("prompt has no token", "prompt");
  if (request.slo_class < 0 ||
      static_cast<size_t>(request.slo_class) >= options.slo_classes.size()) {
    return invalid_argument(fmt::format("there is no class {}, there are {}", request.slo_class,
                                        options.slo_classes.size()),
                            "slo_class");
  }
  if (sampling.n < 1)
    return invalid_argument(fmt::format("n is {}, it must be at least 1", sampling.n), "n");
  if (sampling.n > options.max_num_seqs) {
    return invalid_argument(fmt::format("n is {}, more than the {} sequences that run at once",
                                        sampling.n, options.max_num_seqs),
                            "n");
  }
  if (sampling.max_tokens < 0) {
    return invalid_argument(
        fmt::format("max_tokens is {}, it must not be negative", sampling.max_tokens),
        "max_tokens");
  }
  if (prompt + sampling.max_tokens > options.max_model_len) {
    return invalid_argument(
        fmt::format(
            "prompt has {} tokens and max_tokens is {}, together more than the context of {}",
            prompt, sampling.max_tokens, options.max_model_len),
        prompt > options.max_model_len ? "prompt" : "max_tokens");
  }
  if (request.beams) HR_RETURN_IF_ERROR(check_beams(options, request));
  if (!request.answered.empty()) HR_RETURN_IF_ERROR(check_answered(request));
  const int64_t pages = pages_for_request(options, request);
  if (pages > options.block_count) {
    return invalid_argument(
        fmt::format(
            "prompt of {} tokens, max_tokens {} and {} {} need {} KV blocks, more than the {} "
            "there are",
            prompt, sampling.max_tokens, request.beams ? "beam_width" : "n", request.sequences(),
            pages, options.block_count),
        prompt > int64_t{sampling.max_tokens} * request.sequences() ? "prompt" : "max_tokens");
  }
  return ok_status();
}

}  // namespace headrace
