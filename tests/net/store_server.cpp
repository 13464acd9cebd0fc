// A store of ours in a process of its own: prints its port, serves until its standard input ends.
//
//   store_server [MEBIBYTES [SECRET]]

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "net/socket.hpp"
#include "net/store/server.hpp"

int main(int argc, char** argv) {
  lockstep::net::ServerOptions options;
  if (argc > 1) options.most_bytes = std::strtoull(argv[1], nullptr, 10) << 20;
  if (argc > 2) options.secret = argv[2];
  options.log = [](const std::string& line) { std::fprintf(stderr, "store: %s\n", line.c_str()); };
  lockstep::net::Server server(lockstep::net::listen_on_loopback(0), options);
  std::printf("%d\n", server.address().port());
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
}
