#pragma once

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::testing {

/// A case of schedules_goldens.txt.
struct ScheduleGolden {
  std::string text;
  nlohmann::json options;
  std::vector<double> rates;
};

inline std::vector<ScheduleGolden> schedule_goldens() {
  std::ifstream file(LOCKSTEP_SCHEDULES_GOLDENS);
  std::vector<ScheduleGolden> found;
  for (std::string options, rates; std::getline(file, options) && std::getline(file, rates);) {
    ScheduleGolden golden{options, nlohmann::json::parse(options), {}};
    std::istringstream words(rates);
    for (std::string word; words >> word;) golden.rates.push_back(std::strtod(word.c_str(), nullptr));
    found.push_back(std::move(golden));
  }
  return found;
}

}  // namespace lockstep::testing
