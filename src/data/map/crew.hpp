#pragma once

#include <filesystem>
#include <string>

#include "meeting.hpp"

namespace lockstep {

/// The ranks that see one and the same folder, and the one of them that leads.
struct Crew {
  int leader = 0;
  bool leads = true;
  /// Keys of the crew begin so: Meeting::key(prefix + ...).
  std::string prefix;
};

/// Finds out which ranks see this rank's `folder`: whether it is shared by all nodes, by none or by some is
/// tried and not assumed. Rank 0 writes a file with a name of its own, the others look for it; those who do
/// not find it do the same among each other. The lowest rank of those who see one folder leads them. A
/// folder that cannot be written is everybody's own. *Collective*.
class CrewProbe {
 public:
  CrewProbe(Meeting& meeting, std::filesystem::path folder);
  /// Removes this rank's file.
  ~CrewProbe();
  CrewProbe(const CrewProbe&) = delete;
  CrewProbe& operator=(const CrewProbe&) = delete;

  const Crew& crew() const noexcept { return crew_; }
  /// Waits until nobody needs this rank's file any more: to be called before the object goes.
  void wait_for_all();

 private:
  std::string write_token();
  bool sees(const std::string& token) const;
  int find_leader();

  Meeting& meeting_;
  std::filesystem::path folder_;
  std::filesystem::path token_;
  Crew crew_;
};

}  // namespace lockstep
