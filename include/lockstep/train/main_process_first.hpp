#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/store.hpp"

namespace lockstep {

/// While it lives on the main process, the others wait in its constructor; they go on when it ends there. Made by
/// Accelerator::main_process_first and local_main_process_first.
///
/// The wait goes through the store and has no time limit: a main process that prepares a data set for an hour keeps the
/// others waiting for an hour, and every 30 s they say on standard error for whom. When the main process leaves the
/// scope by an exception, the others throw RemoteError. *Collective* over the processes concerned.
class [[nodiscard]] MainProcessFirst {
 public:
  /// `name` makes the place unique; `main_rank` is who goes first.
  MainProcessFirst(const Store& store, std::string name, int rank, int main_rank);
  ~MainProcessFirst();
  MainProcessFirst(const MainProcessFirst&) = delete;
  MainProcessFirst& operator=(const MainProcessFirst&) = delete;

  bool is_main() const noexcept { return is_main_; }

  /// On the main process: the others shall throw with this text. For use where the exception can be seen; the destructor
  /// only knows that there was one.
  void fail(const std::string& text);

 private:
  void wait_for_main(int rank, int main_rank) const;

  Store store_;
  std::string name_;
  bool is_main_;
  bool told_ = false;
  int exceptions_before_;
};

}  // namespace lockstep
