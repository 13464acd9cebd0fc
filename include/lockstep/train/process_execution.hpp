#pragma once

#include <ATen/core/Tensor.h>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <cstring>
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

/// The processes of a MainProcessFirst.
struct MainProcessFirstPlace {
  /// Unique in `store`, and used in messages.
  std::string name;
  /// This process, and the one that runs first.
  int rank = 0;
  int main_rank = 0;
  /// Number of processes, including the main one.
  int members = 1;
  /// How long the main process waits at the end of its scope for the others.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// While it exists on the main process, the other processes wait in its constructor; they continue when it is
/// destroyed there. Created by Accelerator::main_process_first and local_main_process_first.
///
/// The others wait through the store and without a timeout, because a main process may prepare a data set for
/// an hour. Every 30 s they log to standard error which rank they wait for. If the main process leaves the
/// scope by an exception, they throw RemoteError. At the end of its scope the main process waits until all
/// others have passed, so that it may exit right afterwards even if it hosts the store. *Collective* over the
/// members.
class [[nodiscard]] MainProcessFirst {
 public:
  MainProcessFirst(const Store& store, MainProcessFirstPlace place);
  ~MainProcessFirst();
  MainProcessFirst(const MainProcessFirst&) = delete;
  MainProcessFirst& operator=(const MainProcessFirst&) = delete;

  bool is_main() const noexcept { return place_.rank == place_.main_rank; }

  /// On the main process: the other processes throw with this text. Use it where the exception is visible;
  /// the destructor only knows that there was one. Waits up to 5 s for them to receive it; a process that
  /// arrives later may find the store gone. Never throws CommunicationError.
  void fail(const std::string& text);

 private:
  void release();
  void wait_for_main() const;
  void wait_for_others(std::chrono::milliseconds limit) const;

  Store store_;
  MainProcessFirstPlace place_;
  bool released_ = false;
  int exceptions_before_;
};

/// The part of Accelerator that decides which rank runs what, and when; programs use it through an
/// Accelerator.
class ProcessExecution {
 public:
  /// `world` defines the local ranks; `group` has its ranks. `barrier_warning`: a rank that waits at a named
  /// barrier reports the missing ranks at this interval. *Local*, but every rank does the same.
  ProcessExecution(const World& world, const ProcessGroup& group, std::chrono::milliseconds barrier_warning);

  // ---- Running on some ranks

  /// Runs `action` on rank `rank` only. Returns an optional with its result there, and an empty one on other
  /// ranks. *Local*.
  template <class Action>
  auto on_process(int rank, Action&& action) const {
    return run_if(rank == rank_of_this(), std::forward<Action>(action));
  }
  /// The same on the given local rank of every node.
  template <class Action>
  auto on_local_process(int local_rank, Action&& action) const {
    return run_if(local_rank == local_rank_of_this(), std::forward<Action>(action));
  }
  /// The same on the last rank of the job.
  template <class Action>
  auto on_last_process(Action&& action) const {
    return on_process(size_of_world() - 1, std::forward<Action>(action));
  }

  /// Runs `action` on rank 0 only while the other ranks wait, without a timeout, and returns its result on
  /// all ranks: nothing, a number, a text, a tensor (on the CPU of the other ranks), tensors by name, or
  /// whatever nlohmann::json converts in both directions, such as a vector of texts. *Collective*.
  ///
  ///     const auto plan = accelerator.on_main_process([&] { return read_plan("plan.json"); });
  ///
  /// An exception is thrown on rank 0, and RemoteError with its text on the others. Ranks that wait log so
  /// every 30 s. To run something on rank 0 first and then on the others: main_process_first(). To run it on
  /// one rank without the others waiting: on_process().
  template <class Action>
  auto on_main_process(Action&& action) const {
    using Result = std::decay_t<std::invoke_result_t<Action>>;
    if constexpr (std::is_void_v<Result>) {
      MainProcessFirst guard = first_of_run();
      if (guard.is_main()) guarded(guard, std::forward<Action>(action));
    } else if constexpr (demand_shareable<Result>()) {
      std::optional<Result> result;
      {
        MainProcessFirst guard = first_of_run();
        if (guard.is_main()) result = guarded(guard, std::forward<Action>(action));
      }
      return passed_on(result ? &*result : nullptr);
    }
  }

