#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::net {

/// What a client sent is no request, or none that can be met: its connection is closed.
class BadRequest : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// The server's memory for its clients is spent.
class StoreFull : public BadRequest {
 public:
  using BadRequest::BadRequest;
};

/// How much memory a server may spend on what clients send. Everything that is kept for a client is reserved
/// here first, and what does not fit is not kept. Not safe for several threads: the server's lock covers it.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t limit) : limit_(limit) {}
  std::size_t used() const { return used_; }

 private:
  friend class Reservation;
  std::size_t limit_;
  std::size_t used_ = 0;
};

/// A part of a budget, given back when it goes. The budget must live longer.
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

  /// Throws StoreFull with the text, and changes nothing, when the budget does not have it.
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

/// A stored value, shared by the table and by the replies that are on their way, so that neither copies it.
struct StoredBytes {
  std::string bytes;
  Reservation reservation;
};
using Value = std::shared_ptr<const StoredBytes>;

/// What a small object costs beside its bytes: nodes, pointers, the allocator's own.
inline constexpr std::size_t kObjectOverhead = 128;

}  // namespace lockstep::net
