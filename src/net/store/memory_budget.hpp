#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::net {

/// A client's request is invalid or cannot be served: its connection is closed.
class BadRequest : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// The server's memory limit is reached.
class StoreFull : public BadRequest {
 public:
  using BadRequest::BadRequest;
};

// The store's server runs inside the launcher of node 0, and anything that reaches its port is a client:
// broken, hostile, or 10,000 ranks at once. None of them may make the launcher, and with it the job, run out
// of memory. Hence one budget for all that clients make the server keep, with these rules:
//
// - A Reservation is grown before anything is stored, by the capacity of strings rather than their size, plus
//   an overhead for each object. It lies beside the bytes that it pays for, and its destructor returns it. So
//   no path, of errors or otherwise, can forget to.
// - Received bytes are paid for, not announced ones: a request that promises 8 MiB costs what has arrived, up
//   to twice that. A lying length costs nothing.
// - A value is shared by the table and by the replies under way (Value). It is paid for once, until the last
//   of them is gone: an overwritten value stays reserved while a slow client still reads it.
// - Replies are paid for, too. From a client with more than 256 KiB of unread replies, no further request is
//   read (ClientSession::is_congested), and a client that reads none for ServerOptions::request_time is
//   closed.
// - What does not fit throws StoreFull before the table changes (a multi_set keeps the pairs before). That
//   closes the connection that asked, and nothing else: the client whose request was one too many pays, not
//   the job.
//
// Not in the budget: what one read returns (64 KiB), as only one is processed at a time, and the connections
// themselves, which are limited by number for the same reason (Server::Loop::make_room).

/// The limit of a server's memory for data from clients. Memory is reserved here before data is stored. Not
/// thread-safe: protected by the server's lock.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t limit) : limit_(limit) {}
  std::size_t used() const { return used_; }

 private:
  friend class Reservation;
  std::size_t limit_;
  std::size_t used_ = 0;
};

/// A part of a budget; the destructor returns it. The budget must outlive it.
class Reservation {
 public:
  Reservation() = default;
  explicit Reservation(MemoryBudget& budget) : budget_(&budget) {}
  ~Reservation() { clear(); }
  Reservation(Reservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), amount_(std::exchange(other.amount_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(amount_, other.amount_);
    return *this;
  }

  /// Reserves `amount` more bytes. Throws StoreFull with the text, and changes nothing, if the budget is
  /// exceeded.
  void grow(std::size_t amount, const char* when_full) {
    if (budget_ == nullptr || amount > budget_->limit_ - budget_->used_) throw StoreFull(when_full);
    budget_->used_ += amount;
    amount_ += amount;
  }
  void clear() {
    if (budget_ != nullptr) budget_->used_ -= amount_;
    amount_ = 0;
  }

 private:
  MemoryBudget* budget_ = nullptr;
  std::size_t amount_ = 0;
};

/// A stored value, shared by the table and the pending replies, so that it is not copied.
struct StoredBytes {
  std::string bytes;
  Reservation reservation;
};
using Value = std::shared_ptr<const StoredBytes>;

/// The memory overhead of a small object: a map's node and bucket, a list's node, a shared StoredBytes, and
/// the allocator's part of each.
inline constexpr std::size_t kObjectOverhead = 256;

}  // namespace lockstep::net
