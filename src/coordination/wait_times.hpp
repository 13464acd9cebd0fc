#pragma once

#include <chrono>

namespace lockstep::coordination {

using Milliseconds = std::chrono::milliseconds;

/// How long ranks wait for each other, over the store and in shared memory, with the reason of each. In time in which this
/// process runs.
struct WaitTimes {
  // ---- A session over the store (RankSession).

  /// A waiting rank looks this often whether others have failed or can still arrive. A failure is seen this
  /// late; each look is a request or two to the store.
  Milliseconds look{1'000};
  /// How long a rank that failed stays, so that the others can read why: it may host the store. They look
  /// every `look`, and a busy machine may take a few times that.
  Milliseconds farewell{5'000};
  /// Between two messages of a waiting rank. Rare enough that an hour's wait fits on a screen or two.
  Milliseconds message{30'000};
  /// Between a rank's heartbeats, where it sends any; each is a request to the store.
  Milliseconds beat{1'000};
  /// A rank that has sent a heartbeat, and then none for this long, is dead: ten lost heartbeats are no delay
  /// of a busy machine.
  Milliseconds dead_after{10'000};

  // ---- The questions of a rank that waits or has failed to the others (PeerMonitor).

  /// For the store itself: it may be gone with the host that failed, and the rank must still end soon.
  Milliseconds store_answer{2'000};
  /// For the others' answers, before a rank warns or gives up. They answer at once, unless their process or host is gone.
  Milliseconds peer_answer{2'000};
  /// The same in a barrier, which asks again and may ask less each time.
  Milliseconds probe_answer{1'000};
  /// Between two such probes at most. The pauses grow with the wait, so that many ranks that wait long do not keep the store
  /// busy.
  Milliseconds longest_probe_pause{30'000};
  /// An answer this recent serves another rank's question too: after a failure all ask at about the same time.
  Milliseconds recent_answer{500};
  /// A rank that waits for answers looks this often whether a rank has said why it left, which ends the wait.
  Milliseconds departure_look{200};
  /// At the end, for the monitor's thread. A blocked connection to a lost host may hold it for longer; it is then left behind.
  Milliseconds monitor_end{2'000};

  // ---- The first failure of a transport (FirstFailure).

  /// For the store, as above. Longer, because nothing else can tell why a connection was closed.
  Milliseconds first_failure_answer{3'000};

  // ---- The steps of collectives in shared memory (StepSync).

  /// From when a rank is seen to be gone until this one says so: the rank's own message, which names the cause, comes first,
  /// and so does its exit, by which the launcher finds the rank that failed first.
  Milliseconds loss_grace{200};
};

/// The times, where nobody chooses others.
inline constexpr WaitTimes kWaitTimes{};

}  // namespace lockstep::coordination
