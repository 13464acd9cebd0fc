#pragma once

#include <filesystem>
#include <string>

#include "datasets/distributed/work_session.hpp"

namespace lockstep {

/// The ranks that see the same folder, and their leader.
struct SharedFolderGroup {
  int leader = 0;
  bool leads = true;
  /// Prefix of the group's keys: WorkSession::key(prefix + ...).
  std::string prefix;
};

/// Finds out which ranks see this rank's `folder`. Whether all, some or none of the nodes share it is tested,
/// not assumed: rank 0 writes a file with a random name and the others look for it; the ranks that do not
/// find it do the same among themselves. The lowest rank of a group is its leader. A rank that cannot write
/// the folder and finds no other rank's file forms its own group. *Collective*.
class SharedFolderProbe {
 public:
  SharedFolderProbe(WorkSession& session, std::filesystem::path folder);
  /// Removes this rank's file.
  ~SharedFolderProbe();
  SharedFolderProbe(const SharedFolderProbe&) = delete;
  SharedFolderProbe& operator=(const SharedFolderProbe&) = delete;

  const SharedFolderGroup& group() const noexcept { return group_; }
  /// Waits until no rank needs this rank's file any more; call it before destroying the object.
  void wait_for_all();

 private:
  std::string write_token();
  bool sees(const std::string& token) const;
  int find_leader();

  WorkSession& session_;
  std::filesystem::path folder_;
  std::filesystem::path token_;
  SharedFolderGroup group_;
};

}  // namespace lockstep
