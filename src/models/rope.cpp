#include "models/rope.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rope.hpp"
#include "lockstep/core/error.hpp"

// Frequencies, in the order of operations of transformers' modeling_rope_utils.py and in float32, so that
// they have its bits. Pair i of `size` rotated elements turns by theta^(-2i / size) a token. For texts that
// are longer than the model was trained for, the frequencies become smaller:
//
// linear    all, by `factor`
// dynamic   by a larger theta, which grows with the longest position of the batch
// yarn      slow ones by `factor`, fast ones not, with a ramp between those that turn beta_slow and beta_fast
// times
//           in the original length; attention becomes sharper by attention_factor
// llama3    slow ones by `factor`, fast ones not, with a ramp between original length / high_freq_factor and
//           original length / low_freq_factor tokens a turn
// longrope  each by a number of its own: of one list up to the original length, and of another for longer
// texts

namespace lockstep::models {
namespace {

at::Tensor exponents(std::int64_t size) {
  return at::arange(0, size, 2, at::kLong).to(at::kFloat) / static_cast<double>(size);
}

at::Tensor plain_frequencies(double theta, std::int64_t size) {
  return at::reciprocal(at::pow(theta, exponents(size)));
}

double yarn_scale(double factor, double by = 1) {
  return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1.0;
}

/// The pair that turns so often in `length` tokens.
double pair_turning(double turns, std::int64_t size, double theta, double length) {
  return static_cast<double>(size) * std::log(length / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(theta));
}

at::Tensor yarn_frequencies(const RopeConfig& rope, double factor, std::int64_t size) {
  const auto& scaling = rope.scaling;
  const auto length = static_cast<double>(scaling.original_max_position_embeddings);
  double low = pair_turning(scaling.beta_fast, size, rope.theta, length);
  double high = pair_turning(scaling.beta_slow, size, rope.theta, length);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(size - 1));
  // No division by zero.
  if (low == high) high += 0.001;
  const at::Tensor periods = at::pow(rope.theta, exponents(size));
  const at::Tensor ramp = ((at::arange(size / 2, at::kFloat) - low) / (high - low)).clamp(0, 1);
  const at::Tensor kept = 1 - ramp;
  return at::reciprocal(periods * factor) * (1 - kept) + at::reciprocal(periods) * kept;
}

at::Tensor llama3_frequencies(const RopeConfig& rope, double factor, std::int64_t size) {
  const auto& scaling = rope.scaling;
  const auto length = static_cast<double>(scaling.original_max_position_embeddings);
  const double longest = length / scaling.low_freq_factor, shortest = length / scaling.high_freq_factor;
  const at::Tensor plain = plain_frequencies(rope.theta, size);
  const at::Tensor lengths = at::reciprocal(plain) * (2 * std::numbers::pi);
  const at::Tensor scaled = at::where(lengths > longest, plain / factor, plain);
  const at::Tensor smooth = (at::reciprocal(lengths) * length - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
  const at::Tensor between = (1 - smooth) * scaled / factor + smooth * scaled;
  const at::Tensor is_between = (lengths < shortest).logical_or(lengths > longest).logical_not();
  return at::where(is_between, between, scaled);
}

at::Tensor longrope_frequencies(double theta, const std::vector<double>& factors, std::int64_t size) {
  if (std::ssize(factors) != size / 2)
    throw UsageError(
        fmt::format("longrope needs a factor for each of {} frequencies; got {}", size / 2, factors.size()));
  return at::reciprocal(at::tensor(factors, at::kFloat) * at::pow(theta, exponents(size)));
}

at::Tensor half_turned(const at::Tensor& states) {
  const auto halves = states.chunk(2, -1);
  return at::cat({-halves[1], halves[0]}, -1);
}

at::Tensor rotate(const at::Tensor& states, const Rotation& rotation) {
  const auto rotated = rotation.cos.size(-1);
  if (rotated == states.size(-1)) return states * rotation.cos + half_turned(states) * rotation.sin;
  const at::Tensor first = states.narrow(-1, 0, rotated);
  const at::Tensor rest = states.narrow(-1, rotated, states.size(-1) - rotated);
  return at::cat({first * rotation.cos + half_turned(first) * rotation.sin, rest}, -1);
}

}  // namespace

Rope::Rope(const RopeConfig& config, std::int64_t head_dim, std::int64_t longest)
    : config_(config),
      rotated_(static_cast<std::int64_t>(static_cast<double>(head_dim) * config.partial_rotary_factor)),
      longest_(longest) {
  if (rotated_ < 2 || rotated_ % 2 != 0 || rotated_ > head_dim) {
    throw UsageError(
        fmt::format("rotary positions need an even number of elements; head_dim {} times {} is {}", head_dim,
                    config.partial_rotary_factor, rotated_));
  }
  const auto& scaling = config.scaling;
  if (scaling.rope_type == "dynamic" && rotated_ == 2)
    throw UsageError("dynamic positions need more than 2 rotated elements");
  const auto original = scaling.original_max_position_embeddings;
  const bool has_original =
      scaling.rope_type == "yarn" || scaling.rope_type == "llama3" || scaling.rope_type == "longrope";
  if (has_original && original < 1)
    throw UsageError(
        fmt::format("the positions of type '{}' need original_max_position_embeddings", scaling.rope_type));
  factor_ = scaling.factor.value_or(
      has_original ? static_cast<double>(longest) / static_cast<double>(original) : 1.0);
  if (scaling.rope_type == "default" || scaling.rope_type == "dynamic") {
    frequencies_ = plain_frequencies(config.theta, rotated_);
  } else if (scaling.rope_type == "linear") {
    frequencies_ = plain_frequencies(config.theta, rotated_) / factor_;
  } else if (scaling.rope_type == "yarn") {
    const bool has_scales = scaling.mscale.value_or(0) != 0 && scaling.mscale_all_dim.value_or(0) != 0;
    attention_factor_ = scaling.attention_factor.value_or(
        has_scales ? yarn_scale(factor_, *scaling.mscale) / yarn_scale(factor_, *scaling.mscale_all_dim)
                   : yarn_scale(factor_));
    frequencies_ = yarn_frequencies(config, factor_, rotated_);
  } else if (scaling.rope_type == "llama3") {
    frequencies_ = llama3_frequencies(config, factor_, rotated_);
  } else if (scaling.rope_type == "longrope") {
    const double usual =
        factor_ <= 1 ? 1.0 : std::sqrt(1 + std::log(factor_) / std::log(static_cast<double>(original)));
    attention_factor_ = scaling.attention_factor.value_or(usual);
    frequencies_ = longrope_frequencies(config.theta, scaling.short_factor, rotated_);
    long_frequencies_ = longrope_frequencies(config.theta, scaling.long_factor, rotated_);
    long_from_ = original + 1;
  } else {
    throw UsageError(fmt::format("positions of type '{}' are not known", scaling.rope_type));
  }
}

at::Tensor Rope::frequencies_at(const at::Tensor& positions) {
  const auto device = positions.device();
  if (frequencies_.device() != device) {
    frequencies_ = frequencies_.to(device);
    if (long_frequencies_.defined()) long_frequencies_ = long_frequencies_.to(device);
  }
  const bool is_dynamic = config_.scaling.rope_type == "dynamic";
  if (!is_dynamic && !long_frequencies_.defined()) return frequencies_;
  // Without waiting for a device.
  const at::Tensor length = positions.max() + 1;
  if (!is_dynamic) return at::where(length >= long_from_, long_frequencies_, frequencies_);
  const double size = static_cast<double>(rotated_), longest = static_cast<double>(longest_);
  const at::Tensor grown = length.clamp_min(longest_).to(at::kFloat) * factor_ / longest - (factor_ - 1);
  const at::Tensor theta = grown.pow(size / (size - 2)) * config_.theta;
  const at::Tensor changed = at::reciprocal(at::pow(theta, exponents(rotated_).to(device)));
  return at::where(length > longest_, changed, frequencies_);
}

Rotation Rope::rotation_at(const at::Tensor& positions) {
  const at::Tensor phases = positions.unsqueeze(-1).to(at::kFloat) * frequencies_at(positions);
  at::Tensor both = at::cat({phases, phases}, -1);
  if (positions.dim() == 2) both = both.unsqueeze(1);
  return {both.cos() * attention_factor_, both.sin() * attention_factor_};
}

Heads rotate_both(const Heads& heads, const Rotation& rotation, bool in_float32) {
  const kernels::RopeTask task{
      .query = heads.query, .key = heads.key, .cos = rotation.cos, .sin = rotation.sin};
  if (kernels::takes_rope(task)) {
    const auto turned = kernels::rope(task);
    return {.query = turned.query, .key = turned.key};
  }
  const auto rotated = [&](const at::Tensor& states) {
    const auto dtype = states.scalar_type();
    const at::Tensor read = in_float32 ? states.to(at::promote_types(dtype, at::kFloat)) : states;
    return rotate(read, rotation).to(dtype);
  };
  return {.query = rotated(heads.query), .key = rotated(heads.key)};
}

}  // namespace lockstep::models
