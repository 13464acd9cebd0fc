#pragma once

#include <filesystem>
#include <functional>
#include <list>
#include <memory>

namespace lockstep {

/// Called with the path of a checkpoint before it is written or read.
using StateHook = std::function<void(const std::filesystem::path& path)>;

/// Takes a hook away again; a handle that is thrown away leaves its hook in place. *Local*.
class StateHookHandle {
 public:
  using Hooks = std::list<StateHook>;

  /// For Accelerator: puts a hook behind the others.
  StateHookHandle(const std::shared_ptr<Hooks>& hooks, StateHook hook)
      : hooks_(hooks), place_(hooks->insert(hooks->end(), std::move(hook))) {}

  /// From now on the hook is not called any more. Again, or after the Accelerator's end: nothing. Not from
  /// inside a hook.
  void remove() {
    if (const auto hooks = hooks_.lock()) hooks->erase(place_);
    hooks_.reset();
  }

 private:
  std::weak_ptr<Hooks> hooks_;
  Hooks::iterator place_;
};

}  // namespace lockstep
