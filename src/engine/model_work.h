// What steps take of a device, estimated from the sizes of the model: arithmetic of matrices and
// attention, bytes of weights and of keys and values. Scans of states, norms and the rows between
// layers are left out: next to these they are little.
#pragma once

#include <cstdint>
#include <vector>

#include "sched/step_plan.h"

namespace headrace {

// Of a device: where several share a model, its part.
struct ModelWork {
  // Layers that attend alike.
  struct Attention {
    int32_t window = 0;             // tokens that a row sees; 0: all
    double operations_per_key = 0;  // of a row and a key
    double key_bytes = 0;           // of a token's keys and values
  };
  // A token takes `used` of `count` experts.
  struct Experts {
    double operations_per_row = 0;  // of those that a row takes
    double bytes = 0;               // of all
    double used_share = 1;
  };
  double operations_per_row = 0;     // of the matrices that all rows take, without the output's
  double operations_per_logits = 0;  // of the output matrix
  double weight_bytes = 0;           // of these matrices
  double output_bytes = 0;           // and of that one
  Experts experts;
  std::vector<Attention> attention;
};

// A multiplication and an addition are two operations.
struct StepWork {
  double operations = 0, read_bytes = 0, written_bytes = 0;

  StepWork& operator+=(const StepWork& other) {
    operations += other.operations;
    read_bytes += other.read_bytes;
    written_bytes += other.written_bytes;
    return *this;
  }
};

// Each matrix is read once a step; of experts those that some row is expected to take where all are
// as likely. A chunk reads the keys that it sees once.
StepWork work_of(const StepPlan& plan, const ModelWork& model);

}  // namespace headrace
