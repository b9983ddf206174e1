// Matrices that files have in forms of their own. Of DeepSeek V4: one of integers. Of experts of
// gpt-oss: one matrix of a stack, of which gates and ups may lie by turns, either turned, [experts,
// columns, rows], or as MXFP4, [experts, rows, blocks, 16] with a tensor of scales. Of GPT-2: one
// that is turned, [columns, rows].
#pragma once

#include <memory>

#include "weights/hf_names.h"
#include "weights/hub_matrix.h"

namespace headrace {

// Which matrix of a stack, and which of its rows: those from `first` on, each `step`-th.
struct ExpertRowsOf {
  int64_t expert = 0;
  int64_t first = 0;
  int64_t step = 1;
  int64_t parts = 1;  // of the rows these are one of so many parts, neighbours from `first` on
};

// The matrices in `tensors.quants`; errors as HubMatrix::create(): a tensor of another form.
Result<int64_t> hub_expert_count(const HubTensors& tensors, HfForm form, int64_t step);
// REQUIRES: hub_expert_count() took the same
std::unique_ptr<HubMatrix> open_hub_expert(const HubTensors& tensors, HfForm form,
                                           const ExpertRowsOf& rows);
// Of a tensor [columns, rows]; errors as HubMatrix::create().
Result<std::unique_ptr<HubMatrix>> open_turned_matrix(const SafetensorsTensor& tensor);
// Of integers; F32 has those below 2^24 as they are. Errors likewise.
Result<std::unique_ptr<HubMatrix>> open_integer_matrix(const SafetensorsTensor& tensor);

}  // namespace headrace
