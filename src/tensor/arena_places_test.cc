#include "tensor/arena_places.h"

#include <gtest/gtest.h>

#include <array>

namespace headrace::arena_places_test {
namespace {

struct Parts {
  ArenaPart<int32_t> ids;
  TensorPart rows;
  ArenaPart<std::byte> rest;

  static Parts place(ArenaPlaces& places) {
    Parts parts;
    parts.ids = places.take<int32_t>(3);
    parts.rows = places.take_tensor(DType::kF16, Shape{2, 5});
    parts.rest = places.take<std::byte>(1);
    return parts;
  }
};

TEST(ArenaPlaces, PartsBeginOnTheAlignment) {
  ArenaPlaces places(16);
  const Parts parts = Parts::place(places);
  EXPECT_EQ(parts.ids.first, 0);
  EXPECT_EQ(parts.rows.first, 16);
  EXPECT_EQ(parts.rest.first, 48);
  EXPECT_EQ(places.used(), 49);
  EXPECT_EQ(places.part_bytes(), 12 + 20 + 1);
}

// Whatever comes before them in the same memory.
TEST(ArenaPlaces, WhatIsCountedHoldsThePartsBehindOthers) {
  ArenaPlaces counted;
  Parts::place(counted);
  EXPECT_EQ(counted.bytes_for(3), 33 + 3 * ArenaPlaces::kAlignment);
  for (size_t before = 0; before < 600; ++before) {
    ArenaPlaces places;
    places.take<std::byte>(before);
    Parts::place(places);
    EXPECT_LE(places.used(), static_cast<int64_t>(before) + counted.bytes_for(3));
  }
  EXPECT_DEATH(counted.bytes_for(2), "");
}

TEST(ArenaPlaces, APartKnowsItsMemory) {
  alignas(64) std::array<std::byte, 128> arena;
  ArenaPlaces places(16);
  const Parts parts = Parts::place(places);
  EXPECT_EQ(reinterpret_cast<std::byte*>(parts.ids.in(arena.data())), arena.data());
  const TensorView rows = parts.rows.in(arena.data());
  EXPECT_EQ(rows.data, arena.data() + 16);
  EXPECT_EQ(rows.row_stride, 10);
  EXPECT_EQ(parts.ids.bytes(), 12);
}

}  // namespace
}  // namespace headrace::arena_places_test
