#include "server/client_address.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace headrace::client_address_test {
namespace {

IpAddress ip(std::string_view text) { return boost::asio::ip::make_address(std::string(text)); }

TEST(ClientAddress, ASixtyFourIsOneClient) {
  EXPECT_EQ(address_group(ip("192.0.2.7")), "192.0.2.7");
  EXPECT_EQ(address_group(ip("::ffff:192.0.2.7")), "192.0.2.7");
  EXPECT_EQ(address_group(ip("2001:db8:1:2::1")), "2001:db8:1:2::/64");
  EXPECT_EQ(address_group(ip("2001:db8:1:2:ffff:ffff:ffff:ffff")), "2001:db8:1:2::/64");
  EXPECT_NE(address_group(ip("2001:db8:1:3::1")), address_group(ip("2001:db8:1:2::1")));
  ClientAddresses addresses({}, 2);
  const auto one = addresses.enter(ip("2001:db8:1:2::1"));
  auto two = addresses.enter(ip("2001:db8:1:2::2"));
  EXPECT_TRUE(one && two);
  EXPECT_FALSE(addresses.enter(ip("2001:db8:1:2:3::")));
  EXPECT_TRUE(addresses.enter(ip("2001:db8:1:3::1")));
  two.reset();
  EXPECT_TRUE(addresses.enter(ip("2001:db8:1:2::3")));
}

TEST(ClientAddress, NetworksAreComparedBitByBit) {
  const auto networks = AddressNetworks::parse({"10.1.0.0/20", "127.0.0.1", "fd00::/7"});
  ASSERT_TRUE(networks.ok()) << networks.status().message();
  for (const char* inside :
       {"10.1.0.0", "10.1.15.255", "127.0.0.1", "::ffff:10.1.2.3", "fc00::1"}) {
    EXPECT_TRUE(networks->contains(ip(inside))) << inside;
  }
  for (const char* outside : {"10.1.16.0", "10.0.255.255", "127.0.0.2", "::1", "fe00::1"}) {
    EXPECT_FALSE(networks->contains(ip(outside))) << outside;
  }
  EXPECT_TRUE(AddressNetworks::parse({"0.0.0.0/0"})->contains(ip("8.8.8.8")));
  for (const char* bad : {"", "proxy", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.0/8x"}) {
    EXPECT_FALSE(AddressNetworks::parse({bad}).ok()) << bad;
  }
}

TEST(ClientAddress, OnlyWhatTrustedProxiesAddedIsBelieved) {
  const ClientAddresses addresses(AddressNetworks::parse({"10.0.0.0/8"}).value(), 1);
  const auto client = [&](std::string_view peer, std::vector<HttpHeader> headers) {
    HttpRequest request;
    request.headers = std::move(headers);
    return addresses.client_of(ip(peer), request).to_string();
  };
  const auto forwarded = [](std::string value) { return HttpHeader{"x-forwarded-for", value}; };
  EXPECT_EQ(client("10.0.0.1", {}), "10.0.0.1");
  EXPECT_EQ(client("10.0.0.1", {forwarded("192.0.2.1")}), "192.0.2.1");
  EXPECT_EQ(client("10.0.0.1", {forwarded("192.0.2.99, 192.0.2.1")}), "192.0.2.1") << "invented";
  EXPECT_EQ(client("10.0.0.1", {forwarded("192.0.2.1 , 10.0.0.2")}), "192.0.2.1");
  EXPECT_EQ(client("10.0.0.1", {forwarded("192.0.2.99"), forwarded("192.0.2.1")}), "192.0.2.1");
  EXPECT_EQ(client("10.0.0.1", {forwarded("192.0.2.1, unknown")}), "10.0.0.1");
  EXPECT_EQ(client("10.0.0.1", {forwarded("2001:db8::1")}), "2001:db8::1");
  EXPECT_EQ(client("192.0.2.5", {forwarded("192.0.2.1")}), "192.0.2.5") << "no proxy";
}

// Without --trusted-proxy its clients would share one bound; here each has its own, and the proxy's
// connections have none.
TEST(ClientAddress, ClientsBehindAProxyHaveABoundEach) {
  ServerOptions options;
  options.http.connections_per_address_max = 2;
  options.trusted_proxies = {"127.0.0.1"};
  ServerFixture f({.step_seconds = 0.005}, "", options);
  constexpr std::string_view kLong = R"({"prompt":"a","max_tokens":4000,"stream":true})";
  const auto open = [&](std::string_view client) {
    auto connection = std::make_unique<TestClient>(f.server->port());
    connection->send(
        fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {}\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    kCompletions, client, kLong.size(), kLong));
    return connection;
  };
  std::vector<std::unique_ptr<TestClient>> streams;
  for (const char* client : {"192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"}) {
    streams.push_back(open(client));
    EXPECT_EQ(streams.back()->receive(12), "HTTP/1.1 200") << client;
  }
  const auto ask = [&](std::string_view client) {
    return f.get("/health", fmt::format("X-Forwarded-For: {}\r\n", client)).status;
  };
  EXPECT_EQ(ask("192.0.2.1"), 429);
  EXPECT_EQ(ask("192.0.2.2"), 200);
  EXPECT_EQ(ask("192.0.2.9, 192.0.2.1"), 429);
  streams.clear();
  EXPECT_TRUE(eventually([&] { return ask("192.0.2.1") == 200; }));
}

}  // namespace
}  // namespace headrace::client_address_test
