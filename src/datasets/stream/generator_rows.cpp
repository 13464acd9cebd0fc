#include "datasets/stream/generator_rows.hpp"

#include <utility>

namespace lockstep::stream {
namespace {

class GeneratorRows final : public ShardRows {
 public:
  explicit GeneratorRows(IterableDataset::Generator generator) : generator_(std::move(generator)) {}

  std::optional<Row> next() override { return generator_(); }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t done = 0;
    while (done < count && generator_()) ++done;
    return done;
  }

 private:
  IterableDataset::Generator generator_;
};

}  // namespace

std::unique_ptr<ShardRows> generator_rows(IterableDataset::Generator generator) {
  return std::make_unique<GeneratorRows>(std::move(generator));
}

}  // namespace lockstep::stream
