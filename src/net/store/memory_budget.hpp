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

/// The memory overhead of a small object: nodes, pointers, allocator.
inline constexpr std::size_t kObjectOverhead = 128;

}  // namespace lockstep::net
