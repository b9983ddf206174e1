// StepGraphs: recordings of steps that only decode, one for each padded number of rows. The first
// step of a shape runs as it is (kernels are loaded, algorithms chosen), the second is recorded,
// all later ones are one launch a stage.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

enum class StepStage { kForward, kSample };

class StepGraphs {
 public:
  // What the launches of a step depend on.
  struct Shape {
    int32_t rows = 0;           // padded
    uint32_t merge_groups = 0;  // bit g: attention of KV group g merges splits
    friend auto operator<=>(const Shape&, const Shape&) = default;
  };

  // The rows that a step of `rows` decodes is padded to: powers of two up to 8, then eights, then
  // sixteens from 64 on; 0: too many for a recording.
  static int32_t padded_rows(int32_t rows, int32_t rows_max);

  // Runs `body`, which starts the stage's work on the stream, or replays what it started before.
  // An error is of the recording; the work has then been started all the same.
  template <class Body>
  Status run(Stream& stream, const Shape& shape, StepStage stage, const Body& body) {
    Recording& recording = recordings_[{shape, stage}];
    if (recording.graph == nullptr && recording.seen++ != 1) {
      body();
      return ok_status();
    }
    if (recording.graph == nullptr) {
      if (const Status status = stream.begin_capture(); !status.ok()) {
        body();
        return status;
      }
      body();
      auto graph = stream.end_capture();
      if (!graph.ok()) {
        body();
        return graph.status();
      }
      recording.graph = std::move(graph).value();
    }
    stream.launch(*recording.graph);
    return ok_status();
  }

  void clear() { recordings_.clear(); }  // addresses have changed. REQUIRES: no replay is running

 private:
  struct Recording {
    std::unique_ptr<Graph> graph;
    int64_t seen = 0;
  };
  std::map<std::pair<Shape, StepStage>, Recording> recordings_;
};

}  // namespace headrace
