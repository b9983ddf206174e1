#include "stack/draft_model.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "sched/draft_source.h"
#include "stack/compute_choice.h"
#include "stack/kv_format_choice.h"
#include "stack/memory_planning.h"
#include "stack/model_device.h"
#include "weights/gguf.h"

namespace headrace {
namespace {

Status check_tree_on(const DeviceOptions& device, const ProposalOptions& proposals) {
  HR_RETURN_IF_ERROR(check_tree(proposals));
  if (proposals.tree_width == 1 || !takes_gpu(device)) return ok_status();
  return unsupported(
      "--spec-tree-width: attention on a GPU takes no trees: use --device cpu, or leave it out",
      "spec-tree-width");
}

Status check_beside_draft(const StackOptions& options) {
  const auto refuse = [](std::string_view flag, std::string_view remedy) {
    return unsupported(
        fmt::format("--model-draft: a draft model does not go with {}: {}", flag, remedy),
        "model-draft");
  };
  const bool gpu = takes_gpu(options.device);
  const ProposalMethod method = options.engine.scheduler.proposals.method;
  if (gpu && method == ProposalMethod::kMedusa) {
    return refuse("a GPU where it is Medusa heads",
                  "use --device cpu, or leave the draft out: answers are the same");
  }
  const std::optional<KvFormat> small = small_kv_format(options.kv_formats);
  if (gpu && is_head(method) && small) {
    return refuse(fmt::format("--kv-cache-dtype {} where it is a head, whose features have 16 bits",
                              name_of(kKvFormats, small)),
                  "leave one of them out");
  }
  if (!gpu && is_head(method) && small == KvFormat::kInt4) {
    return refuse("--kv-cache-dtype int4 where it is a head, whose features 4 bits do not hold",
                  "use int8 or f16, or leave the draft out");
  }
  if (options.device.tensor_parallel_size > 1) {
    return refuse("--tensor-parallel-size", "one rank computes both");
  }
  if (options.tiers.host_gib > 0) return refuse("--kv-offloading-size", "leave one of them out");
  if (options.tiers.disk_gib > 0) return refuse("--kv-disk-size", "leave one of them out");
  if (!options.engine.kv_save_path.empty()) return refuse("--kv-save", "leave one of them out");
  if (options.runner.kv_memory != KvMemoryKind::kPaged) {
    return refuse("--kv-memory virtual or contiguous", "its pages are --kv-memory paged");
  }
  return ok_status();
}

// Its layers share pages that keep all tokens, and on a GPU layers of one kind of pages are cut
// alike.
Status check_windows(const ModelSpec& spec, const std::string& draft) {
  for (const LayerKv& kv : spec.kv) {
    if (kv.window == spec.kv.front().window) continue;
    return unsupported(
        fmt::format("{}: some of its layers have windows and others none, which a GPU does not "
                    "take of a draft model: use --device cpu, or another draft",
                    draft),
        "model-draft");
  }
  return ok_status();
}

bool is_padding(const Vocab& vocab, size_t id) {
  return vocab.kind(static_cast<TokenId>(id)) == TokenKind::kUnused;
}

Status check_vocabulary(const DraftTarget& target, int32_t vocab_size, const ModelSource& source) {
  const ModelText text = read_tokenizer_alone(source);
  HR_RETURN_IF_ERROR(refusal(text.problems));
  if (target.tokenizer != nullptr && text.tokenizer != nullptr) {
    // Added tokens behind its rows are left out, as the target's are (make_agree()).
    Vocab draft = text.tokenizer->vocab();
    const auto rows = static_cast<size_t>(vocab_size);
    if (draft.tokens.size() > rows && has_only_added_tokens_from(draft, rows)) {
      cut_vocab(draft, rows);
    }
    return check_same_tokens(target.tokenizer->vocab(), draft);
  }
  if (target.vocab_size == vocab_size) return ok_status();
  return invalid_argument(
      fmt::format("it has {} tokens, and the model that it is to propose for has {}", vocab_size,
                  target.vocab_size));
}

}  // namespace

Status check_same_tokens(const Vocab& model, const Vocab& draft) {
  const size_t both = std::min(model.tokens.size(), draft.tokens.size());
  for (size_t id = 0; id < both; ++id) {
    if (model.tokens[id] == draft.tokens[id]) continue;
    if (is_padding(model, id) && is_padding(draft, id)) continue;
    return invalid_argument(
        fmt::format("token {} is '{}', and '{}' in the model that it is to propose for: a draft "
                    "model has the same tokens (one of the same family)",
                    id, printable(draft.tokens[id]), printable(model.tokens[id])));
  }
  for (const Vocab* longer : {&model, &draft}) {
    for (size_t id = both; id < longer->tokens.size(); ++id) {
      if (is_padding(*longer, id)) continue;
      return invalid_argument(fmt::format(
          "token {} '{}' is {}: a draft model has the same tokens (one of the same family)", id,
          printable(longer->tokens[id]),
          longer == &model ? "only in the model that it is to propose for" : "its alone"));
    }
  }
  return ok_status();
}

Status prepare_draft_options(StackOptions& options) {
  ProposalOptions& proposals = options.engine.scheduler.proposals;
  if (options.draft_model.empty()) {
    if (!drafts_in_runner(proposals.method)) return check_tree_on(options.device, proposals);
    return invalid_argument(fmt::format("{} needs a draft: --model-draft FILE",
                                        name_of(kProposalMethods, proposals.method)),
                            "spec-method");
  }
  if (proposals.method == ProposalMethod::kNgram) {
    return invalid_argument("--model-draft and --spec-method ngram are two ways: choose one",
                            "model-draft");
  }
  const ProposalMethod found = method_of_draft(options.draft_model);
  if (proposals.method != ProposalMethod::kNone && proposals.method != found) {
    return invalid_argument(
        fmt::format("{}: its files are of method {}, not {}", options.draft_model,
                    name_of(kProposalMethods, found), name_of(kProposalMethods, proposals.method)),
        "spec-method");
  }
  proposals.method = found;
  HR_RETURN_IF_ERROR(check_tree_on(options.device, proposals));
  return check_beside_draft(options);
}

Result<DraftModel> load_draft_model(const StackOptions& options, const DraftTarget& target,
                                    Device& device) {
  const ProposalOptions& proposals = options.engine.scheduler.proposals;
  const auto named = [&](const Status& status) { return status.with_context(options.draft_model); };
  DraftModel draft;
  if (is_head(proposals.method)) {
    HR_ASSIGN_OR_RETURN(
        draft.head, load_draft_head(options.draft_model, proposals.method, proposals.draft_vocab,
                                    {.spec = *target.spec,
                                     .weights = target.weights,
                                     .served_length = target.config.served_length,
                                     .compute = target.compute},
                                    device));
    return draft;
  }
  auto source = open_model_source(options.draft_model);
  if (!source.ok()) return source.status().with_context("--model-draft");
  draft.source = std::move(source).value();
  draft.weights = read_weights(*draft.source, options.load, device.pool().thread_count());
  ModelConfig& config = draft.weights.config;
  if (Status status = refusal(draft.weights.problems); !status.ok()) return named(status);
  if (has_states(config)) {
    return named(unsupported("its layers keep states, which do not undo a rejected proposal"));
  }
  if (has_joined_layers(config)) {
    return named(unsupported("its layers leave rows to later ones, which a draft does not yet"));
  }
  if (!config.head.generates()) return named(unsupported("the model generates no text"));
  if (config.context_length_max < target.config.served_length) {
    return named(invalid_argument(fmt::format(
        "its context of {} tokens is shorter than the {} that are served: --max-model-len {}",
        config.context_length_max, target.config.served_length, config.context_length_max)));
  }
  config.served_length = target.config.served_length;
  HR_ASSIGN_OR_RETURN(const ModelSpec spec, draft.weights.architecture->parse(config));
  if (Status status = check_vocabulary(target, spec.vocab_size, *draft.source); !status.ok()) {
    return named(status);
  }
  StackOptions of_draft = options;
  of_draft.model = options.draft_model;
  HR_RETURN_IF_ERROR(check_load_memory(of_draft, draft.weights, device, /*packed_in_file=*/false));
  const int32_t both = std::min(spec.vocab_size, target.vocab_size);
  ModelLoadOptions load{.compute = target.compute, .quantise_to = options.load.quantise_to};
  load.output_rows = proposals.draft_vocab > 0 ? std::min(proposals.draft_vocab, both) : both;
  if (device.kind() == DeviceKind::kCuda) {
    HR_RETURN_IF_ERROR(check_windows(spec, options.draft_model));
    HR_RETURN_IF_ERROR(
        check_gpu_kv(options.kv_formats, options.draft_model, spec, options.runner.kv_memory));
    load.unpack_blocks = unpacks_blocks(options.load, draft.weights, device.traits());
    load.pack_experts = packs_experts(options.load, draft.weights, device.traits(),
                                      options.device.tensor_parallel_size);
  }
  auto model = draft.weights.architecture->load(config, *draft.weights.weights, device, load);
  if (!model.ok()) return named(model.status());
  draft.model = std::move(model).value();
  draft.source->release_pages();
  return draft;
}

}  // namespace headrace
