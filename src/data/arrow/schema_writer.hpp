#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/data_type.hpp"

namespace lockstep::arrow_file {

/// The description of a Schema message.
std::string schema_message(const std::vector<Field>& fields,
                           const std::map<std::string, std::string>& metadata);

}  // namespace lockstep::arrow_file
