#pragma once

#include <iostream>

#include "lockstep/core/options.hpp"
#include "lockstep/train/trainer.hpp"
#include "text/files.hpp"

namespace texts {

/// Parses the command line. `complete` then sets and checks options that depend on others, and `train` runs
/// on the Accelerator that they describe. Returns the program's exit code.
template <class Options>
int run(int argc, char** argv, const lockstep::OptionTable<Options>& table, void (*complete)(Options&),
        int (*train)(const lockstep::Accelerator&, const Options&)) {
  const auto parsed = table.parse(argc, argv);
  if (parsed.help) {
    std::cout << table.help();
    return 0;
  }
  Options options = parsed.options;
  complete(options);
  lockstep::check_training_arguments(options);
  return train(lockstep::Accelerator(lockstep::accelerator_options(options)), options);
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
