// The answers of a search that the oracle's model gives: beams as plain lists of tokens, without
// pages, steps or a scheduler.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sched/beam_search.h"
#include "sched/request.h"
#include "sim/oracle_device.h"

namespace headrace {

// As a client sent it some requests, drawn from `seed` and not from the world's own numbers, are
// searches, with up to `width_max` beams. Returns whether this is one.
bool make_search(Request& request, uint64_t seed, int32_t width_max);

// The request's answers, best first; at most as many as beams. `request` as a client sent it.
std::vector<BeamAnswer> oracle_search(const OracleModel& model, Request request,
                                      std::span<const TokenId> end_ids, int32_t max_model_len);

// What is wrong in the news of a search that has these answers; empty: nothing.
std::string wrong_in_answer(const std::vector<BeamAnswer>& answers, const Emission& emission);

}  // namespace headrace
