// The flags that say how a loaded model is run: steps, memory, queues, policies.
#pragma once

#include "cli/model_flags.h"

namespace headrace {

// --static-ended-rows, as SchedulerOptions::static_computes_ended_rows.
inline constexpr Named<bool> kEndedRowsComputed[] = {{"computed", true}, {"skipped", false}};

// Adds --max-model-len and all of add_batch_flags().
void add_engine_flags(CLI::App& app, ModelFlags& flags);
// Adds the flags of scheduling and memory: --max-num-seqs, --max-num-batched-tokens, ...
void add_batch_flags(CLI::App& app, ModelFlags& flags);
// Adds --spec-method, --model-draft and what else says who proposes tokens.
void add_speculation_flags(CLI::App& app, ModelFlags& flags);

}  // namespace headrace
