// What a collective makes of strides, of sparse tensors and of JSON.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/comm/process_group.hpp"
#include "lockstep/core/error.hpp"
#include "support/ranks.hpp"
#include "support/throws.hpp"

namespace lockstep {
namespace {

using testing::message_of;
using testing::run_group;

/// In each of the operations that change one tensor in place.
TEST(ProcessGroup, ElementsCorrespondWhateverTheStrides) {
  for (const auto backend : {CommBackend::automatic, CommBackend::gloo}) {
    const Store store = Store::in_memory();
    testing::run_ranks(2, [&](int rank) {
      const ProcessGroup group(rank, 2, store, {.backend = backend});
      const at::Tensor values = at::arange(6, at::kFloat).view({2, 3});
      const auto mine = [&](double factor) {
        const at::Tensor scaled = values * factor;
        return rank == 0 ? scaled.t().contiguous().t() : scaled;
      };
      at::Tensor tensor = mine(rank + 1);
      group.all_reduce(tensor);
      EXPECT_TRUE(at::equal(tensor, values * 3));
      tensor = mine(rank + 1);
      group.all_reduce_async(tensor, ReduceOp::avg).wait();
      EXPECT_TRUE(at::equal(tensor, values * 1.5));
      for (const int root : {0, 1}) {
        tensor = mine(rank + 1);
        group.broadcast(tensor, root);
        EXPECT_TRUE(at::equal(tensor, values * (root + 1)));
        tensor = mine(rank + 1);
        group.reduce(tensor, root);
        if (rank == root) {
          EXPECT_TRUE(at::equal(tensor, values * 3));
        }
        tensor = mine(rank + 1);
        if (rank == root) {
          group.send(tensor, 1 - root);
        } else {
          group.recv(tensor, root);
        }
        EXPECT_TRUE(at::equal(tensor, values * (root + 1)));
      }
      at::Tensor received = mine(0);
      for (auto& work : group.batch_isend_irecv(
               {{P2POp::Op::isend, mine(rank + 1), 1 - rank}, {P2POp::Op::irecv, received, 1 - rank}})) {
        work.wait();
      }
      EXPECT_TRUE(at::equal(received, values * (2 - rank)));
    });
  }
}

TEST(ProcessGroup, SparseTensorsAreAddedUpAndRefusedElsewhere) {
  run_group(2, [&](const ProcessGroup& group) {
    at::Tensor sparse =
        at::sparse_coo_tensor(at::full({1, 1}, group.rank(), at::kLong), at::ones({1, 2}), {3, 2});
    group.all_reduce(sparse);
    EXPECT_TRUE(at::equal(sparse.to_dense(), at::cat({at::ones({2, 2}), at::zeros({1, 2})})));
    EXPECT_NE(message_of<UsageError>([&] { group.broadcast(sparse); }).find("to_dense()"), std::string::npos);
    EXPECT_NE(message_of<UsageError>([&] { (void)group.all_gather(sparse); }).find("to_dense()"),
              std::string::npos);
  });
}

TEST(ProcessGroup, JsonKeepsNumbersThatItsTextHasNot) {
  run_group(2, [&](const ProcessGroup& group) {
    const double infinity = std::numeric_limits<double>::infinity();
    const nlohmann::json object{{"nan", std::nan("")}, {"list", {infinity, -infinity, 1.5, 3, "caf\xe9"}}};
    const nlohmann::json nothing;
    for (const auto& found :
         {group.broadcast_object(group.rank() == 0 ? object : nothing), group.all_gather_object(object).at(1),
          group.scatter_object(std::vector<nlohmann::json>(2, object))}) {
      EXPECT_TRUE(std::isnan(found.at("nan").get<double>()));
      EXPECT_EQ(found.at("list").at(0).get<double>(), infinity);
      EXPECT_EQ(found.at("list").at(1).get<double>(), -infinity);
      EXPECT_EQ(found.at("list").at(3), 3);
      EXPECT_EQ(found.at("list").at(4), "caf\xef\xbf\xbd");
    }
  });
}

}  // namespace
}  // namespace lockstep
