// Many tensors times a number, into the memory in which they are exchanged, in its dtype: a block does a part of one
// tensor. Rounded to the dtype before and after the product, as by casts and products one after another.

constexpr int kCopyThreads = 256;
/// Elements of a block.
constexpr int kCopyPart = kCopyThreads * 4 * 8;

template <class Out, class In>
__device__ __forceinline__ Out scaled(In value, float factor) {
  return rounded<Out>(__fmul_rn(to_float(rounded<Out>(to_float(value))), factor));
}

template <class In, class Out>
__global__ void __launch_bounds__(kCopyThreads) scaled_copies(const __grid_constant__ CopyTensors tensors,
                                                              float factor) {
  const i64 block = blockIdx.x;
  const CopyTensor& tensor = tensors.at[tensor_of_block(tensors, block)];
  const In* const from = (const In*)tensor.from;
  Out* const to = (Out*)tensor.to;
  const i64 begin = (block - tensor.first_block) * kCopyPart;
  const i64 end = begin + kCopyPart < tensor.size ? begin + kCopyPart : tensor.size;
  const bool is_aligned = (u64)from % (4 * sizeof(In)) == 0 && (u64)to % (4 * sizeof(Out)) == 0;
  const i64 whole = is_aligned ? begin + (end - begin) / 4 * 4 : begin;
  for (i64 at = begin + threadIdx.x * 4; at < whole; at += kCopyThreads * 4) {
    const Pack<In, 4> values = load<In, 4>(from + at);
    Pack<Out, 4> results;
#pragma unroll
    for (int i = 0; i < 4; ++i) results.at[i] = scaled<Out>(values.at[i], factor);
    store(to + at, results);
  }
  for (i64 at = whole + threadIdx.x; at < end; at += kCopyThreads) to[at] = scaled<Out>(from[at], factor);
}
