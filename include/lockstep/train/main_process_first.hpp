#pragma once

#include <chrono>
#include <string>

#include "lockstep/comm/store.hpp"

namespace lockstep {

/// Who meets in a MainProcessFirst.
struct MainProcessFirstPlace {
  /// Unique in `store`, and shown in messages.
  std::string name;
  /// This process, and the one that goes first.
  int rank = 0;
  int main_rank = 0;
  /// How many processes meet, the main one among them.
  int members = 1;
  /// How long the main process waits at the end of its scope for the others to have come.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// While it lives on the main process, the others wait in its constructor; they go on when it ends there.
/// Made by Accelerator::main_process_first and local_main_process_first.
///
/// The others' wait goes through the store and has no time limit: a main process that prepares a data set for
/// an hour keeps them waiting for an hour, and every 30 s they say on standard error for whom. When the main
/// process leaves the scope by an exception, they throw RemoteError. At the end of its scope the main process
/// waits until every other has passed, so that it may end right afterwards even where it hosts the store.
/// *Collective* over the members.
class [[nodiscard]] MainProcessFirst {
 public:
  MainProcessFirst(const Store& store, MainProcessFirstPlace place);
  ~MainProcessFirst();
  MainProcessFirst(const MainProcessFirst&) = delete;
  MainProcessFirst& operator=(const MainProcessFirst&) = delete;

  bool is_main() const noexcept { return place_.rank == place_.main_rank; }

  /// On the main process: the others shall throw with this text. For use where the exception can be seen; the
  /// destructor only knows that there was one. Waits up to 5 s for them to have heard it; who comes later may
  /// find the store gone. Never throws CommunicationError.
  void fail(const std::string& text);

 private:
  void release(const std::string& outcome);
  void wait_for_main() const;
  void wait_for_others(std::chrono::milliseconds limit) const;

  Store store_;
  MainProcessFirstPlace place_;
  bool released_ = false;
  int exceptions_before_;
};

}  // namespace lockstep
