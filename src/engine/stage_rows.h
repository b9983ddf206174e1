// StageRows: the hidden rows of steps on their way from one stage of a model
// (staged_device_runner.h) to the next, in memory of the next one's device. A step in flight has a
// place of its own, so that nobody waits before writing it: the step that had it before has ended.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "models/model.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace headrace {

// Used by the engine thread.
class StageRows {
 public:
  static int64_t bytes(const Model& model, int32_t rows_max, int steps);
  // For steps of up to `rows_max` rows of `model`, so many in flight. Both devices outlive it.
  static Result<std::unique_ptr<StageRows>> create(Device& from, Device& to, const Model& model,
                                                   int32_t rows_max, int steps);

  // Sends `hidden` [rows, D], which lies on the first device, behind what is on its stream.
  void send(Stream& stream, Ticket ticket, TensorView hidden);
  // Whether the rows of this step were sent: a stage that failed sends none.
  bool holds(Ticket ticket) const { return place_of(ticket).ticket == ticket; }
  // What follows on a stream of the second device runs when the rows have come. REQUIRES: holds()
  void await(Stream& stream, Ticket ticket) const;
  // Copies the rows that have come to the front of `hidden`; the rows behind them become zeros.
  void take(Stream& stream, Ticket ticket, TensorView hidden) const;

 private:
  struct Place {
    std::byte* rows = nullptr;
    Ticket ticket;                // of the step that has it
    int64_t bytes = 0;            // of the step's rows
    std::unique_ptr<Event> sent;  // of a stream of the first device
  };
  StageRows(Buffer memory, int steps)
      : memory_(std::move(memory)), places_(static_cast<size_t>(steps)) {}
  const Place& place_of(Ticket ticket) const { return places_[ticket.value % places_.size()]; }

  const Buffer memory_;
  std::vector<Place> places_;  // [steps]
};

}  // namespace headrace
