#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::net {

// The wire protocol of c10d's TCPStore as of PyTorch 2.11, derived from its headers and from recorded
// sessions.
//
// A client sends "validate" and "ping", then one request after the other. Numbers are 8 bytes in the host's
// byte order (little-endian on all supported hosts), a string is its length and its bytes, a list is its
// count and its strings. Below: what follows the request's byte, and what is returned.

enum class QueryType : std::uint8_t {
  validate,     // magic (4 bytes)                 nothing
  set,          // key, value                      nothing
  compare_set,  // key, expected, desired          what the key holds then; `expected` if there is no such key
  get,          // key                             value; empty when there is none
  add,          // key, number                     the sum; the value is kept as decimal text
  check,        // list of keys                    0: all are there; 1
  wait,         // list of keys                    0 as soon as all have been there
  count_keys,   // -                               number; queues are not counted
  delete_key,   // key                             number of keys removed; queues stay
  append,       // key, value                      nothing
  multi_get,    // list of keys                    the values, without a count
  multi_set,    // list of keys and values         nothing
  cancel_wait,  // -                               1, whether or not a wait was still open
  ping,         // number (4 bytes)                the same
  queue_push,   // queue, value                    nothing; ends one wait for the queue
  queue_pop,    // queue                           length before, then the value unless that was 0
  queue_length,  // queue                           number
  list_keys,     // -                               list of keys
};

inline constexpr std::uint8_t kQueryTypes = 18;
inline constexpr std::uint32_t kValidationMagic = 0x3C85F7CE;
inline constexpr char kReady = 0, kNotReady = 1;
inline constexpr char kWaitEnded = 0, kWaitCancelled = 1;

/// The limits of PyTorch's own server.
inline constexpr std::uint64_t kLongestKey = 8 * 1024;
inline constexpr std::uint64_t kLongestValue = 8 * 1024 * 1024;
inline constexpr std::uint64_t kMostKeys = 128 * 1024;

/// PyTorch's clients prepend this to every key, which separates keys from their own count of clients, below.
inline constexpr std::string_view kKeyPrefix = "/";
/// The key under which clients that wait for all the others count themselves.
inline constexpr std::string_view kClientCountKey = "init/";

/// A key in wire format.
inline std::string wire_key(std::string_view key) { return std::string(kKeyPrefix).append(key); }

/// The first 10 bytes of a client: validate, ping.
std::string greeting(std::uint32_t nonce);
inline constexpr std::size_t kGreetingBytes = 10;

/// Builds requests.
class Writer {
 public:
  Writer& type(QueryType type);
  Writer& number(std::uint64_t value);
  Writer& text(std::string_view value);
  /// As text(), with a key in wire format and a value. Both throw UsageError beyond the protocol's limits.
  Writer& key(std::string_view name);
  Writer& value(std::string_view value);
  /// The count of a list.
  Writer& count(std::size_t count);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Encodes a number in 8 bytes; decodes the 8 (or 4) bytes of a number.
std::string wire_number(std::uint64_t value);
std::uint64_t read_number(std::string_view bytes);

/// Moves bytes from the front of `bytes` until `filled` has `count` of them. Returns whether it has.
bool fill(std::string& filled, std::string_view& bytes, std::size_t count);

/// Parses a store's answers. Allocates memory for received bytes, not for announced lengths.
class ReplyReader {
 public:
  /// Fills exactly `count` bytes, or throws.
  using Source = std::function<void(char* into, std::size_t count)>;

  explicit ReplyReader(Source source) : source_(std::move(source)) {}

  char byte();
  std::int64_t number();
  /// Throws CommunicationError for a length beyond 1 GiB, which no store sends.
  std::string text();
  /// A count and that many strings.
  std::vector<std::string> texts();

 private:
  Source source_;
};

}  // namespace lockstep::net
