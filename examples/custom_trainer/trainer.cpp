// A trainer of one's own: a data set, a model, and the loop, on one rank or on many.

#include <lockstep/lockstep.hpp>

#include <torch/nn.h>

#include <cmath>
#include <iostream>

/// Points of two intertwined spirals; the label says on which one a point lies. A data set writes two
/// methods.
class Spirals final : public lockstep::Dataset {
 public:
  std::int64_t size() const override { return 1024; }

  lockstep::Example get(std::int64_t index, const lockstep::SampleContext&) const override {
    const double turn = 6.0 * static_cast<double>(index / 2) / 512.0 + 0.5;
    const double side = index % 2 == 0 ? 1.0 : -1.0;
    return {{"point", torch::tensor({side * std::cos(turn) * turn / 6.5, side * std::sin(turn) * turn / 6.5},
                                    torch::kFloat)},
            {"label", torch::tensor(index % 2)}};
  }
};

int train(int argc, char** argv) {
  struct Options {
    std::int64_t epochs = 60;
    std::string output_dir = "out";
  };
  const auto table = lockstep::OptionTable<Options>("custom_trainer", "Tells two spirals apart.")
                         .add("epochs", &Options::epochs, "Passes over the points.", lockstep::at_least(1))
                         .add("output-dir", &Options::output_dir, "Folder for model.safetensors.");
  const auto parsed = table.parse(argc, argv);
  if (parsed.help) return std::cout << table.help(), 0;

  const lockstep::Accelerator accelerator;  // Reads the launcher's environment; one process works too.
  torch::manual_seed(0);
  torch::nn::Sequential model(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Linear(64, 64),
                              torch::nn::ReLU(), torch::nn::Linear(64, 2));
  lockstep::optim::AdamW optimizer(model->parameters(), {.lr = 1e-2});
  lockstep::DataLoader loader(std::make_shared<Spirals>(),
                              {.batch_size = 64, .shuffle = true, .num_workers = 1});
  auto [ddp, opt, batches] = accelerator.prepare(model, optimizer, loader);

  at::Tensor tally = torch::zeros(2);  // Correct answers, answers.
  for (std::int64_t epoch = 0; epoch < parsed.options.epochs; ++epoch) {
    tally.zero_();
    for (auto& batch : batches) {
      const at::Tensor logits = ddp(batch["point"]);
      accelerator.backward(torch::nn::functional::cross_entropy(logits, batch["label"]));
      opt.step();
      opt.zero_grad();
      tally[0] += (logits.argmax(1) == batch["label"]).sum();
      tally[1] += batch.size();
    }
  }
  std::cout << "rank " + std::to_string(accelerator.process_index()) + " of " +
                   std::to_string(accelerator.num_processes()) + " has trained\n";
  tally = accelerator.reduce(tally);
  accelerator.print("accuracy ", (tally[0] / tally[1]).item<double>());
  accelerator.save_model(ddp, parsed.options.output_dir);
  return 0;
}

int main(int argc, char** argv) {
  return lockstep::run_program("custom_trainer", [&] { return train(argc, argv); });
}
