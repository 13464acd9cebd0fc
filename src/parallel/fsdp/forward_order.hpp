#pragma once

#include <c10/util/hash.h>

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::parallel {

/// In which order the units' forwards begin in a forward of the module, to foretell which unit follows
/// another. Ranks that foretold differently would gather different units. So only an order is used on which
/// they have agreed, and they begin to use it at the same time: at the end of the backward after the one
/// whose orders they compared, when all of them have read the answer. *Local*.
class ForwardOrder {
 public:
  /// A forward of the module begins.
  void begin() {
    now_.clear();
    is_as_agreed_ = true;
  }

  /// The unit's forward begins. Returns the unit that comes next; nothing at the end, without an agreed
  /// order, and after a difference.
  std::optional<std::size_t> next_after(std::size_t unit) {
    const std::size_t place = now_.size();
    now_.push_back(unit);
    is_as_agreed_ = is_as_agreed_ && place < agreed_.size() && agreed_[place] == unit;
    if (!is_as_agreed_ || place + 1 == agreed_.size()) return std::nullopt;
    return agreed_[place + 1];
  }

  /// Of the last forward: what ranks compare.
  std::size_t hash() const {
    std::size_t value = now_.size();
    for (const std::size_t unit : now_) value = c10::hash_combine(value, unit);
    return value;
  }

  /// The ranks begin to compare the last forward, and all have read the answer for the one before, which was
  /// that they agree.
  void compare() { agreed_ = std::exchange(compared_, now_); }

  /// They do not agree.
  void forget() {
    agreed_.clear();
    compared_.clear();
  }

 private:
  std::vector<std::size_t> agreed_, compared_, now_;
  bool is_as_agreed_ = true;
};

}  // namespace lockstep::parallel
