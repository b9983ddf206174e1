// A listening socket that whoever started this process holds: it outlives the process, so that
// clients of the next one wait in its queue and are not refused, and nobody else gets the port.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace headrace {

// Where it is handed over (systemd's sd_listen_fds): LISTEN_FDS=1 and LISTEN_PID, the process that
// it is for.
inline constexpr int kInheritedDescriptor = 3;
inline constexpr const char* kInheritedCount = "LISTEN_FDS";
inline constexpr const char* kInheritedProcess = "LISTEN_PID";

// The socket's descriptor, which whoever takes it closes; -1: none was handed to this process.
// Children do not get it, nor the two variables. Once, before there are threads. kInvalidArgument:
// there are several, or it is no TCP socket that listens.
Result<int> take_inherited_socket();

// A socket of 127.0.0.1 that listens, for a child; closed with this.
class HeldSocket {
 public:
  // kUnavailable: there is no free port.
  static Result<HeldSocket> open();
  HeldSocket(HeldSocket&& other) noexcept;
  HeldSocket& operator=(HeldSocket&& other) noexcept;
  ~HeldSocket();

  int descriptor() const { return descriptor_; }
  uint16_t port() const { return port_; }
  // Closes the connections that wait in its queue: nobody is there who would answer them.
  void refuse_waiting() const;

 private:
  HeldSocket(int descriptor, uint16_t port) : descriptor_(descriptor), port_(port) {}
  int descriptor_ = -1;
  uint16_t port_ = 0;
};

}  // namespace headrace
