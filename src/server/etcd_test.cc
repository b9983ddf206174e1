#include <gtest/gtest.h>

#include "server/etcd_api.h"
#include "server/lease_keeper.h"
#include "text/base64.h"

namespace headrace::etcd_test {
namespace {

TEST(Etcd, AddressesAndBodiesAreWhatItsGatewayTakes) {
  const auto address = parse_etcd_address("10.0.0.9:2379");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->text(), "etcd:10.0.0.9:2379/headrace/");
  EXPECT_EQ(parse_etcd_address("e:1/blue")->prefix, "blue/");
  for (const char* bad : {"", "host", "https://h:1", "http://h:1/x", "h:0:1", "/x"}) {
    const auto refused = parse_etcd_address(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_NE(refused.status().message().find("HOST:PORT"), std::string::npos);
  }
  // All keys that begin with the prefix: up to, and without, "blue0".
  EXPECT_EQ(etcd_range_body("blue/"), R"({"key":")" + encode_base64("blue/") +
                                          R"(","range_end":")" + encode_base64("blue0") + R"("})");
  EXPECT_EQ(etcd_grant_body(10), R"({"TTL":"10"})");
  EXPECT_EQ(etcd_put_body("k", "v", "7"), R"({"key":"aw==","value":"dg==","lease":"7"})");
}

TEST(Etcd, AListingIsRead) {
  const std::string one = encode_base64("http://10.0.0.1:8000"), bad = encode_base64("rm -rf"),
                    path = encode_base64("http://10.0.0.1:8000/x");
  const auto listing = read_etcd_listing(
      R"({"header":{"cluster_id":"14841639068965178418","revision":"9007199254740993"},"kvs":[)"
      R"({"key":"YQ==","create_revision":"2","mod_revision":"3","value":")" +
      one +
      R"("},)"
      R"({"key":"Yg==","mod_revision":"4","value":")" +
      bad +
      R"("},)"
      R"({"key":"Yg==","mod_revision":"4","value":"*"},{"key":"Yg=="},)"
      R"({"key":"Yw==","mod_revision":"5","value":")" +
      path + R"("}],"count":"3"})");
  ASSERT_TRUE(listing.ok());
  EXPECT_EQ(listing->source, 14841639068965178418u);
  EXPECT_EQ(listing->revision, 9007199254740993);
  ASSERT_EQ(listing->members.size(), 1u);
  EXPECT_EQ(listing->members[0].target.host, "10.0.0.1");
  EXPECT_EQ(listing->members[0].life, 3);
  EXPECT_TRUE(read_etcd_listing(R"({"header":{"revision":"1"}})")->members.empty());
  for (const char* body : {"", "{}", "[]", "404 page not found", R"({"error":"x"})"}) {
    EXPECT_FALSE(read_etcd_listing(body).ok()) << body;
  }
}

TEST(Etcd, ALeaseIsRead) {
  EXPECT_EQ(read_etcd_lease(R"({"ID":"7","TTL":"3"})")->id, "7");
  EXPECT_EQ(read_etcd_lease(R"({"result":{"ID":"7","TTL":"3"}})")->ttl_seconds, 3);
  EXPECT_EQ(read_etcd_lease(R"({"result":{"ID":"7"}})")->ttl_seconds, 0);
  EXPECT_FALSE(read_etcd_lease(R"({"error":"etcdserver: no leader","code":14})").ok());
}

TEST(LeaseKeeper, EntersAgainWhenTheLeaseIsGone) {
  using Ask = LeaseKeeper::Ask;
  LeaseKeeper keeper(9);
  EXPECT_EQ(keeper.ask(), Ask::kGrant);
  EXPECT_EQ(keeper.wait_seconds(), 0);
  keeper.on_failed();
  EXPECT_EQ(keeper.ask(), Ask::kGrant);
  EXPECT_EQ(keeper.wait_seconds(), 1);
  keeper.on_granted("7");
  EXPECT_EQ(keeper.ask(), Ask::kPut);
  EXPECT_FALSE(keeper.entered());
  keeper.on_put();
  EXPECT_EQ(keeper.ask(), Ask::kKeepAlive);
  EXPECT_TRUE(keeper.entered());
  EXPECT_EQ(keeper.wait_seconds(), 3);  // two may be lost
  keeper.on_failed();
  EXPECT_EQ(keeper.wait_seconds(), 1);
  keeper.on_kept();
  EXPECT_EQ(keeper.wait_seconds(), 3);
  keeper.on_expired();
  EXPECT_EQ(keeper.ask(), Ask::kGrant);
  EXPECT_EQ(keeper.wait_seconds(), 0);
  keeper.on_granted("8");
  keeper.on_expired();  // before it was used: not in a circle without a pause
  EXPECT_EQ(keeper.ask(), Ask::kGrant);
  EXPECT_EQ(keeper.wait_seconds(), 1);
}

}  // namespace
}  // namespace headrace::etcd_test