  /// Writes the parts and a newline to standard output, once per node. *Local*.
  template <class... Parts>
  void print_per_node(const Parts&... parts) const {
    if (local_rank_of_this() != 0) return;
    std::ostringstream line;
    (line << ... << parts) << '\n';
    write_out(line.str());
  }

  // ---- Agreement

  /// Sets the trigger on this rank, for example because it is time to stop. *Local*.
  void set_trigger();
  /// Whether any rank has called set_trigger() since the last call; all ranks get the same answer, and the
  /// trigger is reset. *Collective*.
  bool check_trigger();

  /// Seeds all generators of LibTorch, on the CPU and all CUDA devices, with `seed`; with `device_specific`,
  /// with `seed` + rank, so that dropout differs between ranks. `deterministic` also calls
  /// use_deterministic_operations(). On a GPU that is too late here for cuBLAS and NCCL: use
  /// AcceleratorOptions instead. *Local*.
  void set_seed(std::uint64_t seed, bool device_specific = false, bool deterministic = false);

  // ---- Barriers

  /// Returns when every process has called it with the same name. It uses the store, so that a rank that
  /// waits for long can log to standard error which ranks are missing and where each was last seen.
  /// *Collective*. Throws RemoteError with the text of another rank's exception if that rank left
  /// fail_together() by it; CommunicationError if another rank is at a barrier of another name; TimeoutError,
  /// which names the missing ranks, after the group's timeout.
  void wait_for_everyone_at(const std::string& name) const;

  /// Runs `action`. If it throws, ranks that wait in wait_for_everyone_at(), now or later, throw RemoteError
  /// with the exception's text instead of waiting for a rank that does not arrive. *Local*. The exception is
  /// rethrown here after up to two seconds, so that the others can receive it: this process may host the
  /// store.
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

  template <class Result>
  static constexpr bool kIsNumber = std::is_arithmetic_v<Result> || std::is_enum_v<Result>;
  template <class Result>
  static constexpr bool kHasOwnForm =
      std::same_as<Result, std::string> || std::same_as<Result, nlohmann::json> ||
      std::same_as<Result, at::Tensor> || std::same_as<Result, TensorMap>;
  /// Json is a parameter because this header only declares it.
  template <class Result, class Json = nlohmann::json>
  static constexpr bool kIsJson = requires(const Result& value, const Json& json) {
    Json(value);
    { json.template get<Result>() } -> std::same_as<Result>;
  };

  template <class Result>
  static constexpr bool demand_shareable() {
    if constexpr (kIsNumber<Result> || kHasOwnForm<Result>) {
      return true;
    } else {
      constexpr bool is_json = kIsJson<Result>;
      static_assert(is_json,
                    "on_main_process() passes on a number, a text, a tensor, tensors by name, or what "
                    "nlohmann::json converts in both directions (with <nlohmann/json.hpp> included)");
      return is_json;
    }
  }

  /// Returns rank 0's value; null on the others.
  template <class Result, class Json = nlohmann::json>
  Result passed_on(const Result* value) const {
    if constexpr (kHasOwnForm<Result>) {
      return shared(value);
    } else if constexpr (kIsNumber<Result>) {
      std::string bytes(sizeof(Result), '\0');
      if (value != nullptr) std::memcpy(bytes.data(), value, sizeof(Result));
      bytes = shared(&bytes);
      Result result;
      std::memcpy(&result, bytes.data(), sizeof(Result));
      return result;
    } else {
      const Json json = value != nullptr ? Json(*value) : Json();
      return shared(&json).template get<Result>();
    }
  }

  int rank_of_this() const noexcept;
  int local_rank_of_this() const noexcept;
  int size_of_world() const noexcept;
  MainProcessFirst first_of_run() const;
  /// Returns rank 0's value; null on the others.
  std::string shared(const std::string* value) const;
  nlohmann::json shared(const nlohmann::json* value) const;
  at::Tensor shared(const at::Tensor* value) const;
  TensorMap shared(const TensorMap* value) const;
  void report_failure(const std::string& text) const;
  static void write_out(const std::string& line);

  std::shared_ptr<State> state_;
};

}  // namespace lockstep
