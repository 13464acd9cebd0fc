// Rotary positions of queries and keys, in one launch: element i of the first half of what is rotated and element i
// of its second half are turned together. Elements behind are copied.

/// Elements that a thread reads at once of each half.
constexpr int kRopePack = 8;

template <class C>
__device__ __forceinline__ void read_rotation(const C* from, float (&to)[kRopePack]) {
  constexpr int n = kPack<C>;
#pragma unroll
  for (int i = 0; i < kRopePack; i += n) {
    const Pack<C, n> pack = load(from + i);
#pragma unroll
    for (int j = 0; j < n; ++j) to[i + j] = to_float(pack.at[j]);
  }
}

/// The results are [rows, tokens, heads, size]. `cosines` and `sines` [tokens or rows * tokens, rotated], whose
/// second half repeats the first. `direction`: 1, or -1 for the gradients. Either tensor may be null, and then
/// has no heads.
template <class T, class C>
__global__ void __launch_bounds__(256) rope(const T* query, const T* key, T* turned_query, T* turned_key,
                                            const C* cosines, const C* sines, RopeShape shape, float direction) {
  const int half = shape.rotated / 2, turns = half / kRopePack;
  const int items = turns + (shape.size - shape.rotated) / kRopePack;
  const int heads = shape.query_heads + shape.key_heads;
  i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  const int item = (int)(index % items);
  index /= items;
  const int head = (int)(index % heads);
  index /= heads;
  const i64 token = index % shape.tokens, row = index / shape.tokens;
  if (row >= shape.rows) return;
  const bool is_key = head >= shape.query_heads;
  const int own_heads = is_key ? shape.key_heads : shape.query_heads;
  const int own_head = is_key ? head - shape.query_heads : head;
  const RopeStrides strides = is_key ? shape.key : shape.query;
  const T* const from =
      (is_key ? key : query) + row * strides.row + own_head * strides.head + token * strides.token;
  T* const to =
      (is_key ? turned_key : turned_query) + ((row * shape.tokens + token) * own_heads + own_head) * shape.size;
  if (item >= turns) {
    const int at = shape.rotated + (item - turns) * kRopePack;
    store(to + at, load<T, kRopePack>(from + at));
    return;
  }
  const int at = item * kRopePack;
  const i64 rotation = row * shape.rotation_row + token * shape.rotated + at;
  float cosine[kRopePack], sine[kRopePack];
  read_rotation(cosines + rotation, cosine);
  read_rotation(sines + rotation, sine);
  Pack<T, kRopePack> first = load<T, kRopePack>(from + at), second = load<T, kRopePack>(from + half + at);
#pragma unroll
  for (int i = 0; i < kRopePack; ++i) {
    const float a = to_float(first.at[i]), b = to_float(second.at[i]), turn = direction * sine[i];
    first.at[i] = rounded<T>(a * cosine[i] - b * turn);
    second.at[i] = rounded<T>(b * cosine[i] + a * turn);
  }
  store(to + at, first);
  store(to + half + at, second);
}
