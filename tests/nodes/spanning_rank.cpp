// A rank of a job over several hosts. Its first argument says what it does; it fails when a result is wrong,
// and prints "done" with the name of what carried its tensors.

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/backend/cpu_backend.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "lockstep/parallel/distributed_data_parallel.hpp"
#include "support/disagreements.hpp"
#include "support/every_collective.hpp"
#include "support/list_exchange.hpp"

namespace lockstep {
namespace {

struct Groups {
  ProcessGroup spanning;
  ProcessGroup gloo;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw Error("wrong: " + what);
}

std::string name_of_backend(const ProcessGroup& group) {
  return group.c10d_process_group()->getBackend(at::kCPU)->getBackendName();
}

at::Tensor values(at::ScalarType dtype, int rank, std::int64_t count) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(rank + 1));
  const at::Tensor whole = at::randint(1, 4, {count}, generator);
  return whole.to(dtype);
}

/// The same bits on every rank.
void require_agreement(const ProcessGroup& group, const at::Tensor& tensor, const std::string& what) {
  for (const auto& other : group.all_gather(tensor))
    require(at::equal(other, tensor), what + ": ranks differ");
}

const std::map<std::string, ReduceOp> kOperations{
    {"sum", ReduceOp::sum},         {"product", ReduceOp::product}, {"min", ReduceOp::min},
    {"max", ReduceOp::max},         {"bit_and", ReduceOp::bit_and}, {"bit_or", ReduceOp::bit_or},
    {"bit_xor", ReduceOp::bit_xor}, {"avg", ReduceOp::avg}};

void compare_reduction(const Groups& groups, at::ScalarType dtype, const std::string& name,
                       std::int64_t count) {
  const ReduceOp op = kOperations.at(name);
  const std::string what = name + " of " + std::to_string(count) + " " + c10::toString(dtype);
  const at::Tensor ours = values(dtype, groups.gloo.rank(), count);
  const at::Tensor theirs = ours.clone(), at_root = ours.clone(), before = ours.clone();
  groups.spanning.all_reduce(ours, op);
  groups.gloo.all_reduce(theirs, op);
  require(at::equal(ours, theirs), "all_reduce, " + what);
  const bool is_root = groups.gloo.rank() == groups.gloo.size() - 1;
  groups.spanning.reduce(at_root, groups.gloo.size() - 1, op);
  // Gloo by itself leaves what it likes in the others' tensors.
  if (!is_root && name_of_backend(groups.spanning) == "gloo") return;
  require(at::equal(at_root, is_root ? theirs : before), "reduce, " + what);
}

