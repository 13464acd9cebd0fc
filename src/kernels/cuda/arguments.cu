// The structs that kernels get as arguments, declared once for kernels and host: this text is in front of every
// kernel's, and a part of kernels/cuda_arguments.hpp. Plain types of the same size on both sides.

/// Of one tensor that Adam steps. `maximum`: for amsgrad, otherwise null.
struct AdamTensor {
  float* parameter;
  const float* gradient;
  float* average;
  float* square;
  float* maximum;
  long long size;
  /// Its first block, and a part's first element.
  long long first_block;
};

struct AdamTensors {
  static constexpr int kMost = 240;
  AdamTensor at[kMost];
  long long count;
};

/// Numbers of the host, and those of the device that replace them or join them; null where there are none.
struct AdamScalars {
  /// Instead of `rate` and `step`.
  const float* rate_there;
  const float* step_there;
  /// How many of the steps before this one were left out.
  const float* left_out;
  /// 1: this one is left out.
  const float* found_inf;
  /// The gradients are multiplied by it first.
  const float* factor;
  float rate, step, beta1, beta2, weight_decay, eps;
};

/// Of one tensor that is copied. Where it is in the grid, as AdamTensor.
struct CopyTensor {
  const void* from;
  void* to;
  long long size;
  long long first_block;
};

struct CopyTensors {
  static constexpr int kMost = 240;
  CopyTensor at[kMost];
  long long count;
};

/// The sums that the blocks of a kernel have of columns, [parts, width], and their totals, [width]. Null without
/// sums; without counters the totals are made by another kernel.
struct BlockSums {
  float* partial;
  float* totals;
  /// For each tile of columns: one of its groups of parts, and one of each group. 0 before the kernel and after it.
  unsigned* counters;
  /// Parts of a group.
  int group;
};

/// Of the losses of all rows: null if they are not wanted. `counter` as in BlockSums.
struct LossTotals {
  float* sum;
  long long* labels;
  unsigned* counter;
};

/// Columns of a matrix, [rows, width] in 16 bits: null for zeros. `end`: the column behind the last one.
struct JoinedPart {
  const void* from;
  long long row_stride;
  int end;
};

struct JoinedParts {
  static constexpr int kMost = 3;
  JoinedPart at[kMost];
};

/// Of a root mean square norm: in float32, or in 16 bits; the other is null. A weight counts with `offset`
/// added to it.
struct RmsWeight {
  const float* wide;
  const void* narrow;
  float offset;
};

/// Of a tensor [rows, heads, tokens, size] whose last stride is 1.
struct RopeStrides {
  long long row, head, token;
};

struct RopeShape {
  long long rows, tokens;
  RopeStrides query, key;
  /// Elements of cosines and sines from row to row; 0: all rows have the same.
  long long rotation_row;
  int query_heads, key_heads, size, rotated;
};

/// Elements from row to row.
struct GateStrides {
  long long gate, up;
};

// What the host copies is what kernels read.
static_assert(sizeof(AdamTensor) == 56 && sizeof(AdamTensors) == 56 * AdamTensors::kMost + 8, "layout");
static_assert(sizeof(AdamScalars) == 5 * sizeof(void*) + 6 * sizeof(float), "layout");
static_assert(sizeof(CopyTensor) == 32 && sizeof(CopyTensors) == 32 * CopyTensors::kMost + 8, "layout");
static_assert(sizeof(BlockSums) == 32 && sizeof(LossTotals) == 24, "layout");
static_assert(sizeof(JoinedPart) == 24 && sizeof(JoinedParts) == 24 * JoinedParts::kMost, "layout");
static_assert(sizeof(RmsWeight) == 24, "layout");
static_assert(sizeof(RopeStrides) == 24 && sizeof(RopeShape) == 88, "layout");
static_assert(sizeof(GateStrides) == 16, "layout");
