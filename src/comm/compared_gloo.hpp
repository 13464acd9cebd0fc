#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <thread>

#include "call_exchange.hpp"
#include "compares_calls.hpp"
#include "guarded_gloo.hpp"

namespace lockstep::comm {

/// Gloo whose ranks compare each collective before its data moves. Starting one does not wait for that:
/// threads of this class take the place of c10d's. They take the operations from c10d's queue in the order of
/// the calls and agree on them one after the other; while one runs, the next is compared.
///
/// When the ranks differ, that operation and all later ones fail with the same error, and touch no data.
class ComparedGloo final : public GuardedGloo, public ComparesCalls {
 public:
  ComparedGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
               c10::intrusive_ptr<Options> options, CallExchange::Names names);
  /// Waits for what is still in flight.
  ~ComparedGloo() override;

  void next_call(std::string call) override { next_call_ = std::move(call); }

 private:
  using Operation = c10::intrusive_ptr<AsyncWork>;
  struct Queued {
    Operation operation;
    std::string call;
  };

  void started() override;
  void work(std::size_t worker);
  /// Waits for one, and until those before it are agreed on; empty at the end.
  Queued next(std::size_t worker);
  /// Null, or why the ranks have not agreed.
  std::exception_ptr agree(const Queued& queued);
  void let_next_be_taken();

  inline static thread_local std::string next_call_;

  std::deque<std::string> calls_;        // What c10d's queue holds; "": not compared.
  std::condition_variable for_workers_;  // Not c10d's, which rings before an operation may be taken.
  bool stopping_ = false;
  bool agreeing_ = false;  // A worker has taken an operation that is not agreed on yet.
  std::unique_ptr<CallExchange> exchange_;
  std::vector<std::thread> workers_;
};

}  // namespace lockstep::comm
