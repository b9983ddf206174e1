#include "server/etcd_api.h"

#include <cstdlib>

#include <fmt/format.h>

#include "base/json.h"
#include "text/base64.h"

namespace headrace {
namespace {

constexpr std::string_view kUsualPrefix = "headrace/";

// Its 64-bit numbers are strings.
int64_t etcd_number(const Json* value) {
  if (value == nullptr) return 0;
  if (value->is_int()) return value->as_int();
  return value->is_string() ? std::strtoll(value->as_string().c_str(), nullptr, 10) : 0;
}

std::string decoded(const Json* value) {
  if (value == nullptr || !value->is_string()) return {};
  return decode_base64(value->as_string()).value_or(std::string());
}

// The first key behind all that begin with the prefix.
std::string end_of(std::string prefix) {
  ++prefix.back();  // '/' becomes '0'
  return prefix;
}

}  // namespace

std::string EtcdAddress::text() const {
  return fmt::format("etcd:{}:{}/{}", target.host, target.port, prefix);
}

Result<EtcdAddress> parse_etcd_address(std::string_view text) {
  const Result<HttpTarget> target = parse_http_url("http://" + std::string(text));
  const bool has_port = text.substr(0, text.find('/')).find(':') != text.npos;
  if (!target.ok() || !has_port || text.starts_with("http")) {
    return invalid_argument(
        fmt::format("{}: must be HOST:PORT or HOST:PORT/PREFIX of an etcd without TLS", text));
  }
  EtcdAddress address{.target = *target, .prefix = target->path.substr(1)};
  address.target.path = "/";
  if (address.prefix.empty()) address.prefix = kUsualPrefix;
  if (!address.prefix.ends_with('/')) address.prefix += '/';
  return address;
}

std::string etcd_range_body(std::string_view prefix) {
  Json body = Json::object();
  body.set("key", encode_base64(prefix))
      .set("range_end", encode_base64(end_of(std::string(prefix))));
  return write_json(body);
}

std::string etcd_grant_body(int64_t ttl_seconds) {
  Json body = Json::object();
  body.set("TTL", std::to_string(ttl_seconds));
  return write_json(body);
}

std::string etcd_lease_body(std::string_view lease) {
  Json body = Json::object();
  body.set("ID", lease);
  return write_json(body);
}

std::string etcd_put_body(std::string_view key, std::string_view value, std::string_view lease) {
  Json body = Json::object();
  body.set("key", encode_base64(key)).set("value", encode_base64(value)).set("lease", lease);
  return write_json(body);
}

Result<MemberListing> read_etcd_listing(std::string_view body) {
  const Result<Json> json = parse_json(body);
  const Json* const header = json.ok() ? json->find("header") : nullptr;
  if (header == nullptr) return corrupt("no answer of etcd");
  MemberListing listing;
  const Json* const cluster = header->find("cluster_id");
  if (cluster != nullptr && cluster->is_string()) {
    listing.source = std::strtoull(cluster->as_string().c_str(), nullptr, 10);
  }
  listing.revision = etcd_number(header->find("revision"));
  const Json* const pairs = json->find("kvs");
  if (pairs == nullptr || !pairs->is_array()) return listing;
  for (const Json& pair : pairs->as_array()) {
    Result<HttpTarget> target = parse_http_url(decoded(pair.find("value")));
    if (!target.ok() || target->tls || target->path != "/") continue;
    listing.members.push_back({*std::move(target), etcd_number(pair.find("mod_revision"))});
  }
  return listing;
}

Result<EtcdLease> read_etcd_lease(std::string_view body) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) return corrupt("no answer of etcd");
  const Json* const result = json->find("result");  // of a keep-alive
  const Json& lease = result ? *result : *json;
  const Json* const id = lease.find("ID");
  if (id == nullptr || !id->is_string()) return corrupt("etcd's answer names no lease");
  return EtcdLease{.id = id->as_string(),
                   .ttl_seconds = static_cast<double>(etcd_number(lease.find("TTL")))};
}

}  // namespace headrace
