#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::net {

// The wire protocol of c10d's TCPStore as of PyTorch 2.11, learnt from its headers and from recorded talks.
//
// A client opens with "validate" and "ping", then sends one request after the other. Numbers are 8 bytes in
// the host's order (little-endian everywhere that we run), a string is its length and its bytes, a list is
// its count and its strings. Below: what follows the request's byte, and what comes back.

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

/// PyTorch's clients put this in front of every key, so that their own count of clients, below, is apart.
inline constexpr std::string_view kKeyPrefix = "/";
/// Where clients that wait for all the others count themselves.
inline constexpr std::string_view kClientCountKey = "init/";

/// A key as it goes over the wire.
inline std::string wire_key(std::string_view key) { return std::string(kKeyPrefix).append(key); }

/// The 10 bytes with which a client begins: validate, ping.
std::string greeting(std::uint32_t nonce);
inline constexpr std::size_t kGreetingBytes = 10;

/// Puts requests together.
class Writer {
 public:
  Writer& type(QueryType type);
  Writer& number(std::uint64_t value);
  Writer& text(std::string_view value);
  /// As text(), and as clients name them. Throw UsageError beyond the protocol's limits.
  Writer& key(std::string_view name);
  Writer& value(std::string_view value);
  /// The count of a list.
  Writer& count(std::size_t count);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// The 8 (or 4) bytes of a number as they go over the wire, and back.
std::string wire_number(std::uint64_t value);
std::uint64_t read_number(std::string_view bytes);

/// Moves bytes from the front of `bytes` until `filled` has `count` of them; whether it has.
bool fill(std::string& filled, std::string_view& bytes, std::size_t count);

/// Takes a store's answers apart. Memory grows with what has come, not with what a length promises.
class ReplyReader {
 public:
  /// Fills exactly `count` bytes, or throws.
  using Source = std::function<void(char* into, std::size_t count)>;

  explicit ReplyReader(Source source) : source_(std::move(source)) {}

  char byte();
  std::int64_t number();
  /// Throws CommunicationError for a length beyond 1 GiB, which no store gives.
  std::string text();
  /// A count and as many texts.
  std::vector<std::string> texts();

 private:
  Source source_;
};

}  // namespace lockstep::net
