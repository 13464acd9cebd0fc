#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// A file of the project that 'lockstep new' writes: that of examples/custom_trainer, whose name stands in it
/// wherever the new project's is to stand.
struct ProjectFile {
  std::string name;
  std::string text;
};

/// All of them. Written by launch/CMakeLists.txt.
const std::vector<ProjectFile>& project_files();

}  // namespace lockstep::launch
