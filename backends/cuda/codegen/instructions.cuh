// Functions on the device that kernels call by name: what CUDA C has no words for, and what moves between shared memory
// and registers. Each is one instruction of PTX (PTX ISA 8: "cp.async", "ldmatrix", "mma"), or a loop over registers.
// It stands before the text of each kernel; where FUSION_HAS_INSTRUCTIONS is defined, the instructions are given.
typedef unsigned char uchar;
typedef unsigned int uint;
// A float as the integer that x86 makes of it: the lowest one where it fits none.
__device__ __forceinline__ int to_int32(float x) {
  return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<int>(x) : static_cast<int>(0x80000000u);
}
__device__ __forceinline__ long long to_int64(float x) {
  const bool fits = x >= -9223372036854775808.0f && x < 9223372036854775808.0f;
  return fits ? static_cast<long long>(x) : static_cast<long long>(0x8000000000000000ull);
}
__device__ __forceinline__ int to_int32(double x) {
  return x > -2147483649.0 && x < 2147483648.0 ? static_cast<int>(x) : static_cast<int>(0x80000000u);
}
__device__ __forceinline__ long long to_int64(double x) {
  const bool fits = x >= -9223372036854775808.0 && x < 9223372036854775808.0;
  return fits ? static_cast<long long>(x) : static_cast<long long>(0x8000000000000000ull);
}
#ifndef FUSION_HAS_INSTRUCTIONS
__device__ __forceinline__ unsigned shared_address(const void* at) {
  return static_cast<unsigned>(__cvta_generic_to_shared(at));
}
// Copies BYTES from global to shared memory later, or zeros where `bytes` is 0; "cg" is for 16 bytes only.
template <int BYTES>
__device__ __forceinline__ void copy_later(void* to, const void* from, int bytes) {
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
                 ::"r"(shared_address(to)), "l"(from), "r"(bytes), "n"(BYTES) : "memory");
  }
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all but the last GROUPS groups of this thread's copies.
template <int GROUPS>
__device__ __forceinline__ void wait_copies() { asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory"); }
// Brings four matrices of 8 rows of 16 bytes; lane l has the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(unsigned* to, int at, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[at]), "=r"(to[at + 1]), "=r"(to[at + 2]), "=r"(to[at + 3])
               : "r"(shared_address(row)) : "memory");
}
__device__ __forceinline__ void load_transposed(unsigned* to, int at, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[at]), "=r"(to[at + 1]), "=r"(to[at + 2]), "=r"(to[at + 3])
               : "r"(shared_address(row)) : "memory");
}
#define MULTIPLY(NAME, SHAPE, TYPE) \
  __device__ __forceinline__ void NAME( \
      float* sums, int sum, const unsigned* rows, int row, const unsigned* columns, int column) { \
    float* d = sums + sum; \
    const unsigned *a = rows + row, *b = columns + column; \
    asm("mma.sync.aligned." SHAPE ".row.col.f32." TYPE "." TYPE ".f32 " \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
MULTIPLY(multiply_float16, "m16n8k16", "f16")
MULTIPLY(multiply_bfloat16, "m16n8k16", "bf16")
MULTIPLY(multiply_tfloat32, "m16n8k8", "tf32")
// Rounds two neighbouring floats to a pair of narrow numbers.
#define PACK(NAME, TYPE) \
  __device__ __forceinline__ void NAME(unsigned* to, int at, const float* from, int first) { \
    asm("cvt.rn." TYPE ".f32 %0, %1, %2;" : "=r"(to[at]) : "f"(from[first + 1]), "f"(from[first])); \
  }
PACK(pack_float16, "f16x2")
PACK(pack_bfloat16, "bf16x2")
__device__ __forceinline__ unsigned as_tfloat32(unsigned bits) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(__uint_as_float(bits)));
  return bits;
}
#endif
// There are no such copies of 2 bytes.
template <int BYTES>
__device__ __forceinline__ void copy_async(void* to, const void* from, int bytes) {
  if constexpr (BYTES == 2) {
    *static_cast<unsigned short*>(to) = bytes ? *static_cast<const unsigned short*>(from) : 0;
  } else {
    copy_later<BYTES>(to, from, bytes);
  }
}
template <int MANY>
__device__ __forceinline__ void round_tfloat32(unsigned* bits) {
#pragma unroll
  for (int i = 0; i < MANY; ++i) bits[i] = as_tfloat32(bits[i]);
}
// Rounds a lane's sums of two rows and two columns each; even columns come before odd ones.
__device__ __forceinline__ void pack_tfloat32(unsigned* to, int at, const float* from, int first) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    to[at + i % 2 * 2 + i / 2] = as_tfloat32(static_cast<unsigned>(__float_as_int(from[first + i])));
}
__device__ __forceinline__ void take_word(unsigned* to, int at, const void* from) {
  to[at] = *static_cast<const unsigned*>(from);
}
__device__ __forceinline__ void put_word(void* to, const unsigned* from, int at) {
  *static_cast<unsigned*>(to) = from[at];
}
// Whether a number is other than 0 in any lane of the warp.
__device__ __forceinline__ void any_lane(unsigned* numbers, int at) {
  numbers[at] = __any_sync(0xffffffffu, numbers[at] != 0);
}
// Floats between registers and shared memory, by one access.
template <int MANY>
__device__ __forceinline__ void take_floats(float* to, int at, const void* from) {
  if constexpr (MANY == 4) {
    const float4 all = *static_cast<const float4*>(from);
    to[at] = all.x; to[at + 1] = all.y; to[at + 2] = all.z; to[at + 3] = all.w;
  } else {
    to[at] = *static_cast<const float*>(from);
  }
}
template <int MANY>
__device__ __forceinline__ void put_floats(void* to, const float* from, int at) {
  if constexpr (MANY == 4) {
    *static_cast<float4*>(to) = make_float4(from[at], from[at + 1], from[at + 2], from[at + 3]);
  } else if constexpr (MANY == 2) {
    *static_cast<float2*>(to) = make_float2(from[at], from[at + 1]);
  } else {
    *static_cast<float*>(to) = from[at];
  }
}
// Adds the products of ROWS times DEPTH and COLUMNS times DEPTH floats to ROWS times COLUMNS sums.
template <int ROWS, int COLUMNS, int DEPTH>
__device__ __forceinline__ void multiply_floats(float* sums, const float* left, const float* right) {
#pragma unroll
  for (int k = 0; k < DEPTH; ++k)
#pragma unroll
    for (int row = 0; row < ROWS; ++row)
#pragma unroll
      for (int column = 0; column < COLUMNS; ++column)
        sums[row * COLUMNS + column] =
            fmaf(left[row * DEPTH + k], right[column * DEPTH + k], sums[row * COLUMNS + column]);
}
// Copies 16 bytes of a run of elements of ITEM bytes, from `begin` to `end` of `memory`, to shared memory, where `to` has
// the 16 bytes in which the first of them lies: those `at` the number behind where its sector begins. What lies beside
// the run comes too, but nothing from `limit` on, which ends the memory: zeros fill the 16 bytes.
template <int ITEM>
__device__ __forceinline__ void bring_vector(void* to, const void* memory, int begin, int end, int limit, int at) {
  constexpr int MANY = 16 / ITEM;
  const int first = begin / MANY, run = first / 2 * 2 + at;
  if (run < first || run * MANY >= end) return;
  char* place = static_cast<char*>(to) + (run - first) * 16;
  const char* source = static_cast<const char*>(memory) + static_cast<long long>(run) * 16;
  const int left = limit - run * MANY;
  copy_async<16>(place, source, left < MANY ? left * ITEM : 16);
}
// Copies a whole run later, of which the threads of a block have some accesses each. Warps begin with a sector.
template <int ITEM>
__device__ __forceinline__ void start_run(void* to, const void* memory, int begin, int end, int thread, int threads) {
  constexpr int MANY = 16 / ITEM;
  const int before = begin / MANY / 2 * 2;
  for (int at = thread; (before + at) * MANY < end; at += threads)
    bring_vector<ITEM>(to, memory, begin, end, end, at);
}
// Copies it now.
template <int ITEM>
__device__ __forceinline__ void bring_run(void* to, const void* memory, int begin, int end, int thread, int threads) {
  start_run<ITEM>(to, memory, begin, end, thread, threads);
  commit_copies();
  wait_copies<0>();
}
template <int BYTES> struct Bits;
template <> struct Bits<2> { typedef unsigned short type; };
template <> struct Bits<4> { typedef unsigned type; };
// The way back.
template <int ITEM>
__device__ __forceinline__ void store_run(const void* from, void* memory, int begin, int end, int thread, int threads) {
  typedef typename Bits<ITEM>::type Item;
  constexpr int MANY = 16 / ITEM;
  const int first = begin / MANY;
  for (int run = first / 2 * 2 + thread; run <= (end - 1) / MANY; run += threads) {
    const int behind = end - run * MANY, before = begin - run * MANY;
    const char* source = static_cast<const char*>(from) + (run - first) * 16;
    char* place = static_cast<char*>(memory) + static_cast<long long>(run) * 16;
    if (before <= 0 && behind >= MANY) {
      const uint4 all = *reinterpret_cast<const uint4*>(source);
      *reinterpret_cast<uint4*>(place) = all;
    } else {
      for (int i = 0; i < MANY; ++i)
        if (i >= before && i < behind)
          reinterpret_cast<Item*>(place)[i] = reinterpret_cast<const Item*>(source)[i];
    }
  }
}
// Elements between registers and shared memory, by one access.
template <typename T, int MANY>
struct alignas(sizeof(T) * MANY) Neighbours { T each[MANY]; };
template <int MANY, typename T>
__device__ __forceinline__ void take_elements(T* to, int at, const void* from) {
  const Neighbours<T, MANY> all = *static_cast<const Neighbours<T, MANY>*>(from);
#pragma unroll
  for (int i = 0; i < MANY; ++i) to[at + i] = all.each[i];
}
template <int MANY, typename T>
__device__ __forceinline__ void put_elements(void* to, const T* from, int at) {
  Neighbours<T, MANY> all;
#pragma unroll
  for (int i = 0; i < MANY; ++i) all.each[i] = from[at + i];
  *static_cast<Neighbours<T, MANY>*>(to) = all;
}
