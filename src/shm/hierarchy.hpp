#pragma once

#include <memory>
#include <vector>

#include "shm/host_topology.hpp"
#include "shm/inter_host_transport.hpp"
#include "shm/transport.hpp"

namespace lockstep::shm {

/// The collectives of a group that spans hosts: in each host by shared memory, between them by lanes. A
/// message is cut into one slice for each lane; the lane's rank combines its slice of all ranks of its host,
/// takes it across, and all ranks of the host fetch the result from there.
///
/// Every rank works on a buffer that its host sees: its own tensor where that lies in the heap, else a
/// workspace, through which large messages go piece by piece.
///
/// The hosts compare each operation before its first piece crosses. What this host calls is announced while
/// its ranks still come together, so that who comes late finds what the others have said.
///
/// Values are combined in the order of ranks within a host and in the lane's fixed order between the hosts,
/// so that all ranks get the same bits, and the same in every run.
class Hierarchy final : public Transport {
 public:
  struct Parts {
    std::shared_ptr<Group> group;  // Of this rank's host.
    HostTopology hosts;
    int rank = 0;  // In the whole group.
    /// Transport number l joins the ranks that are number l on their hosts. At most as many as the smallest
    /// host has ranks.
    int lanes = 1;
    std::unique_ptr<InterHostTransport> lane = nullptr;  // Null on a rank that carries nothing.
    std::size_t piece_bytes = 8U << 20;                  // Of a message on its way.
  };
  explicit Hierarchy(Parts parts);
  ~Hierarchy() override;

  void all_reduce(void* data, Elements elements, Reduction reduction) override;
  void reduce(void* data, Elements elements, Reduction reduction, int root) override;
  void reduce_scatter(ConstBuffers inputs, void* output, Elements elements, Reduction reduction) override;
  void broadcast(void* data, Elements elements, int root) override;
  void all_gather(const void* input, Buffers outputs, Elements elements) override;
  void barrier() override;
  void elsewhere(const Call& call, const std::function<void()>& body) override;

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
  bool announced_ = false;           // To the other hosts, which have not been heard yet.
};

}  // namespace lockstep::shm
