#pragma once

#include <set>
#include <string>

namespace lockstep {

/// Numbers of CPUs in the kernel's form: "0-2,4,6-7". *Local*.
std::string cpu_list_text(const std::set<int>& cpus);

}  // namespace lockstep
