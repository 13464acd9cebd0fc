#include "comm/work_description.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string WorkDescription::describe() const {
  std::string text = fmt::format("{}: {}", *who, name);
  if (number > 0) text += fmt::format(" #{}", number);
  if (tensor.defined()) {
    text += fmt::format(" ({} [{}], {})", c10::toString(tensor.scalar_type()),
                        fmt::join(tensor.sizes(), ", "), tensor.device().str());
  }
  return text + " failed";
}

}  // namespace lockstep
