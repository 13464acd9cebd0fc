#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// A file under examples/ that a project of 'lockstep new' takes over; where "custom_trainer" stands in it,
/// the project's name is to stand.
struct ProjectFile {
  std::string name;
  std::string text;
};

/// All of them. Written by launch/CMakeLists.txt.
const std::vector<ProjectFile>& project_files();

}  // namespace lockstep::launch
