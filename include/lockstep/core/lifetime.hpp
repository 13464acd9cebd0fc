#pragma once

#include <memory>

namespace lockstep {

/// A member of an object that others point to, so that they can tell whether the object still exists. Each
/// copy of the object has a mark of its own. *Local*.
class Lifetime {
 public:
  Lifetime() = default;
  ~Lifetime() = default;
  Lifetime(const Lifetime& /*other*/) {}
  Lifetime& operator=(const Lifetime& /*other*/) { return *this; }

  /// Expires when the object is destroyed.
  std::weak_ptr<const void> watch() const noexcept { return mark_; }

 private:
  std::shared_ptr<const void> mark_ = std::make_shared<char>();
};

}  // namespace lockstep
