#pragma once

#include <filesystem>
#include <string>

#include "store_session.hpp"

namespace lockstep {

/// The ranks that see one and the same folder, and the one of them that leads.
struct SharedFolderGroup {
  int leader = 0;
  bool leads = true;
  /// Keys of the group begin so: StoreSession::key(prefix + ...).
  std::string prefix;
};

/// Finds out which ranks see this rank's `folder`: whether it is shared by all nodes, by none or by some is
/// tried and not assumed. Rank 0 writes a file with a name of its own, the others look for it; those who do
/// not find it do the same among each other. The lowest rank of those who see one folder leads them. A
/// folder that cannot be written is everybody's own. *Collective*.
class SharedFolderProbe {
 public:
  SharedFolderProbe(StoreSession& session, std::filesystem::path folder);
  /// Removes this rank's file.
  ~SharedFolderProbe();
  SharedFolderProbe(const SharedFolderProbe&) = delete;
  SharedFolderProbe& operator=(const SharedFolderProbe&) = delete;

  const SharedFolderGroup& group() const noexcept { return group_; }
  /// Waits until nobody needs this rank's file any more: to be called before the object goes.
  void wait_for_all();

 private:
  std::string write_token();
  bool sees(const std::string& token) const;
  int find_leader();

  StoreSession& session_;
  std::filesystem::path folder_;
  std::filesystem::path token_;
  SharedFolderGroup group_;
};

}  // namespace lockstep
