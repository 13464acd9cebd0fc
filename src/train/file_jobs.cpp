#include "file_jobs.hpp"

#include "core/parallel_for.hpp"

namespace lockstep::train {

FileDigests FileJobs::run(const std::filesystem::path& folder, int threads) const {
  std::vector<FileDigest> digests(jobs_.size());
  parallel_for(jobs_.size(), 1, static_cast<std::size_t>(threads),
               [&](std::size_t i, std::size_t) { digests[i] = jobs_[i].second(folder / jobs_[i].first); });
  FileDigests known;
  for (std::size_t i = 0; i < jobs_.size(); ++i) known[jobs_[i].first] = digests[i];
  return known;
}

}  // namespace lockstep::train
