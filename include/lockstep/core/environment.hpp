#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// A snapshot of environment variables. All code that depends on the environment takes one of these, so that
/// tests (and programs with their own `main`) can pass their own.
using Environment = std::map<std::string, std::string, std::less<>>;

/// The current environment of this process. Only this function reads it. *Local*. Do not call it while
/// another thread calls setenv.
Environment process_environment();

/// The value of a variable, or nothing if it is not set. An empty value counts as set.
std::optional<std::string> find_variable(const Environment& environment, std::string_view name);

/// Sets a variable of this process unless it is set: for libraries that can only be configured by the
/// environment. *Local*. Do not call it while another thread reads the environment.
void set_default_variable(const std::string& name, const std::string& value);

}  // namespace lockstep
