#include "route/membership.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace headrace::membership_test {
namespace {

HttpTarget member_target(int place) {
  return {.tls = false, .host = "10.0.0." + std::to_string(place), .port = "80", .path = "/"};
}

struct MembershipTest : testing::Test {
  using Places = std::vector<std::pair<int, int64_t>>;  // with their lives
  Membership::Applied apply(int64_t revision, const Places& places, uint64_t source = 1) {
    MemberListing listing{.source = source, .revision = revision, .members = {}};
    for (const auto& [place, life] : places) {
      listing.members.push_back({member_target(place), life});
    }
    return members.apply(listing);
  }
  std::optional<int> id_of(int place) const {
    return table.find("10.0.0." + std::to_string(place), "80");
  }
  void is_up(int place) { table.report(*id_of(place), {.health = WorkerReport::Health::kReady}); }

  VirtualClock clock;
  WorkerTable table{{}, clock};
  Membership members{table};
};

TEST_F(MembershipTest, WhoIsNamedIsAWorker) {
  apply(5, {{1, 3}, {2, 4}});
  EXPECT_EQ(table.snapshot().size(), 2u);
  const int first = *id_of(1);
  apply(6, {{1, 3}, {3, 6}});
  EXPECT_EQ(id_of(1), first);
  EXPECT_FALSE(id_of(2).has_value());
  EXPECT_TRUE(id_of(3).has_value());
}

TEST_F(MembershipTest, AnOlderAnswerIsNotUsed) {
  apply(5, {{1, 3}});
  EXPECT_EQ(apply(4, {{2, 2}}), Membership::Applied::kOlder);
  EXPECT_TRUE(id_of(1).has_value());
  EXPECT_FALSE(id_of(2).has_value());
  EXPECT_EQ(apply(5, {{1, 3}}), Membership::Applied::kNow);
  // Of another cluster the numbers begin anew.
  EXPECT_EQ(apply(2, {{2, 2}}, 9), Membership::Applied::kNow);
  EXPECT_TRUE(id_of(2).has_value());
}

TEST_F(MembershipTest, WhoHasBegunAnewIsAskedFirst) {
  apply(5, {{1, 3}});
  is_up(1);
  apply(6, {{1, 3}});
  EXPECT_TRUE(table.answers(*id_of(1)));
  apply(7, {{1, 7}});
  EXPECT_FALSE(table.answers(*id_of(1)));  // until a poll is answered
  is_up(1);
  apply(8, {{1, 7}});
  EXPECT_TRUE(table.answers(*id_of(1)));
}

TEST_F(MembershipTest, OfTwoEntriesOfOneAddressTheLaterIsTrue) {
  apply(5, {{1, 4}, {1, 3}});  // of a life before, whose lease has not ended
  is_up(1);
  apply(6, {{1, 3}, {1, 4}});
  EXPECT_TRUE(table.answers(*id_of(1)));
  apply(7, {{1, 4}});
  EXPECT_TRUE(table.answers(*id_of(1)));
  EXPECT_EQ(table.snapshot().size(), 1u);
}

TEST_F(MembershipTest, AListingOfNobodyTakesOnlyThoseWhoDoNotAnswer) {
  apply(5, {{1, 3}, {2, 4}});
  is_up(1);
  apply(6, {});
  EXPECT_TRUE(id_of(1).has_value());
  EXPECT_FALSE(id_of(2).has_value());
  apply(7, {{3, 7}});  // it knows somebody: then the others are gone
  EXPECT_FALSE(id_of(1).has_value());
}

TEST_F(MembershipTest, WhoWasThereBeforeStays) {
  const int id = table.add(member_target(1));
  apply(5, {{1, 3}, {2, 4}});
  apply(6, {{2, 4}});
  EXPECT_EQ(id_of(1), id);  // the operator's
  table.remove(*id_of(2));  // by the operator, who does not rule over etcd
  apply(7, {{2, 4}});
  EXPECT_TRUE(id_of(2).has_value());
}

}  // namespace
}  // namespace headrace::membership_test
