#pragma once

#include <filesystem>

#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// An empty folder in which a page's code runs, because it names files without their folder.
class FolderOfAPage {
 public:
  FolderOfAPage() { std::filesystem::current_path(folder_.path()); }
  ~FolderOfAPage() { std::filesystem::current_path(before_); }
  FolderOfAPage(const FolderOfAPage&) = delete;
  FolderOfAPage& operator=(const FolderOfAPage&) = delete;

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

}  // namespace lockstep::testing
