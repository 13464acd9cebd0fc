#pragma once

#include <string>
#include <vector>

namespace lockstep::shm {

/// This rank's place in its group, and how messages name the ranks.
struct Members {
  int rank = 0;
  std::vector<int> names;  // Their numbers in the world.
  std::string who;         // The beginning of messages: "rank 1 of 4".

  int size() const { return static_cast<int>(names.size()); }
  int name(int member) const { return names.at(static_cast<std::size_t>(member)); }
  std::string called(int member) const { return "rank " + std::to_string(name(member)); }
};

}  // namespace lockstep::shm
