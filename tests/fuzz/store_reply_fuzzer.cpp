// What a server may answer, given to the client's reader.

#include <cstdint>
#include <cstring>

#include "lockstep/core/error.hpp"
#include "net/store/protocol.hpp"

using lockstep::net::ReplyReader;

/// The input: a byte that chooses what is read again and again, then a server's bytes.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::size_t at = 1;
  ReplyReader reader([&](char* into, std::size_t count) {
    if (count > size - at) throw lockstep::CommunicationError("the end");
    std::memcpy(into, data + at, count);
    at += count;
  });
  try {
    for (;;) {
      if (data[0] % 4 == 0) reader.byte();
      if (data[0] % 4 == 1) reader.number();
      if (data[0] % 4 == 2) reader.text();
      if (data[0] % 4 == 3) reader.texts();
    }
  } catch (const lockstep::CommunicationError&) {
  }
  return 0;
}
