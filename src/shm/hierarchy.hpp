#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "shm/group.hpp"
#include "shm/host_topology.hpp"
#include "shm/inter_host_transport.hpp"

namespace lockstep::shm {

/// The hierarchical collectives of a group that spans hosts: shared memory within each host, one or more
/// InterHostTransports (lanes) between them. A message is cut into one slice for each lane. The rank that
/// owns a lane reduces its slice over the ranks of its host, exchanges it with the other hosts, and the ranks
/// of its host copy the result.
///
/// Every rank works on a buffer that its host can map: its own tensor where that lies in the heap, else a
/// workspace, through which large messages are pipelined piece by piece.
///
/// The hosts verify each operation before its first piece is sent. This host's call is sent to the others
/// while its ranks still synchronise, so that a host that comes late need not wait for the answers.
///
/// Values are combined in rank order within a host and in the lane's fixed order between hosts: all ranks get
/// the same bits, in every run.
class Hierarchy {
 public:
  struct Parts {
    std::shared_ptr<Group> group;  // Of this rank's host.
    HostTopology hosts;
    int rank = 0;  // In the whole group.
    /// Transport number l joins the ranks that are number l on their hosts. At most as many as the smallest
    /// host has ranks.
    int lanes = 1;
    std::unique_ptr<InterHostTransport> lane = nullptr;  // Null on a rank that owns no lane.
    std::size_t piece_bytes = 8U << 20;                  // A message is pipelined in pieces of this size.
  };
  explicit Hierarchy(Parts parts);
  ~Hierarchy();
  Hierarchy(const Hierarchy&) = delete;
  Hierarchy& operator=(const Hierarchy&) = delete;

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
  struct Slice {
    std::size_t start;
    std::size_t length;
  };

  template <class Body>
  void guarded(const Body& body);
  /// Calls `body(start, length, first)` for the pieces of a message of which `copies` lie in a workspace.
  template <class Body>
  void in_pieces(Elements elements, std::size_t copies, const Body& body);
  void begin_piece(const Call& call, bool first, int lanes, const std::byte* working);
  void agree_between_hosts();
  template <class Across>
  void carry(Elements piece, const Across& across);
  void combine(Slice own, Elements piece, Reduction reduction);
  void fetch(void* to, Elements piece, Slice wanted);
  void carry_pieces(std::byte* working, std::size_t bytes);
  void collect(Buffers outputs, std::size_t start, std::size_t bytes);

  int lanes_for(std::size_t bytes) const;
  static Slice slice(int lane, int lanes, Elements piece);
  std::byte* workspace(std::size_t bytes);
  std::byte* visible(std::byte* data, std::size_t bytes);

  StepSync& step_sync() const { return parts_.group->step_sync(); }
  std::size_t member() const { return static_cast<std::size_t>(step_sync().rank()); }
  bool carries(int lanes) const { return step_sync().rank() < lanes; }
  std::size_t hosts() const { return static_cast<std::size_t>(parts_.hosts.count()); }
  /// How many pieces a lane carries from each host when all ranks give one.
  std::size_t rounds() const;

  Parts parts_;
  std::vector<HostTopology::HostRank> places_;  // Of all ranks.
  std::byte* workspace_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  std::vector<std::byte*> buffers_;  // What the ranks of this host work on, as this rank sees it.
  bool announced_ = false;           // The call was sent to the other hosts; agree() is still to come.
};

}  // namespace lockstep::shm
