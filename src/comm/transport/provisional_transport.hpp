#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/transport/transport.hpp"

namespace lockstep::comm {

/// The set-up of a process that replaces a lost one: the others do not repeat theirs, so nobody answers what
/// it sends before it meets them.
class LonelySetUp {
 public:
  /// `who`: "rank 1 of 2". `report`: told of each refusal, before it is thrown; may be null.
  LonelySetUp(std::string who, std::function<void(const std::string& text)> report)
      : who_(std::move(who)), report_(std::move(report)) {}

  /// Throws UsageError, which says what was called and what to do instead.
  [[noreturn]] void refuse(const std::string& what) const;

 private:
  std::string who_;
  std::function<void(const std::string&)> report_;
};

/// The transport of such a process: it refuses every operation.
std::unique_ptr<Transport> provisional_transport(std::shared_ptr<const LonelySetUp> set_up);

}  // namespace lockstep::comm
