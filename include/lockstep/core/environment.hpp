#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// A snapshot of environment variables. Everything that depends on the environment takes one of these, so
/// that tests (and programs that own their `main`) can give their own.
using Environment = std::map<std::string, std::string, std::less<>>;

/// The environment of this process as it is now. The only place that reads it.
/// *Local*. Not to be called while another thread calls setenv.
Environment process_environment();

/// The value of a variable, or nothing when it is not set. An empty value is a value.
std::optional<std::string> find_variable(const Environment& environment, std::string_view name);

/// Sets a variable of this process where nobody has: for libraries that read their settings there and nowhere
/// else. *Local*. Not to be called while another thread reads the environment.
void set_default_variable(const std::string& name, const std::string& value);

}  // namespace lockstep
