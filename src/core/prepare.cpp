#include "lockstep/core/prepare.hpp"

namespace lockstep {

bool preparing(const Environment& environment) {
  const std::string value = find_variable(environment, kPrepareVariable).value_or("");
  return !value.empty() && value != "0" && value != "false";
}

Environment preparing_environment(const Environment& parent) {
  Environment result = parent;
  std::erase_if(result, [](const auto& variable) {
    const std::string& name = variable.first;
    return name.starts_with("TORCHELASTIC_") || name.starts_with("MASTER_") || name.starts_with("GROUP_") ||
           name.starts_with("ROLE_") || name == "LOCKSTEP_JOB_TOKEN";
  });
  // All four together, or else a scheduler's variables would have a say.
  result["RANK"] = result["LOCAL_RANK"] = "0";
  result["WORLD_SIZE"] = result["LOCAL_WORLD_SIZE"] = "1";
  result[kPrepareVariable] = "1";
  return result;
}

}  // namespace lockstep
