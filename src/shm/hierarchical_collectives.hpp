#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shm/group.hpp"

namespace lockstep::shm {

/// Connects one rank of each host, a leader, which transfers data for the others of its host. Implemented
/// outside, so that this folder needs no network. Every host makes the same calls in the same order; failures
/// throw Error.
class InterHostTransport {
 public:
  virtual ~InterHostTransport() = default;

  /// Sends the call of this host's ranks to the other hosts. Does not wait.
  virtual void announce(const Call& call) = 0;
  /// Returns when all hosts have announced the same call: no data may be sent before. Throws on all hosts
  /// when the calls differ.
  virtual void agree() = 0;

  /// In place; the same bits on all hosts. An average is the sum divided by the number of all ranks: a host
  /// gives its sum.
  virtual void all_reduce(void* data, Elements elements, Reduction reduction) = 0;
  /// In place at `root`; the buffers of the others are undefined afterwards.
  virtual void reduce(void* data, Elements elements, Reduction reduction, int root) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root) = 0;
  /// `output` has `bytes` for each host.
  virtual void all_gather(const void* input, void* output, std::size_t bytes) = 0;

  /// Runs an operation that uses another transport between the hosts, with this one's handling of errors.
  virtual void beside(const std::function<void()>& body) = 0;

  /// Tells the other hosts that this rank has failed, so that they stop waiting for it.
  virtual void abandon(const char* failure_text) noexcept = 0;
};

/// The collectives of a group that spans hosts: shared memory within each host, and between them the
/// InterHostTransports of one or more leaders. A message is cut into one slice for each leader, which reduces
/// it over the ranks of its host and exchanges it with the other hosts; the ranks of its host copy the
/// result.
///
/// Every rank works on a buffer that its host can map: its own tensor where that lies in the heap, else a
/// workspace, through which large messages are pipelined piece by piece.
///
/// The hosts verify each operation before its first piece is sent. This host's call is sent to the others
/// while its ranks still synchronise, so that a host that comes late need not wait for the answers.
///
/// Values are combined in rank order within a host and in the transport's fixed order between hosts: all
/// ranks get the same bits, in every run.
class HierarchicalCollectives {
 public:
  struct Parts {
    std::shared_ptr<Group> group;  // Of this rank's host.
    HostTopology hosts;
    int rank = 0;  // In the whole group.
    /// The first so many ranks of each host are its leaders: at most as many as the smallest host has ranks.
    int leaders = 1;
    /// Joins those that are leader number l on their hosts. Null on a rank that is none.
    std::unique_ptr<InterHostTransport> transport = nullptr;
    std::size_t piece_bytes = 8U << 20;  // A message is pipelined in pieces of this size.
  };
  explicit HierarchicalCollectives(Parts parts);
  ~HierarchicalCollectives();
  HierarchicalCollectives(const HierarchicalCollectives&) = delete;
  HierarchicalCollectives& operator=(const HierarchicalCollectives&) = delete;

  // As the functions of the same names in collectives.hpp.
  void all_reduce(void* data, Elements elements, Reduction reduction);
  void reduce(void* data, Elements elements, Reduction reduction, int root);
  void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction);
  void broadcast(void* data, Elements elements, int root);
  void all_gather(const void* input, Buffers outputs, Elements elements);
  void barrier();
  /// An operation over another transport: `body` runs when the calls of the ranks are verified.
  void elsewhere(const Call& call, const std::function<void()>& body);

 private:
  /// What is done at a time: a range of the message, of which the buffer has one or more copies.
  struct Piece {
    std::size_t start;  // In the message, in bytes.
    Elements elements;
    Elements all_copies;
    int leaders;         // How many transfer it.
    std::byte* working;  // This rank's buffer.
    Range own;           // The slice of all copies that this rank transfers.
  };

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
  /// How many pieces a leader transfers from each host when all ranks give one.
  std::size_t rounds() const;

  Parts parts_;
  std::vector<HostTopology::HostRank> places_;  // Of all ranks.
  std::byte* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  std::vector<std::byte*> buffers_;  // What the ranks of this host work on, as this rank sees it.
  bool announced_ = false;           // The call was sent to the other hosts; agree() is still to come.
};

}  // namespace lockstep::shm
