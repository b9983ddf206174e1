// StageSeat: what the runner of one stage has of its neighbours, where a model's layers are shared
// out over GPUs (staged_device_runner.h). A model that is whole is its first stage and its last.
#pragma once

#include <optional>

#include "engine/stage_rows.h"
#include "models/model.h"

namespace headrace {

struct StageSeat {
  std::optional<LayerRange> layers = {};  // its own; none: all
  StageRows* before = nullptr;            // brings the rows; null: it begins with tokens
  StageRows* behind = nullptr;            // takes them further; null: it samples

  bool samples() const { return behind == nullptr; }
};

}  // namespace headrace
