// A server whose model says what a file holds, for tests of clients: one answer a request, with a
// byte 0x1E between them.
//   scripted_server FILE [TOOL_CALL_PARSER [REASONING_PARSER [forms]]]
// With `forms` the engine keeps to the tokens that a request allows.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>

#include "server/model_fixture.h"
#include "server/server.h"

using namespace headrace;

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("scripted_server FILE [TOOLS [REASONING [forms]]]\n", stderr), 2;
  std::ostringstream script;
  script << std::ifstream(argv[1], std::ios::binary).rdbuf();
  const bool forms = argc > 4 && std::string_view(argv[4]) == "forms";
  const TestModel model({.takes_constraints = forms}, script.str());
  ServedModel served = model.served();
  if (argc > 2) served.tool_call_parser = argv[2];
  if (argc > 3) served.reasoning_parser = argv[3];
  ServerOptions options;
  options.port = 0;
  const auto server = Server::create(options);
  CHECK(server.ok() && (*server)->start().ok());
  const Status ready = (*server)->set_ready(served);
  if (!ready.ok()) return std::fprintf(stderr, "%s\n", ready.message().c_str()), 1;
  std::cout << "listening on http://127.0.0.1:" << (*server)->port() << std::endl;
  (*server)->wait();
  return 0;
}
