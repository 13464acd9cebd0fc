#include "file_jobs.hpp"

#include <atomic>
#include <exception>
#include <thread>

namespace lockstep::train {

FileDigests FileJobs::run(const std::filesystem::path& folder, int threads) const {
  std::vector<FileDigest> digests(jobs_.size());
  std::vector<std::exception_ptr> failures(jobs_.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs_.size(); i = next++) {
      try {
        digests[i] = jobs_[i].second(folder / jobs_[i].first);
      } catch (...) {
        failures[i] = std::current_exception();
        next = jobs_.size();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int helper = 1; helper < threads; ++helper) helpers.emplace_back(work);
    work();
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  FileDigests known;
  for (std::size_t i = 0; i < jobs_.size(); ++i) known[jobs_[i].first] = digests[i];
  return known;
}

}  // namespace lockstep::train
