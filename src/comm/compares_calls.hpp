#pragma once

#include <string>

namespace lockstep::comm {

/// A backend whose ranks compare what they call before data moves.
class ComparesCalls {
 public:
  virtual ~ComparesCalls() = default;

  /// Says what the collective is that this thread starts next: "all_reduce #412 (float32, 1000 elements,
  /// sum)". What nobody says anything of is not compared.
  virtual void next_call(std::string call) = 0;
};

}  // namespace lockstep::comm
