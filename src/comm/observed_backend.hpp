#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "group_observer.hpp"
#include "observed_work.hpp"

namespace lockstep::comm {

/// Puts every operation that goes through a backend, also those that c10d starts itself, before an observer.
/// The backend keeps its features; what is no operation is passed on to it. `ends`: how its operations end.
c10::intrusive_ptr<c10d::Backend> observed(c10::intrusive_ptr<c10d::Backend> backend,
                                           std::shared_ptr<GroupObserver> observer, Ends ends);

/// The backend behind observed(); `backend` itself where it is none of these.
c10::intrusive_ptr<c10d::Backend> unobserved(const c10::intrusive_ptr<c10d::Backend>& backend);

}  // namespace lockstep::comm
