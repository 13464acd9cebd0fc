#pragma once

#include <iostream>
#include <vector>

#include "lockstep/core/options.hpp"
#include "lockstep/train/trainer.hpp"
#include "options/dependent_options.hpp"
#include "text/files.hpp"

namespace texts {

/// A program's own part of run().
template <class Options>
struct Program {
  const lockstep::OptionTable<Options>& table;
  /// Sets and checks options that depend on others.
  void (*complete)(Options&);
  /// Those beside the training arguments that have an effect only together with others.
  std::vector<program_options::DependentOption> (*dependent)(const Options&);
  int (*train)(const lockstep::Accelerator&, const Options&);
};

/// Parses and checks the command line, and trains on the Accelerator that it describes. Returns the program's
/// exit code.
template <class Options>
int run(int argc, char** argv, const Program<Options>& program) {
  const auto& table = program.table;
  const auto parsed = table.parse(argc, argv);
  if (parsed.help) {
    std::cout << table.help();
    return 0;
  }
  Options options = parsed.options;
  program.complete(options);
  lockstep::check_training_arguments(options);
  for (const auto& dependent : {program.dependent(options), program_options::dependent_arguments(options)})
    program_options::check_dependent_options(table, parsed, dependent);
  return program.train(lockstep::Accelerator(lockstep::accelerator_options(options)), options);
}

/// Writes the model with its tokenizer to the output_dir, for Hugging Face's from_pretrained, batch_inference
/// and these programs' --model.
template <class Model>
void save(const lockstep::Trainer& trainer, Model model, const std::string& tokenizer,
          const Languages& languages = {}) {
  const auto whole = trainer.accelerator().full_parameters(model);
  trainer.accelerator().on_main_process([&] {
    save_pretrained(model, trainer.args().output_dir);
    copy_tokenizer(tokenizer, trainer.args().output_dir, languages);
  });
}

}  // namespace texts
