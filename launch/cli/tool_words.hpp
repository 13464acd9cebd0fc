#pragma once

#include <set>
#include <string_view>

#include "cli/commands.hpp"

namespace lockstep::launch {

/// A program of ours that lies beside the launcher, and its own options; the flags take no value.
struct Tool {
  const char* name;
  std::set<std::string_view> options;
  std::set<std::string_view> flags;
};

/// The words of a `lockstep run` that starts the tool: the tool's options go to it, all others are the run's,
/// before which `run` goes.
Words tool_words(const Tool& tool, Words run, const Words& words);

}  // namespace lockstep::launch
