// RankSeat: what the runner of one rank has of the others. A model that is whole has one alone.
#pragma once

#include "engine/rank_meeting.h"
#include "tensor/communicator.h"

namespace headrace {

// Both null of a model that is whole.
struct RankLink {
  Communicator* group = nullptr;
  RankMeeting* meeting = nullptr;
};

class RankSeat {
 public:
  explicit RankSeat(RankLink link)
      : link_(link),
        lone_(link.group == nullptr ? 0 : link.group->rank(),
              link.group == nullptr ? 1 : link.group->size()),
        mesh_{link.group == nullptr ? &alone_ : link.group, &alone_, &alone_},
        lone_mesh_{&lone_, &alone_, &alone_} {}
  RankSeat(const RankSeat&) = delete;
  RankSeat& operator=(const RankSeat&) = delete;

  bool is_alone() const { return link_.group == nullptr; }
  Mesh& mesh() { return mesh_; }
  // In which no collective waits for another rank, or has what the others bring.
  Mesh& lone_mesh() { return lone_mesh_; }
  // Of the collectives so far.
  Status status() const { return mesh_.tensor->status(); }
  // As of RankMeeting: what ranks decide by a number, all decide alike.
  double largest(double own) const {
    return link_.meeting == nullptr ? own : link_.meeting->largest(own);
  }
  // Returns when all have come.
  void meet() const { largest(0); }
  // This rank goes on no more.
  void leave() const {
    if (link_.meeting != nullptr) link_.meeting->leave();
  }

 private:
  const RankLink link_;
  SingleRank alone_;
  LoneRank lone_;
  Mesh mesh_, lone_mesh_;
};

}  // namespace headrace
