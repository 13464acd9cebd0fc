#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "lockstep/models/token_loss_model.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "unit/parallel/sharded_net.hpp"

namespace lockstep::models {

/// Which rank's data this rank trains on.
using DataOfRank = std::function<int()>;

/// The parameters after two steps of `loss(model, rank, step)`.
template <class Wrapped>
std::vector<at::Tensor> trained_values(Wrapped& wrapped, TokenLossModel model, const auto& loss,
                                       const auto& whole, const DataOfRank& data) {
  testing::losses_of(
      wrapped, model->parameters(), [&](auto& net, int step) { return loss(net, data(), step); }, 2);
  [[maybe_unused]] const auto parameters = whole();
  std::vector<at::Tensor> values;
  for (const auto& parameter : model->parameters()) values.push_back(parameter.detach().clone());
  return values;
}

std::vector<at::Tensor> values_of_ddp(const ProcessGroup& group, TokenLossModel model, const auto& loss,
                                      const DataOfRank& data) {
  DistributedDataParallel<TokenLossModel> wrapped(model, group);
  return trained_values(
      wrapped, model, loss, [] { return 0; }, data);
}

std::vector<at::Tensor> values_of_fsdp(const ProcessGroup& group, TokenLossModel model, const auto& loss,
                                       const DataOfRank& data) {
  auto wrapped = fully_shard(model, group);
  return trained_values(
      wrapped, model, loss, [&] { return wrapped.full_parameters(); }, data);
}

inline void expect_same_values(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others) {
  ASSERT_EQ(some.size(), others.size());
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(at::equal(some[i], others[i])) << i;
}

/// `make()` returns a model that is the same each time. DDP and FSDP train it with the same bits, and, if
/// both ranks have the same data, with those of one rank.
void expect_parallel_bits(const auto& make, const auto& loss) {
  const DataOfRank same = [] { return 0; };
  std::vector<at::Tensor> alone;
  testing::run_group(1, [&](const ProcessGroup& group) { alone = values_of_ddp(group, make(), loss, same); });
  const auto untrained = make()->parameters();
  EXPECT_FALSE(at::equal(alone.front(), untrained.front()));
  testing::run_group(2, [&](const ProcessGroup& group) {
    const DataOfRank own = [&] { return group.rank(); };
    expect_same_values(values_of_ddp(group, make(), loss, same), alone);
    expect_same_values(values_of_fsdp(group, make(), loss, same), alone);
    expect_same_values(values_of_fsdp(group, make(), loss, own), values_of_ddp(group, make(), loss, own));
  });
}

}  // namespace lockstep::models
