// What a client may send, given to the server's session in pieces; what came of it is checked against
// promises.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "net/handshake.hpp"
#include "net/store/memory_budget.hpp"
#include "net/store/session.hpp"

namespace {

using namespace lockstep::net;

void require(bool promise) {
  if (!promise) std::abort();
}

void talk(std::string_view bytes, std::size_t piece, MemoryBudget& budget) {
  KeyValueTable table(budget);
  ClientSession first(1, table, budget), second(2, table, budget);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    ClientSession& session = at / piece % 4 == 3 ? second : first;
    std::string_view part = bytes.substr(at, piece);
    session.receive(part);
    require(part.empty() || session.is_congested());
    table.take_ready();
  }
}

void authenticate(std::string_view bytes) {
  const std::string secret = "s";
  ServerHandshake handshake(secret);
  auto result = ServerHandshake::Result::undecided;
  while (result == ServerHandshake::Result::undecided && !bytes.empty()) result = handshake.receive(bytes);
  require(result != ServerHandshake::Result::control && result != ServerHandshake::Result::store);
}

}  // namespace

/// The input: a byte that chooses the size of the pieces, then a client's bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  authenticate(bytes);
  MemoryBudget budget(1 << 16);
  try {
    talk(bytes, data[0] + 1U, budget);
  } catch (const BadRequest&) {
  }
  require(budget.used() == 0);
  return 0;
}
