#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/commands.hpp"

namespace lockstep::launch {

using Words = std::vector<std::string>;

/// The commands. All are *Local*.
int bench_command(const Words& words, std::ostream& out, std::ostream& err);
int cache_command(const Words& words, std::ostream& out, std::ostream& err);
int check_command(const Words& words, std::ostream& out, std::ostream& err);
int checkpoint_command(const Words& words, std::ostream& out, std::ostream& err);
int env_command(const Words& words, std::ostream& out, std::ostream& err);
int new_command(const Words& words, std::ostream& out, std::ostream& err);
int prepare_command(const Words& words, std::ostream& out, std::ostream& err);
int run_command(const Words& words, std::ostream& out, std::ostream& err);
int slurm_command(const Words& words, std::ostream& out, std::ostream& err);
int stacks_command(const Words& words, std::ostream& out, std::ostream& err);
int stage_command(const Words& words, std::ostream& out, std::ostream& err);
int test_command(const Words& words, std::ostream& out, std::ostream& err);
int tokenizer_command(const Words& words, std::ostream& out, std::ostream& err);
int trace_command(const Words& words, std::ostream& out, std::ostream& err);

/// A file under examples/ that a project of 'lockstep new' takes over; where "custom_trainer" stands in it,
/// the project's name is to stand.
struct ProjectFile {
  std::string name;
  std::string text;
};

/// All of them. Written by launch/CMakeLists.txt.
const std::vector<ProjectFile>& project_files();

}  // namespace lockstep::launch
