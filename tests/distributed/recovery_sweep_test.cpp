// Every operation of four training steps fails once, in every way, on every rank: the ranks recover in their
// processes, a rank that ended is replaced by a new process, and all bits are those of an undisturbed run.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "comm/backend/cpu_backend.hpp"
#include "comm/group_observer.hpp"
#include "comm/revocation_watch.hpp"
#include "core/checksum.hpp"
#include "lockstep/checkpoint/optimizer_state.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/optim/lr_scheduler.hpp"
#include "lockstep/train/accelerator.hpp"
#include "net/address.hpp"
#include "net/socket.hpp"
#include "net/store/server.hpp"
#include "support/temporary_folder.hpp"
#include "train/elastic/elastic_training.hpp"
#include "train/elastic/step_seed.hpp"

namespace lockstep {
namespace {

constexpr std::uint64_t kSteps = 4;
constexpr int kMostRanks = 3;
constexpr int kReplaced = 3;  // The exit status of a rank that wants a successor.

enum class Fault { none, throws_before, throws_after, connection_is_cut, ends_before, ends_after };
constexpr Fault kFaults[] = {Fault::throws_before, Fault::throws_after, Fault::connection_is_cut,
                             Fault::ends_before, Fault::ends_after};

/// One training in which one operation fails.
struct Case {
  Fault fault = Fault::none;
  int rank = -1;
  int operation = -1;
};

/// Case 0 is the undisturbed training; the others follow in the order of operations, ranks and faults.
Case case_of(int number, int ranks) {
  if (number == 0) return {};
  constexpr int kCount = std::size(kFaults);
  --number;
  return {kFaults[number % kCount], number / kCount % ranks, number / kCount / ranks};
}

/// What the processes of a sweep share: where each rank is, and how many operations a training has.
struct Progress {
  std::atomic<int> number[kMostRanks];  // Of its case.
  std::atomic<int> operations;
};

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(6, 8));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    second = register_module("second", torch::nn::Linear(8, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second(dropout(torch::relu(norm(first(x))))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Net);

/// Counts the operations of a rank, and lets one fail.
class Faults {
 public:
  Faults(Fault fault, int operation, std::function<void()> before_end)
      : fault_(fault), operation_(operation), before_end_(std::move(before_end)) {}

  void begins(comm::Transport& transport) {
    failing() = counts_ && count_++ == operation_;
    if (!failing()) return;
    if (fault_ == Fault::throws_before) throw Error("this operation fails before it begins");
    if (fault_ == Fault::connection_is_cut) transport.abort("the connections are cut");
    if (fault_ == Fault::ends_before) end();
  }
  void has_run() {
    if (!std::exchange(failing(), false)) return;
    if (fault_ == Fault::throws_after) throw Error("this operation fails after it has run");
    if (fault_ == Fault::ends_after) end();
  }
  void count(bool counts) { counts_ = counts; }
  int operations() const { return count_; }

 private:
  /// Of this thread's operation: the next one may begin in another thread meanwhile.
  static bool& failing() {
    thread_local bool is = false;
    return is;
  }

  [[noreturn]] void end() {
    before_end_();
    ::_exit(kReplaced);
  }

  Fault fault_;
  int operation_;
  std::function<void()> before_end_;
  std::atomic<bool> counts_{false};
  std::atomic<int> count_{0};
};

class FaultyTransport final : public comm::Transport {
 public:
  FaultyTransport(std::shared_ptr<comm::Transport> inner, Faults& faults)
      : inner_(std::move(inner)), faults_(faults) {}

  const char* name() const override { return inner_->name(); }
  int concurrency() const override { return inner_->concurrency(); }
  shm::Group* memory() const override { return inner_->memory(); }
  void begin(const comm::CollectiveCall& call) override {
    faults_.begins(*inner_);
    inner_->begin(call);
  }
  void run(const shm::Collective& collective) override {
    inner_->run(collective);
    faults_.has_run();
  }
  std::unique_ptr<comm::Message> send(const at::Tensor& tensor, int destination, int tag) override {
    return inner_->send(tensor, destination, tag);
  }
  std::unique_ptr<comm::Message> recv(const at::Tensor& tensor, int source, int tag) override {
    return inner_->recv(tensor, source, tag);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  std::shared_ptr<comm::Transport> inner_;
  Faults& faults_;
};

std::uint32_t checksum_of(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().contiguous();
  return crc32c(plain.const_data_ptr(), plain.nbytes());
}

/// What one rank does in one case.
class Job {
 public:
  Job(const Store& store, int rank, int ranks, CommBackend backend, Case failing, std::ostream& results)
      : store_(store), rank_(rank), ranks_(ranks), failing_(failing), results_(results) {
    options_ = {
        .backend = backend, .timeout = std::chrono::seconds(60), .join_timeout = std::chrono::seconds(60)};
  }

  /// Returns the number of the operations. `generation`: 2 for a process that replaces one.
  int run(std::uint64_t generation) {
    World world;
    world.rank = world.local_rank = rank_;
    world.world_size = world.local_world_size = ranks_;
    const ProcessGroup group = generation == 1
                                   ? ProcessGroup(rank_, ranks_, store_, options_)
                                   : comm::join_generation(rank_, ranks_, store_, generation, options_);
    std::optional<comm::RevocationWatch> watch;
    Faults faults(failing_.rank == rank_ && generation == 1 ? failing_.fault : Fault::none,
                  failing_.operation, [&] { watch->revoke("rank " + std::to_string(rank_) + " ends"); });
    if (generation == 1) {
      auto& backend = dynamic_cast<comm::CpuBackend&>(*group.c10d_process_group()->getBackend(at::kCPU));
      backend.wrap_transport(
          [&](auto inner) { return std::make_shared<FaultyTransport>(std::move(inner), faults); });
    }
    Accelerator accelerator(world, group, {.gradient_accumulation_steps = 2});
    torch::manual_seed(rank_ + 10 * static_cast<int>(generation));
    Net net;
    torch::optim::AdamW adam(net->parameters(), torch::optim::AdamWOptions(0.05));
    optim::LrScheduler linear(adam, {.name = "linear", .num_warmup_steps = 2, .num_training_steps = 9});
    DataLoader loader(dataset(), {.batch_size = 4, .shuffle = true, .seed = 5});
    auto [ddp, opt, scheduler, batches] = accelerator.prepare(net, adam, linear, loader);
    train::ElasticTraining training(accelerator, 77);
    if (generation == 1)
      training.begin();
    else
      training.join();
    watch.emplace(store_.with_prefix("elastic"), group);
    faults.count(true);
    for (bool done = false; !done;) {
      try {
        while (training.step() < kSteps) train_epoch(accelerator, training, ddp, opt, scheduler, batches);
        faults.count(false);
        group.all_reduce(at::ones({1}));  // Whoever leaves before may be needed as a source.
        done = true;
      } catch (const Error& error) {
        faults.count(false);
        watch->revoke(error.what());
        watch.reset();
        group.abort(error.what());
        training.recover();
        watch.emplace(store_.with_prefix("elastic"), group);
      }
    }
    write_state(net, adam, linear);
    group.all_reduce(at::ones({1}));
    return faults.operations();
  }

 private:
  static std::shared_ptr<TensorDataset> dataset() {
    const auto x = torch::arange(40 * 6, torch::kFloat).mul(0.7).sin().view({40, 6});
    const auto y = torch::arange(40 * 3, torch::kFloat).mul(0.3).cos().view({40, 3});
    return std::make_shared<TensorDataset>(Batch{{"x", x}, {"y", y}});
  }

  template <class Ddp, class Optimizer, class Scheduler>
  void train_epoch(Accelerator& accelerator, train::ElasticTraining& training, Ddp& ddp, Optimizer& opt,
                   Scheduler& scheduler, DataLoader& batches) {
    std::uint32_t losses = 0;
    for (auto& batch : batches) {
      {
        const auto micro_batch = accelerator.accumulate();
        const at::Tensor loss = torch::mse_loss(ddp(batch["x"]), batch["y"]);
        losses = losses * 31 + checksum_of(loss);
        accelerator.backward(loss);
        if (accelerator.sync_gradients()) accelerator.clip_grad_norm_(ddp, 0.5);
        opt.step();
        scheduler.step();
        opt.zero_grad();
      }
      if (!accelerator.sync_gradients()) continue;
      const std::uint64_t step = training.step();
      training.commit();
      write("loss of step " + std::to_string(step), std::exchange(losses, 0));
      accelerator.process_group().all_reduce(at::ones({2}));  // As a program that logs.
      if (training.step() == kSteps) return;
    }
  }

  void write(const std::string& what, std::uint32_t checksum) {
    results_ << what << '\t' << checksum << '\n' << std::flush;
  }

  /// Buffers are left out: batch norm's statistics are those of rank 0's samples, and are lost with it.
  void write_state(const Net& net, const torch::optim::Optimizer& optimizer,
                   const optim::LrScheduler& scheduler) {
    std::vector<NamedTensor> names;
    for (const auto& entry : net->named_parameters()) {
      write(entry.key(), checksum_of(entry.value()));
      names.push_back({entry.key(), entry.value()});
    }
    const OptimizerState state = optimizer_state(optimizer, names);
    for (const auto& [name, tensor] : state.tensors) write("optimizer " + name, checksum_of(tensor));
    write("options", crc32c(state.options.data(), state.options.size()));
    const std::string schedule = scheduler.state_dict();
    write("scheduler", crc32c(schedule.data(), schedule.size()));
  }

  Store store_;
  int rank_, ranks_;
  ProcessGroupOptions options_;
  Case failing_;
  std::ostream& results_;
};

/// One file of results for each case and rank: what was found, by name. The same found twice is the same.
using Results = std::map<std::string, std::string>;

Results read_results(const std::filesystem::path& path) {
  std::ifstream file(path);
  Results results;
  for (std::string line; std::getline(file, line);) {
    const auto tab = line.find('\t');
    const auto [place, is_new] = results.emplace(line.substr(0, tab), line.substr(tab + 1));
    EXPECT_EQ(place->second, line.substr(tab + 1)) << path << ": " << line;
  }
  return results;
}

/// Processes as ranks that run one case after the other. This process has no threads, so that it may fork.
class Sweep {
 public:
  Sweep(int ranks, CommBackend backend) : ranks_(ranks), backend_(backend) {
    void* const memory =
        mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    progress_ = new (memory) Progress{};
  }
  ~Sweep() {
    for (const auto& [pid, rank] : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    kill(host_, SIGKILL);
    waitpid(host_, nullptr, 0);
    munmap(progress_, sizeof(Progress));
  }
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;

  void host_store() {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    host_ = fork();
    if (host_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const net::Server server(net::listen_at(net::Address::loopback(0)));
      const std::uint16_t port = server.address().port();
      if (::write(ends[1], &port, sizeof port) != sizeof port) ::_exit(1);
      for (;;) pause();
    }
    ASSERT_EQ(::read(ends[0], &port_, sizeof port_), static_cast<ssize_t>(sizeof port_));
    ::close(ends[0]);
    ::close(ends[1]);
  }

  /// Runs every `stride`-th case from `first` up to `end`. False if a rank failed.
  bool run(int first, int end, int stride) {
    stride_ = stride;
    for (int rank = 0; rank < ranks_; ++rank) start(rank, first, end, 1);
    while (!pids_.empty()) {
      int status = 0;
      const pid_t pid = wait(&status);
      const auto found = pids_.find(pid);
      if (found == pids_.end()) return false;
      const int rank = found->second;
      pids_.erase(found);
      if (WIFEXITED(status) && WEXITSTATUS(status) == kReplaced) {
        start(rank, progress_->number[rank], end, 2);
        ++replaced_;
      } else if (status != 0) {
        ADD_FAILURE() << "rank " << rank << " failed in case " << text_of(progress_->number[rank]);
        return false;
      }
    }
    return true;
  }

  void compare(int number) const {
    for (int rank = 0; rank < ranks_; ++rank) {
      Results wanted = read_results(path_of(0, rank)), got = read_results(path_of(number, rank));
      // What a lost rank has found it has not found twice.
      for (auto& [name, value] : wanted) {
        if (name.starts_with("loss") && !got.contains(name)) got.emplace(name, value);
      }
      EXPECT_EQ(wanted, got) << text_of(number) << ", seen by rank " << rank;
    }
  }

  int cases() const { return 1 + progress_->operations * ranks_ * static_cast<int>(std::size(kFaults)); }
  int operations() const { return progress_->operations; }
  int replaced() const { return replaced_; }

 private:
  std::filesystem::path path_of(int number, int rank) const {
    return folder_.path() / (std::to_string(number) + "." + std::to_string(rank));
  }
  std::string text_of(int number) const {
    const Case one = case_of(number, ranks_);
    std::ostringstream text;
    text << "case " << number << ": operation " << one.operation << " of rank " << one.rank << ", fault "
         << static_cast<int>(one.fault);
    return text.str();
  }

  void start(int rank, int first, int end, std::uint64_t generation) {
    const pid_t pid = fork();
    if (pid != 0) {
      pids_[pid] = rank;
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      work(rank, first, end, generation);
    } catch (const std::exception& error) {
      std::cerr << "rank " << rank << ", " << text_of(progress_->number[rank]) << ": " << error.what()
                << '\n';
      ::_exit(1);
    }
    ::_exit(0);
  }

  void work(int rank, int first, int end, std::uint64_t generation) const {
    at::set_num_threads(1);
    World world;
    world.rank = world.local_rank = rank;
    world.world_size = world.local_world_size = ranks_;
    world.master_addr = "127.0.0.1";
    world.master_port = port_;
    world.use_agent_store = true;
    const Store store = Store::connect(world);
    for (int number = first; number < end; number += stride_, generation = 1) {
      progress_->number[rank] = number;
      std::ofstream results(path_of(number, rank), std::ios::app);
      Job job(store.with_prefix("case/" + std::to_string(number)), rank, ranks_, backend_,
              case_of(number, ranks_), results);
      const int operations = job.run(generation);
      if (number == 0) progress_->operations = operations;
    }
  }

  int ranks_;
  CommBackend backend_;
  Progress* progress_ = nullptr;
  testing::TemporaryFolder folder_;
  pid_t host_ = -1;
  std::uint16_t port_ = 0;
  std::map<pid_t, int> pids_;
  int replaced_ = 0;
  int stride_ = 1;
};

/// `stride`: 1 for all cases. A prime above 5 passes through all faults.
void expect_undisturbed_bits(int ranks, CommBackend backend, int stride) {
  Sweep sweep(ranks, backend);
  sweep.host_store();
  ASSERT_TRUE(sweep.run(0, 1, 1));
  ASSERT_GT(sweep.operations(), 10);
  ASSERT_TRUE(sweep.run(1, sweep.cases(), stride));
  int ended = 0;
  for (int number = 1; number < sweep.cases(); number += stride) {
    sweep.compare(number);
    const Fault fault = case_of(number, ranks).fault;
    ended += fault == Fault::ends_before || fault == Fault::ends_after ? 1 : 0;
  }
  EXPECT_EQ(sweep.replaced(), ended);
}

at::Tensor drawn(std::uint64_t seed, std::uint64_t step, int rank) {
  train::seed_step(at::kCPU, seed, step, rank);
  return at::rand({64});
}

TEST(TheSeedOfAStep, IsThatOfTheJobTheStepAndTheRank) {
  const at::Tensor wanted = drawn(7, 3, 1);
  for (const auto& other : {drawn(8, 3, 1), drawn(7, 4, 1), drawn(7, 3, 0), drawn(3, 7, 1), drawn(7, 1, 3)})
    EXPECT_FALSE(at::equal(other, wanted));
  // Whatever was drawn before, also by another process.
  EXPECT_TRUE(at::equal(drawn(7, 3, 1), wanted));
}

TEST(RecoverySweep, TwoRanksInSharedMemory) { expect_undisturbed_bits(2, CommBackend::shm, 1); }
TEST(RecoverySweep, ThreeRanksInSharedMemory) { expect_undisturbed_bits(3, CommBackend::shm, 7); }
TEST(RecoverySweep, TwoRanksOverGloo) { expect_undisturbed_bits(2, CommBackend::gloo, 7); }
TEST(RecoverySweep, ThreeRanksOverGloo) { expect_undisturbed_bits(3, CommBackend::gloo, 11); }

}  // namespace
}  // namespace lockstep
