#include "core/available_cpus.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/cpu_set.hpp"
#include "core/text.hpp"

namespace lockstep {
namespace {

std::optional<int> number_in(const Environment& environment, std::string_view name) {
  return parse_whole_number(find_variable(environment, name).value_or(""), 1);
}

}  // namespace

int available_cpus(const Environment& environment, const ProcessorFiles& files) {
  const auto of_task = number_in(environment, "SLURM_CPUS_PER_TASK");
  const int usable = usable_cpus(files.membership, files.mount);
  if (!of_task) return usable;
  if (!find_variable(environment, "TORCHELASTIC_RUN_ID")) return *of_task;
  const int ranks = number_in(environment, "LOCAL_WORLD_SIZE").value_or(1);
  return std::max(1, std::min(*of_task / ranks, usable));
}

}  // namespace lockstep
