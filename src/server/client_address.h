// Who a client is when limits are counted: its IPv4 address, or the 64 bits of its IPv6 address
// that a provider hands out as a whole; behind a proxy that is trusted, what that says in
// X-Forwarded-For.
#pragma once

#include <utility>  // before asio: Boost 1.74 forgets it

#include <boost/asio/ip/address.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/http_message.h"

namespace headrace {

using IpAddress = boost::asio::ip::address;

// "192.0.2.7", "2001:db8:1:2::/64"; an IPv4 address inside an IPv6 one is that IPv4 address.
std::string address_group(const IpAddress& address);

// X-Forwarded-For becomes the peer's address: what a client says itself of where it is goes.
void tell_peer(HttpRequest& request, const IpAddress& peer);

// A list of addresses and networks.
class AddressNetworks {
 public:
  AddressNetworks() = default;  // empty
  // Of "127.0.0.1", "10.0.0.0/8", "fd00::/8". kInvalidArgument names the one that is none.
  static Result<AddressNetworks> parse(const std::vector<std::string>& texts);
  bool contains(const IpAddress& address) const;

 private:
  struct Network {
    std::vector<unsigned char> bytes;  // 4 or 16
    int bits = 0;                      // of them, that must be the same
  };
  std::vector<Network> networks_;
};

// Counts what each client has open. Any thread.
class ClientAddresses {
 public:
  // What counts as open while it lives; nullptr: the client has as many as it may.
  using Place = std::shared_ptr<void>;

  ClientAddresses(AddressNetworks proxies, int open_max)
      : proxies_(std::move(proxies)), counts_(std::make_shared<Counts>()), open_max_(open_max) {}

  // Whether the peer's connections are not its own but its clients': then their requests count.
  bool is_proxy(const IpAddress& peer) const { return proxies_.contains(peer); }
  Place enter(const IpAddress& client);
  // The client of a request that a proxy passed on: the last address of X-Forwarded-For that is no
  // trusted proxy's, for each proxy adds the one that it sees; what stands before may be invented.
  // The peer itself where there is none.
  IpAddress client_of(const IpAddress& peer, const HttpRequest& request) const;

 private:
  struct Counts {
    std::mutex mutex;
    std::map<std::string, int> open;
  };
  const AddressNetworks proxies_;
  const std::shared_ptr<Counts> counts_;
  const int open_max_;
};

}  // namespace headrace
