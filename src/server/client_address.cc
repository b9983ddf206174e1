#include "server/client_address.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "server/header_text.h"

namespace headrace {
namespace {

namespace ip = boost::asio::ip;

constexpr int kGroupBytes = 8;  // of an IPv6 address: a /64

// IPv4 inside IPv6 (::ffff:192.0.2.7) is what a socket of both kinds shows.
IpAddress plain(const IpAddress& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return ip::make_address_v4(ip::v4_mapped, address.to_v6());
}

std::vector<unsigned char> bytes_of(const IpAddress& address) {
  const IpAddress own = plain(address);
  if (own.is_v4()) {
    const auto bytes = own.to_v4().to_bytes();
    return {bytes.begin(), bytes.end()};
  }
  const auto bytes = own.to_v6().to_bytes();
  return {bytes.begin(), bytes.end()};
}

std::optional<IpAddress> parse_address(std::string_view text) {
  boost::system::error_code error;
  const IpAddress address = ip::make_address(std::string(text), error);
  return error ? std::nullopt : std::optional(address);
}

bool same_bits(std::span<const unsigned char> a, std::span<const unsigned char> b, int bits) {
  const auto whole = static_cast<size_t>(bits / 8);
  if (!std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(whole), b.begin()))
    return false;
  const int rest = bits % 8;
  return rest == 0 || ((a[whole] ^ b[whole]) >> (8 - rest)) == 0;
}

// Of all X-Forwarded-For headers, in order: a proxy may add a line of its own.
std::vector<std::string_view> forwarded_for(const HttpRequest& request) {
  std::vector<std::string_view> hops;
  for (const HttpHeader& header : request.headers) {
    if (header.name != "x-forwarded-for") continue;
    for (std::string_view rest = header.value; !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      hops.push_back(trim(rest.substr(0, comma)));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return hops;
}

}  // namespace

std::string address_group(const IpAddress& address) {
  const IpAddress own = plain(address);
  if (own.is_v4()) return own.to_string();
  ip::address_v6::bytes_type bytes = own.to_v6().to_bytes();
  std::fill(bytes.begin() + kGroupBytes, bytes.end(), 0);
  return ip::address_v6(bytes).to_string() + "/64";
}

void tell_peer(HttpRequest& request, const IpAddress& peer) {
  constexpr std::string_view kName = "x-forwarded-for";
  std::erase_if(request.headers, [&](const HttpHeader& each) { return each.name == kName; });
  request.headers.push_back({std::string(kName), peer.to_string()});
}

Result<AddressNetworks> AddressNetworks::parse(const std::vector<std::string>& texts) {
  AddressNetworks result;
  for (const std::string& text : texts) {
    const size_t slash = std::min(text.find('/'), text.size());
    const auto address = parse_address(std::string_view(text).substr(0, slash));
    Network network;
    if (address) network.bytes = bytes_of(*address);
    const int bits_max = static_cast<int>(network.bytes.size()) * 8;
    network.bits = bits_max;
    bool good = address.has_value();
    if (good && slash < text.size()) {
      const char* end = text.data() + text.size();
      const auto [read_to, error] = std::from_chars(text.data() + slash + 1, end, network.bits);
      good =
          error == std::errc() && read_to == end && 0 <= network.bits && network.bits <= bits_max;
    }
    if (!good) {
      return invalid_argument(
          fmt::format("\"{}\" is neither an IP address nor a network such as 10.0.0.0/8", text));
    }
    result.networks_.push_back(std::move(network));
  }
  return result;
}

bool AddressNetworks::contains(const IpAddress& address) const {
  const std::vector<unsigned char> bytes = bytes_of(address);
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
    return network.bytes.size() == bytes.size() && same_bits(network.bytes, bytes, network.bits);
  });
}

ClientAddresses::Place ClientAddresses::enter(const IpAddress& client) {
  std::string group = address_group(client);
  std::lock_guard lock(counts_->mutex);
  int& open = counts_->open[group];
  if (open >= open_max_) return nullptr;
  ++open;
  return Place(counts_.get(), [counts = counts_, group = std::move(group)](void*) {
    std::lock_guard leaving(counts->mutex);
    const auto entry = counts->open.find(group);
    if (--entry->second == 0) counts->open.erase(entry);
  });
}

IpAddress ClientAddresses::client_of(const IpAddress& peer, const HttpRequest& request) const {
  IpAddress client = peer;
  const std::vector<std::string_view> hops = forwarded_for(request);
  for (auto hop = hops.rbegin(); hop != hops.rend() && is_proxy(client); ++hop) {
    const auto address = parse_address(*hop);
    if (!address) break;
    client = *address;
  }
  return client;
}

}  // namespace headrace
