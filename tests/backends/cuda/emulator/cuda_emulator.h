// What CUDA C sees when g++ compiles it for `emulator.cc`, which is compiled once: this has nothing heavy.
//
// It is compiled with -fsanitize=thread: the calls before each load and store are answered there instead of by the
// sanitizer's library. As with NVRTC there are no headers of C++; C's <math.h> stands for what NVRTC declares itself.
#pragma once
#include <math.h>

#define UNSEEN __attribute__((no_sanitize("thread")))
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(BYTES) __attribute__((aligned(BYTES)))
#define __launch_bounds__(...)
#define __restrict__
// Without __constinit g++ asks at each call whether an array of a class with constructors was made.
#define __shared__ static __constinit __attribute__((section("emulated_shared"), used))

UNSEEN inline float __int_as_float(int bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
UNSEEN inline double __longlong_as_double(long long bits) { double x; __builtin_memcpy(&x, &bits, 8); return x; }
UNSEEN inline int __float_as_int(float x) { int bits; __builtin_memcpy(&bits, &x, 4); return bits; }
#define FUSION_HAS_HALF
typedef _Float16 half;
struct nv_bfloat16 {
  unsigned short bits;
  nv_bfloat16() = default;
  // To the nearest, ties to even; NaN stays one.
  nv_bfloat16(float x) {
    const unsigned seen = __float_as_int(x);
    bits = x == x ? (seen + 0x7FFF + (seen >> 16 & 1)) >> 16 : 0x7FFF;
  }
  operator float() const { return __int_as_float(static_cast<int>(static_cast<unsigned>(bits) << 16)); }
};

// What the emulator is handed of a kernel: a call of it as one of its threads, and where its shared memory is.
struct EmulatedKernel { void (*thread)(void** arguments); char *shared_begin, *shared_end; };

struct dim3 { unsigned x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) longlong2 { long long x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
template <typename T> inline T rsqrt(T x) { return 1 / sqrt(x); }
template <typename T> inline T max(T one, T other) { return one < other ? other : one; }
template <typename T> inline T min(T one, T other) { return other < one ? other : one; }

extern "C" {
dim3 emulated_thread();
dim3 emulated_block();
dim3 emulated_threads();
dim3 emulated_blocks();
void emulated_barrier();
void emulated_trap();
// A loop's body begins, for the count of its turn, and ends: lanes of a warp that do a thing in the same turn do it at once.
void emulated_turn(int count);
void emulated_turn_end();
// Returns the bits that the lane `source` gives; the lane's own where there is none.
unsigned long emulated_exchange(unsigned mask, unsigned long bits, int source, bool is_inside);
// The instructions of `device_functions.py`: copies of `size` bytes, zeros where `bytes` is 0; matrices; products.
void emulated_copy(void* to, const void* from, int bytes, int size);
void emulated_commit();
void emulated_wait(int groups);
void emulated_load_matrices(unsigned* to, const void* row, bool is_transposed);
// Which of the kernels is meant that tests write as one.
int emulated_variant();
void emulated_multiply(float* sums, const unsigned* rows, const unsigned* columns, int kind);
}
struct EmulatedTurn {
  UNSEEN __forceinline__ EmulatedTurn(int count) { emulated_turn(count); }
  UNSEEN __forceinline__ ~EmulatedTurn() { emulated_turn_end(); }
};
#define threadIdx emulated_thread()
#define blockIdx emulated_block()
#define blockDim emulated_threads()
#define gridDim emulated_blocks()
#define __syncthreads emulated_barrier
#define __trap emulated_trap

template <typename T>
UNSEEN T emulated_shuffle(unsigned mask, T value, int source, bool is_inside) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  unsigned long bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = emulated_exchange(mask, bits, source, is_inside);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
UNSEEN T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int lane = threadIdx.x % 32, source = lane ^ lanes;
  return emulated_shuffle(mask, value, source, source / width <= lane / width);
}
template <typename T>
UNSEEN T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = threadIdx.x % 32;
  return emulated_shuffle(mask, value, lane + delta, lane % width + static_cast<int>(delta) < width);
}
template <typename T>
UNSEEN T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = threadIdx.x % 32;
  return emulated_shuffle(mask, value, lane / width * width + source % width, true);
}
UNSEEN inline int __any_sync(unsigned mask, int value) {
  for (int lanes = 16; lanes; lanes /= 2) value |= __shfl_xor_sync(mask, value, lanes);
  return value != 0;
}

#define FUSION_HAS_INSTRUCTIONS
template <int BYTES>
UNSEEN __forceinline__ void copy_later(void* to, const void* from, int bytes) { emulated_copy(to, from, bytes, BYTES); }
UNSEEN __forceinline__ void commit_copies() { emulated_commit(); }
template <int GROUPS>
UNSEEN __forceinline__ void wait_copies() { emulated_wait(GROUPS); }
UNSEEN __forceinline__ void load_matrices(unsigned* to, int at, const void* row) { emulated_load_matrices(to + at, row, false); }
UNSEEN __forceinline__ void load_transposed(unsigned* to, int at, const void* row) { emulated_load_matrices(to + at, row, true); }
#define MULTIPLY(NAME, KIND) \
  UNSEEN __forceinline__ void NAME(float* sums, int sum, const unsigned* rows, int row, const unsigned* columns, int column) { \
    emulated_multiply(sums + sum, rows + row, columns + column, KIND); \
  }
MULTIPLY(multiply_float16, 0)
MULTIPLY(multiply_bfloat16, 1)
MULTIPLY(multiply_tfloat32, 2)
#define PACK(NAME, TYPE) \
  UNSEEN __forceinline__ void NAME(unsigned* to, int at, const float* from, int first) { \
    const TYPE pair[2] = {TYPE(from[first]), TYPE(from[first + 1])}; \
    __builtin_memcpy(&to[at], pair, 4); \
  }
PACK(pack_float16, half)
PACK(pack_bfloat16, nv_bfloat16)
// To the nearest, ties away from zero, 10 bits behind the point; infinity and NaN stay.
UNSEEN inline unsigned as_tfloat32(unsigned bits) {
  return (bits & 0x7F800000) == 0x7F800000 ? bits : (bits + 0x1000) & ~0x1FFFu;
}

// The CUDA C that follows has it between `static` and the type, where g++ takes attributes of its own only.
#define alignas(BYTES) __attribute__((aligned(BYTES)))