void compare_reductions(const Groups& groups) {
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kChar, at::kByte}) {
    const bool floating = at::isFloatingType(dtype);
    for (const auto& [name, op] : kOperations) {
      if (floating ? name.starts_with("bit") : name == "avg") continue;
      for (const std::int64_t count : {1, 1000, 70'001}) compare_reduction(groups, dtype, name, count);
    }
  }
  compare_reduction(groups, at::kFloat, "sum", 5'000'003);
}

/// What Gloo has no answer to.
void check_what_gloo_cannot(const Groups& groups) {
  const int size = groups.gloo.size();
  const at::Tensor shorts = at::full({3000}, 7, at::kShort);
  groups.spanning.all_reduce(shorts);
  require(at::equal(shorts, at::full({3000}, 7 * size, at::kShort)), "sum of int16");
  const at::Tensor flags = at::full({3000}, groups.gloo.rank() == 0, at::kBool);
  groups.spanning.all_reduce(flags);
  require(flags.all().item<bool>(), "sum of bool");
  groups.spanning.all_reduce(at::empty({0}));
}

/// Not only whole numbers: the order of additions shows, and is the same on all ranks and in every run.
void check_rounding(const Groups& groups) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(groups.gloo.rank() + 1));
  const at::Tensor ours = at::randn({100'003}, generator);
  const at::Tensor again = ours.clone(), theirs = ours.clone();
  groups.spanning.all_reduce(ours);
  groups.spanning.all_reduce(again);
  groups.gloo.all_reduce(theirs);
  require(at::equal(ours, again), "the same sum twice");
  require(at::allclose(ours, theirs, 1e-5, 1e-5), "a sum of any numbers");
  require_agreement(groups.gloo, ours, "a sum of any numbers");
}

void compare_movements(const Groups& groups, std::int64_t count) {
  const auto& [ours, gloo] = groups;
  const int rank = gloo.rank(), size = gloo.size();
  const std::string what = " of " + std::to_string(count);
  const at::Tensor own = values(at::kDouble, rank, count);
  for (int root = 0; root < size; ++root) {
    const at::Tensor sent = own.clone();
    ours.broadcast(sent, root);
    require(at::equal(sent, values(at::kDouble, root, count)), "broadcast" + what);
  }
  const at::Tensor gathered = at::empty({size * count}, at::kDouble);
  ours.all_gather_into_tensor(gathered, own);
  const auto list = ours.all_gather(own);
  const auto at_root = ours.gather(own, 1);
  for (int r = 0; r < size; ++r) {
    const at::Tensor expected = values(at::kDouble, r, count);
    require(at::equal(gathered.narrow(0, r * count, count), expected), "all_gather_into_tensor" + what);
    require(at::equal(list[static_cast<std::size_t>(r)], expected), "all_gather" + what);
    if (rank == 1) require(at::equal(at_root[static_cast<std::size_t>(r)], expected), "gather" + what);
  }
  const at::Tensor scattered = at::empty({count}, at::kDouble), reduced = at::empty({count}, at::kDouble);
  ours.scatter(scattered, rank == 0 ? list : std::vector<at::Tensor>{}, 0);
  require(at::equal(scattered, own), "scatter" + what);
  ours.reduce_scatter_tensor(reduced, gathered);
  require(at::equal(reduced, own * size), "reduce_scatter_tensor" + what);
  ours.reduce_scatter(reduced, list);
  require(at::equal(reduced, own * size), "reduce_scatter" + what);
  const at::Tensor exchanged = at::empty_like(gathered);
  ours.all_to_all_single(exchanged, gathered);
  require(at::equal(exchanged, own.repeat({size})), "all_to_all_single" + what);
}

void check_messages(const ProcessGroup& group) {
  const int next = (group.rank() + 1) % group.size(),
            before = (group.rank() + group.size() - 1) % group.size();
  const at::Tensor received = at::empty({3});
  Work receive = group.recv_async(received, before);
  group.send(at::full({3}, static_cast<float>(group.rank())), next);
  receive.wait();
  require(at::equal(received, at::full({3}, static_cast<float>(before))), "send and recv");
}

/// Two messages of each other rank, which the last rank receives from anybody: by sender, one behind the
/// other in the order in which they came.
std::map<int, at::Tensor> messages_from_anybody(const ProcessGroup& group, std::int64_t count, int tag) {
  const int last = group.size() - 1;
  std::map<int, at::Tensor> received;
  const at::Tensor own = values(at::kDouble, group.rank(), count);
  if (group.rank() != last) {
    group.send(own, last, tag);
    group.send(own + 1, last, tag);
    return received;
  }
  for (int i = 0; i < 2 * last; ++i) {
    const at::Tensor place = at::zeros({count}, at::kDouble);
    at::Tensor& all = received[group.recv_any_source(place, tag)];
    all = all.defined() ? at::cat({all, place}) : place;
  }
  return received;
}

void compare_messages_from_anybody(const Groups& groups, std::int64_t count) {
  const int tag = static_cast<int>(count);
  const auto ours = messages_from_anybody(groups.spanning, count, tag);
  const auto theirs = messages_from_anybody(groups.gloo, count, tag);
  require(ours.size() == theirs.size(), "the senders of messages from anybody");
  for (const auto& [source, all] : theirs) {
    const at::Tensor sent = values(at::kDouble, source, count);
    require(at::equal(all, at::cat({sent, sent + 1})), "Gloo's messages from anybody");
    require(ours.contains(source) && at::equal(ours.at(source), all), "messages from anybody");
  }
}

void compare_all(const Groups& groups) {
  compare_reductions(groups);
  check_what_gloo_cannot(groups);
  check_rounding(groups);
  for (const std::int64_t count : {1, 999, 300'001}) compare_movements(groups, count);
  for (const auto* group : {&groups.spanning, &groups.gloo}) {
    const std::string problem = testing::list_exchange_problem(*group);
    require(problem.empty(), problem);
  }
  check_messages(groups.spanning);
  for (const std::int64_t count : {1, 999, 300'001}) compare_messages_from_anybody(groups, count);
  groups.spanning.c10d_process_group()->barrier()->wait();
}

/// Two groups at once, from one thread each operation of which is under way while the other's begins.
void check_concurrent_groups(const ProcessGroup& world, const std::optional<ProcessGroup>& part) {
  std::vector<Work> works;
  std::vector<at::Tensor> sums, parts;
  for (int i = 0; i < 50; ++i) {
    sums.push_back(at::ones({1 + i * 1000}));
    works.push_back(world.all_reduce_async(sums.back()));
    if (!part) continue;
    parts.push_back(at::ones({1 + i * 1000}));
    works.push_back(part->all_reduce_async(parts.back()));
  }
  for (auto& work : works) work.wait();
  for (const auto& sum : sums) require((sum == world.size()).all().item<bool>(), "a sum of all");
  for (const auto& sum : parts) require((sum == part->size()).all().item<bool>(), "a sum of a part");
}

/// `ranks` and what shall carry their tensors.
void check_part(const Groups& groups, const std::vector<int>& ranks, const std::string& backend) {
  const auto ours = groups.spanning.new_group(ranks);
  const auto gloo = groups.gloo.new_group(ranks);
  check_concurrent_groups(groups.spanning, ours);
  if (!ours) return;
  require(name_of_backend(*ours) == backend, name_of_backend(*ours) + " carries a part, not " + backend);
  const Groups part{*ours, *gloo};
  compare_reduction(part, at::kFloat, "sum", 100'000);
  check_rounding(part);
}

/// Ranks 0, 1 and 2 are on one host, 3 and 4 on the other.
void check_parts(const Groups& groups) {
  check_part(groups, {0, 3}, "gloo");
  check_part(groups, {0, 1, 3}, "shm+gloo");
  check_part(groups, {4, 1, 3, 0}, "shm+gloo");
  check_part(groups, {0, 1, 2}, "shm");
  check_part(groups, {4, 3}, "shm");
}

std::shared_ptr<torch::nn::LinearImpl> train(const ProcessGroup& group, bool views) {
  auto model = std::make_shared<torch::nn::LinearImpl>(300, 400);
  {
    const at::NoGradGuard no_grad;
    model->weight.fill_(group.rank() == 0 ? 0.01 : 0.5);
    model->bias.fill_(0.5);
  }
  DistributedDataParallel ddp(model, group, {.gradient_as_bucket_view = views});
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(group.rank()));
  for (int step = 0; step < 4; ++step) {
    ddp(at::randn({4, 300}, generator)).square().sum().backward();
    const at::NoGradGuard no_grad;
    model->weight -= model->weight.grad() * 1e-4;
    ddp.zero_grad();
  }
  return model;
}

void check_training(const Groups& groups) {
  for (const bool views : {true, false}) {
    const auto ours = train(groups.spanning, views);
    const auto theirs = train(groups.gloo, views);
    require(at::allclose(ours->weight, theirs->weight, 1e-4, 1e-6), "weights as over Gloo");
    require_agreement(groups.gloo, ours->weight.detach(), "weights");
  }
}

/// Until it fails. The pid is left for who shall end this rank.
[[noreturn]] void repeat_until_the_end(const testing::Collective& collective, const ProcessGroup& group,
                                       const std::string& folder) {
  collective(group);
  const std::string file = folder + "/" + std::to_string(group.rank());
  std::FILE* out = std::fopen((file + ".new").c_str(), "w");
  if (out == nullptr || std::fprintf(out, "%d\n", getpid()) < 0 || std::fclose(out) != 0 ||
      std::rename((file + ".new").c_str(), file.c_str()) != 0) {
    throw Error("cannot write " + file);
  }
  for (;;) collective(group);
}

void run(const std::string& what, const std::string& folder) {
  const World world = World::from_environment();
  const auto endless = testing::every_collective();
  const auto repeated = endless.find(what);
  const std::chrono::milliseconds timeout(repeated == endless.end() ? 60'000 : 5'000);
  const Store store = Store::connect(world);
  const auto group = [&](const std::string& prefix, CommBackend backend) {
    return ProcessGroup(world.rank, world.world_size, store.with_prefix(prefix),
                        {.backend = backend, .timeout = timeout});
  };
  const Groups groups{group("spanning", CommBackend::automatic), group("gloo", CommBackend::gloo)};
  if (repeated != endless.end()) repeat_until_the_end(repeated->second, groups.spanning, folder);
  const std::string disagreement = "disagree:";
  if (what.starts_with(disagreement))
    testing::disagree(groups.spanning, what.substr(disagreement.size()), world.group_rank == 1);
  if (what == "all") compare_all(groups);
  if (what == "parts") check_parts(groups);
  if (what == "training") check_training(groups);
  groups.gloo.barrier();
  std::printf("done: %s\n", name_of_backend(groups.spanning).c_str());
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run_program("spanning_rank", [&] {
    if (argc != 3) return 2;
    lockstep::run(argv[1], argv[2]);
    return 0;
  });
}
