#include "lockstep/datasets/prepare.hpp"

#include <string>

#include "core/prepared_list.hpp"

namespace lockstep {

bool preparing(const Environment& environment) {
  const std::string value = find_variable(environment, kPrepareVariable).value_or("");
  return !value.empty() && value != "0" && value != "false";
}

}  // namespace lockstep
