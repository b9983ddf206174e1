#include "apps/etcd_flags.h"

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr const char* kEtcdGroup = "Server";  // of the help

}  // namespace

void add_etcd_flags(CLI::App& app, EtcdFlags& flags) {
  auto* etcd = app.add_option("--register-etcd", flags.address,
                              "Enters this server's address into etcd, where 'route --worker "
                              "etcd:HOST:PORT' finds it (default: nowhere)")
                   ->type_name("HOST:PORT[/PREFIX]")
                   ->group(kEtcdGroup);
  app.add_option("--advertise-address", flags.advertised,
                 "The address that is entered, as routers call it (default: --host and the port)")
      ->type_name("HOST:PORT")
      ->group(kEtcdGroup)
      ->needs(etcd);
  app.add_option("--etcd-lease", flags.lease_seconds,
                 "The entry is gone so long after the server has said nothing")
      ->check(CLI::Range(2, 3600))
      ->type_name("SECONDS")
      ->group(kEtcdGroup)
      ->needs(etcd);
}

Result<std::optional<EtcdRegistrationOptions>> etcd_registration(const EtcdFlags& flags,
                                                                 const ServerOptions& server) {
  if (flags.address.empty()) return std::optional<EtcdRegistrationOptions>();
  auto etcd = parse_etcd_address(flags.address);
  if (!etcd.ok()) return etcd.status().with_context("--register-etcd");
  const std::string& host = server.host;
  const bool any = host == "0.0.0.0" || host == "::";
  if (flags.advertised.empty() && (any || !server.unix_socket.empty())) {
    return invalid_argument("--register-etcd: no router can call " +
                                (any ? host : server.unix_socket) +
                                ": say by which address it does with --advertise-address HOST:PORT",
                            "register-etcd");
  }
  const bool plain = flags.advertised.find('/') == std::string::npos &&
                     flags.advertised.find(':') != std::string::npos;
  if (!flags.advertised.empty() && (!plain || !parse_http_url("http://" + flags.advertised).ok())) {
    return invalid_argument(
        "--advertise-address " + flags.advertised + ": must be HOST:PORT, as routers call it",
        "advertise-address");
  }
  return std::optional(EtcdRegistrationOptions{.etcd = *std::move(etcd),
                                               .advertised = flags.advertised,
                                               .ttl_seconds = flags.lease_seconds});
}

std::unique_ptr<EtcdRegistration> enter_etcd(std::optional<EtcdRegistrationOptions> registration,
                                             const std::string& host, uint16_t port) {
  if (!registration) return nullptr;
  if (registration->advertised.empty()) {
    const bool ip6 = host.find(':') != std::string::npos;
    registration->advertised = fmt::format("{}{}{}:{}", ip6 ? "[" : "", host, ip6 ? "]" : "", port);
  }
  return EtcdRegistration::start(*std::move(registration));
}

}  // namespace headrace
