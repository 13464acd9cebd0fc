#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shm/group.hpp"

namespace lockstep::shm {

/// Connects one rank of each host, a leader, which transfers data for the other ranks of its host.
/// Implemented elsewhere, so that this folder does not depend on the network. Every host makes the same calls
/// in the same order; failures throw Error.
class InterHostTransport {
 public:
  virtual ~InterHostTransport() = default;

  /// Sends the call of this host's ranks to the other hosts. Does not wait.
  virtual void announce(const Call& call) = 0;
  /// Returns when all hosts have announced the same call. No data may be sent before. Throws on all hosts if
  /// the calls differ.
  virtual void agree() = 0;

  /// An all_reduce, reduce, broadcast or all_gather, whose ranks are the hosts. After an all_reduce all hosts
  /// have the same bits; after a reduce, the buffers of others than the root are undefined. For an average
  /// each host passes its sum, and the total is divided by the number of all ranks.
  virtual void run(const Collective& collective) = 0;

  /// Runs an operation that uses another transport between the hosts, with the error handling of this one.
  virtual void beside(const std::function<void()>& body) = 0;

  /// Tells the other hosts that this rank has failed, so that they stop waiting for it.
  virtual void abandon(const char* failure_text) noexcept = 0;

  /// Ends what this rank runs or waits in, and every later call, with an error. Any thread; does not wait.
  virtual void abort() noexcept = 0;
};

/// The collectives of a group on several hosts: shared memory within each host, and between hosts the
/// InterHostTransports of one or more leaders. A message is split into one slice per leader. Each leader
/// reduces its slice over the ranks of its host and exchanges it with the other hosts; the ranks of its host
/// then copy the result.
///
/// Every rank works on a buffer that its host can map: its own tensor if that is in the heap, otherwise a
/// workspace through which large messages are pipelined piece by piece.
///
/// The hosts verify each operation before its first piece is sent. This host's call is sent to the others
/// while its ranks still synchronize, so that a host that arrives late does not have to wait for the answers.
///
/// Values are reduced in rank order within a host and in the transport's fixed order between hosts: all ranks
/// get the same bits, in every run.
class HierarchicalCollectives {
 public:
  struct Parts {
    std::shared_ptr<Group> group;  // The ranks of this host.
    HostTopology hosts;
    int rank = 0;  // In the whole group.
    /// The first `leaders` ranks of each host are its leaders: at most the size of the smallest host.
    int leaders = 1;
    /// Connects the leaders with this rank's index on their hosts. Null if this rank is not a leader.
    std::unique_ptr<InterHostTransport> transport = nullptr;
    std::size_t piece_bytes = 8U << 20;  // Size of the pieces in which messages are pipelined.
  };
  explicit HierarchicalCollectives(Parts parts);
  ~HierarchicalCollectives();
  HierarchicalCollectives(const HierarchicalCollectives&) = delete;
  HierarchicalCollectives& operator=(const HierarchicalCollectives&) = delete;

  /// Any collective with one buffer for the whole group: not gather, scatter and all_to_all.
  void run(const Collective& collective);
  /// A collective over another transport: `body` runs after the calls of the ranks were verified.
  void elsewhere(const Collective& collective, const std::function<void()>& body);

  /// Ends what this rank transfers between the hosts; within its host, Group::abort() does. Any thread.
  void abort() noexcept {
    if (parts_.transport) parts_.transport->abort();
  }

 private:
  /// A range of the message, processed at once; the buffer holds one or more copies of it.
  struct Piece {
    std::size_t start;  // In the message, in bytes.
    Elements elements;
    Elements all_copies;
    int leaders;         // Number of leaders that transfer it.
    std::byte* working;  // This rank's buffer.
    Range own;           // The slice of all copies that this rank transfers.
  };

  void all_reduce(const Collective& collective);
  void reduce(const Collective& collective);
  void reduce_scatter(const Collective& collective);
  void broadcast(const Collective& collective);
  void all_gather(const Collective& collective);
  void barrier(const Collective& collective);

  template <class Body>
  void guarded(const Body& body);
  template <class Fill, class Transfer, class Take>
  void in_pieces(const Call& call, std::size_t copies, const Fill& fill, const Transfer& transfer,
                 const Take& take);
  void begin(const Call& call, int leaders);
  void exchange_buffers();
  void agree_between_hosts();
  void* combined(const Piece& piece, Reduction reduction);
  void all_reduce_slice(const Piece& piece, Reduction reduction);
  void fetch(void* to, const Piece& piece, Range wanted);
  void gather_between_hosts(const Piece& piece);
  void collect(Buffers outputs, const Piece& piece);

  std::byte* workspace(std::size_t bytes);
  std::byte* visible(std::byte* data, std::size_t bytes);

  StepSync& step_sync() const { return parts_.group->step_sync(); }
  bool leads(int leaders) const { return step_sync().rank() < leaders; }
  std::size_t hosts() const { return static_cast<std::size_t>(parts_.hosts.count()); }
  /// Number of pieces that a leader transfers from each host if every rank has one.
  std::size_t rounds() const;

  Parts parts_;
  std::vector<HostTopology::HostRank> host_ranks_;  // Of all ranks.
  std::byte* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  std::vector<std::byte*> buffers_;  // The buffers of this host's ranks.
  bool announced_ = false;           // The call was sent to the other hosts; agree() is pending.
};

}  // namespace lockstep::shm
