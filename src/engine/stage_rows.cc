#include "engine/stage_rows.h"

#include <utility>

#include "base/check.h"
#include "engine/step_scratch.h"
#include "tensor/peer_access.h"

namespace headrace {
namespace {

int64_t place_bytes(const Model& model, int32_t rows_max) {
  ArenaPlaces places;
  place_hidden(places, model, rows_max);
  place_hidden(places, model, 0);  // where the next place begins
  return places.used();
}

// Rows go directly where the two can; nothing has to be done on a null device, or on one GPU.
Status link(const Device& from, const Device& to) {
  const int sender = from.traits().index, receiver = to.traits().index;
  if (from.kind() != DeviceKind::kCuda || sender == receiver) return ok_status();
  return reach_peer(sender, receiver).status();
}

// Of rows that lie side by side.
int64_t bytes_of(const TensorView& rows) { return rows.rows() * rows.row_stride; }

}  // namespace

int64_t StageRows::bytes(const Model& model, int32_t rows_max, int steps) {
  return steps * place_bytes(model, rows_max);
}

Result<std::unique_ptr<StageRows>> StageRows::create(Device& from, Device& to, const Model& model,
                                                     int32_t rows_max, int steps) {
  HR_ASSIGN_OR_RETURN(Buffer memory, to.allocate(bytes(model, rows_max, steps)));
  HR_RETURN_IF_ERROR(link(from, to));
  std::byte* const first = memory.data();
  std::unique_ptr<StageRows> rows(new StageRows(std::move(memory), steps));
  const std::unique_ptr<Stream> stream = from.create_stream();
  for (size_t i = 0; i < rows->places_.size(); ++i) {
    const auto before = static_cast<int64_t>(i) * place_bytes(model, rows_max);
    rows->places_[i] = {.rows = first + before, .sent = stream->create_timer()};
  }
  return rows;
}

void StageRows::send(Stream& stream, Ticket ticket, TensorView hidden) {
  Place& place = places_[ticket.value % places_.size()];
  place.ticket = ticket;
  place.bytes = bytes_of(hidden);
  CHECK(place.bytes <= memory_.size() / std::ssize(places_));
  stream.copy(place.rows, hidden.data, place.bytes);
  stream.record(*place.sent);
}

void StageRows::await(Stream& stream, Ticket ticket) const {
  CHECK(holds(ticket));
  stream.wait(*place_of(ticket).sent);
}

void StageRows::take(Stream& stream, Ticket ticket, TensorView hidden) const {
  const Place& place = place_of(ticket);
  CHECK(place.bytes <= bytes_of(hidden));
  stream.copy(hidden.data, place.rows, place.bytes);
  stream.fill_zero(hidden.data + place.bytes, bytes_of(hidden) - place.bytes);
}

}  // namespace headrace
