#include "comm/operation.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string Operation::describe() const {
  std::string text = fmt::format("{}: {}", *who, name);
  if (number > 0) text += fmt::format(" #{}", number);
  if (tensor.defined()) {
    text += fmt::format(" ({} [{}], {})", c10::toString(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ", "), tensor.device().str());
  }
  return text + " failed";
}

}  // namespace lockstep
