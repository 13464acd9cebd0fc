#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The base of the exceptions that Lockstep throws. The text says what was expected, what was found, and what
/// to do; it is written for the reader of the job's log.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A wrong flag, option, environment variable or argument: the caller must change the call. Programs exit
/// with code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// A file or a data set that cannot be read or that contradicts itself. The text names the file and the
/// position.
class DataError : public Error {
 public:
  using Error::Error;
};

/// Ranks could not communicate, or disagreed on what to do.
class CommunicationError : public Error {
 public:
  using Error::Error;
};

/// A timeout. `missing_ranks()` returns the ranks that were waited for, if known: their numbers in the world,
/// in sub-groups too.
class TimeoutError : public CommunicationError {
 public:
  explicit TimeoutError(const std::string& text, std::vector<int> missing_ranks = {})
      : CommunicationError(text), missing_ranks_(std::move(missing_ranks)) {}

  const std::vector<int>& missing_ranks() const noexcept { return missing_ranks_; }

 private:
  std::vector<int> missing_ranks_;
};

/// Another rank failed, and this rank ends because of it. `rank()` is the rank that failed.
class RemoteError : public CommunicationError {
 public:
  RemoteError(const std::string& text, int rank) : CommunicationError(text), rank_(rank) {}

  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

}  // namespace lockstep
