#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep::golden {

/// The numbers of a golden text, under their headings ("step 1 gradient 0.weight [32, 16]").
std::map<std::string, std::vector<double>> sections_of(const std::string& text);

/// Where two golden texts differ first: the heading, the place under it and both lines; "" when they are
/// equal.
std::string first_difference(const std::string& one, const std::string& other);

}  // namespace lockstep::golden
