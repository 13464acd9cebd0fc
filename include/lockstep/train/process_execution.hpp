#pragma once

#include <ATen/core/Tensor.h>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/comm/store.hpp"
#include "lockstep/core/world.hpp"

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

/// The part of Accelerator that has to do with who does what when; a program uses it through an Accelerator.
class ProcessExecution {
 public:
  /// `world` says who is local to whom; `group` has its ranks. `barrier_warning`: after this long, and again
  /// after each such time, a named barrier says who is missing. *Local*, but every rank does the same.
  ProcessExecution(const World& world, const ProcessGroup& group, std::chrono::milliseconds barrier_warning);

  // ---- Who runs what

  /// Runs `action` on rank `rank` only; what it returns is there an optional, and empty elsewhere. *Local*.
  template <class Action>
  auto on_process(int rank, Action&& action) const {
    return run_if(rank == rank_of_this(), std::forward<Action>(action));
  }
  /// The same on the rank of that number on every node.
  template <class Action>
  auto on_local_process(int local_rank, Action&& action) const {
    return run_if(local_rank == local_rank_of_this(), std::forward<Action>(action));
  }
  /// The same on the last rank of the job.
  template <class Action>
  auto on_last_process(Action&& action) const {
    return on_process(size_of_world() - 1, std::forward<Action>(action));
  }

  /// Runs `action` on rank 0 alone while the others wait, without a time limit, and gives what it returned to
  /// all of them: a text, JSON, a tensor (on the CPU elsewhere), tensors by name, or nothing. *Collective*.
  ///
  ///     const auto plan = accelerator.on_main_process([&] { return read_plan("plan.json"); });  // at all
  ///     ranks
  ///
  /// What rank 0 threw comes out there, and RemoteError with its text elsewhere. Those that wait say so every
  /// 30 s. To run something on rank 0 first and then on the others: main_process_first(). To run it on one
  /// rank while nobody waits: on_process().
  template <class Action>
  auto on_main_process(Action&& action) const {
    using Result = std::invoke_result_t<Action>;
    if constexpr (std::is_void_v<Result>) {
      MainProcessFirst guard = first_of_run();
      if (guard.is_main()) guarded(guard, std::forward<Action>(action));
    } else {
      std::optional<Result> result;
      {
        MainProcessFirst guard = first_of_run();
        if (guard.is_main()) result = guarded(guard, std::forward<Action>(action));
      }
      return shared(result ? &*result : nullptr);
    }
  }

  /// Writes the parts and a line end to standard output: once on each node. *Local*.
  template <class... Parts>
  void print_per_node(const Parts&... parts) const {
    if (local_rank_of_this() != 0) return;
    std::ostringstream line;
    (line << ... << parts) << '\n';
    write_out(line.str());
  }

  // ---- Agreement

  /// This rank has something to tell, such as that it is time to end. *Local*.
  void set_trigger();
  /// Whether some rank called set_trigger() since the last time; all get the same answer, and the trigger is
  /// down again. *Collective*.
  bool check_trigger();

  /// Starts all random numbers of LibTorch from `seed`, on the CPU and all CUDA devices; with
  /// `device_specific` from `seed` + rank, so that dropout differs between the ranks. `deterministic` also
  /// calls use_deterministic_operations(), which on a GPU comes too late here for cuBLAS and NCCL: say it in
  /// AcceleratorOptions. *Local*.
  void set_seed(std::uint64_t seed, bool device_specific = false, bool deterministic = false);

  // ---- Meeting

  /// Returns when every process has called it with the same name. Goes through the store, so that whoever
  /// waits for long can say, on standard error, who is missing and where each one was last. *Collective*.
  /// Throws RemoteError with the text of another rank's exception when that rank left fail_together() by it;
  /// CommunicationError when another rank came to a barrier of another name; TimeoutError, naming the missing
  /// ranks, after the group's timeout.
  void wait_for_everyone_at(const std::string& name) const;

  /// Runs `action`. When it throws, the ranks that wait in wait_for_everyone_at(), now or later, throw
  /// RemoteError with the exception's text, instead of waiting for a rank that does not come. *Local*.
  /// The exception goes on from here after up to two seconds, in which the others hear of it: this process
  /// may host the store.
  ///
  ///     accelerator.fail_together([&] {
  ///       prepare_shard(accelerator.process_index());
  ///       accelerator.wait_for_everyone_at("shards are prepared");
  ///     });
  template <class Action>
  auto fail_together(Action&& action) const {
    try {
      return action();
    } catch (const std::exception& error) {
      report_failure(error.what());
      throw;
    }
  }

 private:
  struct State;

  template <class Action>
  static auto guarded(MainProcessFirst& guard, Action&& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      guard.fail(error.what());
      throw;
    }
  }

  template <class Action>
  static auto run_if(bool wanted, Action&& action) {
    using Result = std::invoke_result_t<Action>;
    if constexpr (std::is_void_v<Result>) {
      if (wanted) action();
    } else {
      return wanted ? std::optional<Result>(action()) : std::nullopt;
    }
  }

  int rank_of_this() const noexcept;
  int local_rank_of_this() const noexcept;
  int size_of_world() const noexcept;
  MainProcessFirst first_of_run() const;
  /// Rank 0's value; the others have none.
  std::string shared(const std::string* value) const;
  nlohmann::json shared(const nlohmann::json* value) const;
  at::Tensor shared(const at::Tensor* value) const;
  TensorMap shared(const TensorMap* value) const;
  void report_failure(const std::string& text) const;
  static void write_out(const std::string& line);

  std::shared_ptr<State> state_;
};

}  // namespace lockstep
