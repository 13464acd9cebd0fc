#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/checkpoint/checkpoint_info.hpp"
#include "lockstep/comm/process_group.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::train {

/// Knows which frozen parameters of a prepared model have the values that the program gave it: a checkpoint
/// of what is trained leaves these out, and has their digest instead.
///
/// A checksum is computed when a checkpoint first needs it, and again only if the parameter may have been
/// written since: its version counts operations in place, another address shows set_data(), and a sharded
/// model counts what is written to it from outside. A parameter that is trained or written for a while and
/// frozen again is no longer the program's: it is saved from then on.
///
/// The ranks share the work. Of a sharded parameter each has a part anyway; of a whole one each takes as
/// much. The checksums of the parts are joined to that of the whole, so that the digest is the same on any
/// number of ranks, and no tensor is gathered.
class FrozenParameters {
 public:
  /// Notes the parameters as they are. `sharded`: the model's wrapper if it is fully sharded, which must
  /// outlive this object. *Local*.
  FrozenParameters(const std::vector<NamedTensor>& parameters, const FullyShardedDataParallelBase* sharded);

  /// Those that are frozen and as the program gave them, each once. *Collective*.
  std::vector<NamedTensor> untouched(const std::vector<NamedTensor>& parameters, const ProcessGroup& group);
  /// The digest of these parameters as they are now, each named once. *Collective*.
  FrozenWeights digest(std::vector<NamedTensor> parameters, const ProcessGroup& group);

 private:
  struct Stamp {
    std::uint32_t version = 0;
    const void* data = nullptr;
    std::int64_t generation = 0;
    bool operator==(const Stamp&) const = default;
  };
  struct Entry {
    Stamp stamp;
    std::optional<std::uint32_t> checksum;
    /// Whether it has had other values than the program gave it.
    bool is_touched = false;
  };
  /// This rank's part of a parameter: elements of the whole in row-major order.
  struct Part {
    std::int64_t begin;
    at::Tensor elements;
  };

  Stamp stamp_of(const at::Tensor& parameter) const;
  std::vector<std::int64_t> sizes_of(const at::Tensor& parameter) const;
  Part part_of(const at::Tensor& parameter, const ProcessGroup& group) const;
  Entry& entry_of(const NamedTensor& parameter);
  /// Brings the checksums up to date; with `only_untouched` those of parameters that are not touched.
  void refresh(const std::vector<NamedTensor>& parameters, const ProcessGroup& group, bool only_untouched);
  std::vector<std::uint32_t> checksums_of(const std::vector<NamedTensor>& parameters,
                                          const ProcessGroup& group) const;

  const FullyShardedDataParallelBase* sharded_;
  std::map<const void*, Entry> entries_;
};

}  // namespace lockstep::train
