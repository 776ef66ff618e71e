// Runs CUDA C on the CPU: the threads of a block are fibers, blocks run one after another.
//
// What it finds, each as an error of the launch:
// - a race: two threads touch a byte of shared memory between two barriers, and one of them writes;
// - shared memory that is read before this block wrote it;
// - an access outside of the buffers of the launch, or one that is not aligned to its width;
// - threads that wait for each other for ever: a barrier or a shuffle that some of them do not reach.
// It is compiled with -fsanitize=thread, whose calls before each load and store are taken here instead of by its library.
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#define UNSEEN __attribute__((no_sanitize("thread")))
#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__
#define __shared__ static __attribute__((section("emulated_shared"), used))

struct dim3 { unsigned x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

extern "C" char __start_emulated_shared[] __attribute__((weak));
extern "C" char __stop_emulated_shared[] __attribute__((weak));

namespace emulator {
constexpr int WARP = 32, SECTOR = 32, BANKS = 32, BANK_BYTES = 4, STACK = 1 << 16;

struct Range { uintptr_t begin, end; };
struct Touch { int lane; uintptr_t address; int size; };

// What the accesses of one launch add up to. Conflicts are the most words of one bank that one request of a warp needs.
struct Counts {
  int64_t load_bytes = 0, load_sectors = 0, store_bytes = 0, store_sectors = 0;
  int64_t shared_requests = 0, shared_passes = 0, worst_conflict = 0, wide_bytes = 0, barriers = 0, shuffles = 0;
};

struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  int id = 0;
  bool done = false;
  std::function<bool()> ready;  // what it waits for
  std::unordered_map<uintptr_t, int> times;  // by place in the code: how often this thread came there
};

struct Shadow { int writer = -1, written = -1, reader = -1, read = -1; bool known = false; };

struct Warp { int arrived = 0, generation = 0; uint64_t slots[WARP]; };

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<Shadow> shadow;
  int arrived = 0, generation = 0;
  // By warp, place in the code, how often the thread came there, and whether it stores: one request of a warp.
  std::map<std::tuple<int, uintptr_t, int, bool>, std::vector<Touch>> global, shared;
};

inline std::vector<Range> buffers;
inline Counts counts;
inline std::string error;
inline Block* block = nullptr;
inline Fiber* current = nullptr;
inline ucontext_t scheduler;
inline std::function<void()> body;
inline dim3 thread_index, block_index, block_size, grid_size;
inline bool busy = true;  // the emulator itself is at work: what it touches is not the kernel's

struct Busy {
  UNSEEN Busy() : before(busy) { busy = true; }
  UNSEEN ~Busy() { busy = before; }
  bool before;
};

UNSEEN inline void fail(const std::string& text) { if (error.empty()) error = text; }

UNSEEN inline std::string whom() {
  return "thread " + std::to_string(current->id) + " of block " + std::to_string(block_index.x);
}

UNSEEN inline void wait(std::function<bool()> ready) {
  Busy work;
  current->ready = std::move(ready);
  swapcontext(&current->context, &scheduler);
}

UNSEEN inline void shared_touch(uintptr_t at, int size, bool stores) {
  for (int byte = 0; byte < size; ++byte) {
    Shadow& seen = block->shadow[at - reinterpret_cast<uintptr_t>(__start_emulated_shared) + byte];
    const int now = block->generation, me = current->id;
    if (!stores && !seen.known) fail(whom() + " reads shared memory that nobody wrote");
    if (seen.written == now && seen.writer != me) fail(whom() + " meets a store of another thread: a barrier is missing");
    if (stores && seen.read == now && seen.reader != me) {
      fail(whom() + " overwrites what another thread reads: a barrier is missing");
    }
    if (stores) { seen.writer = me; seen.written = now; seen.known = true; continue; }
    seen.reader = seen.read == now && seen.reader != me ? -2 : me;  // -2: several threads
    seen.read = now;
  }
}

UNSEEN inline void touch(const void* pointer, int size, bool stores, void* code) {
  if (busy) return;
  Busy work;
  const auto at = reinterpret_cast<uintptr_t>(pointer), place = reinterpret_cast<uintptr_t>(code);
  const auto stack = reinterpret_cast<uintptr_t>(current->stack.data());
  if (at >= stack && at < stack + STACK) return;
  if (at % size != 0) fail(whom() + " touches " + std::to_string(size) + " bytes that are not aligned");
  const Touch seen{current->id % WARP, at, size};
  const auto key = std::make_tuple(current->id / WARP, place, current->times[place]++, stores);
  if (at >= reinterpret_cast<uintptr_t>(__start_emulated_shared) && at < reinterpret_cast<uintptr_t>(__stop_emulated_shared)) {
    shared_touch(at, size, stores);
    block->shared[key].push_back(seen);
    return;
  }
  for (const Range& range : buffers) {
    if (at >= range.begin && at + size <= range.end) { block->global[key].push_back(seen); return; }
  }
  fail(whom() + (stores ? " stores" : " loads") + " outside of all buffers");
}

// Sectors of 32 bytes that a request of a warp moves: Nsight Compute's documentation, "L1/TEX cache".
UNSEEN inline void count_global() {
  for (const auto& [key, touches] : block->global) {
    std::vector<uintptr_t> sectors, bytes;
    for (const Touch& each : touches) {
      sectors.push_back(each.address / SECTOR);
      for (int byte = 0; byte < each.size; ++byte) bytes.push_back(each.address + byte);
      if (each.size == 16) counts.wide_bytes += 16;
    }
    for (auto* list : {&sectors, &bytes}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    const bool stores = std::get<3>(key);
    (stores ? counts.store_bytes : counts.load_bytes) += bytes.size();
    (stores ? counts.store_sectors : counts.load_sectors) += sectors.size();
  }
}

// A request of 4 bytes a lane is one pass over 32 banks, one of 8 or 16 bytes is two or four of 16 or 8 lanes each; in
// a pass, each other word of one bank is a pass more. CUDA C++ programming guide, "Shared memory".
UNSEEN inline void count_shared() {
  for (const auto& [key, touches] : block->shared) {
    std::map<int, std::map<int, std::vector<uintptr_t>>> words;  // by part of the warp and bank
    for (const Touch& each : touches) {
      const int part = each.lane * std::max(each.size, BANK_BYTES) / (WARP * BANK_BYTES);
      for (uintptr_t word = each.address / BANK_BYTES; word * BANK_BYTES < each.address + each.size; ++word) {
        auto& list = words[part][word % BANKS];
        if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
      }
    }
    for (const auto& [part, banks] : words) {
      size_t most = 0;
      for (const auto& [bank, list] : banks) most = std::max(most, list.size());
      counts.shared_requests += 1;
      counts.shared_passes += most;
      counts.worst_conflict = std::max<int64_t>(counts.worst_conflict, most);
    }
  }
}

UNSEEN inline void enter() {
  body();  // ends what is the emulator's just before the kernel
  busy = true;
  current->done = true;
  swapcontext(&current->context, &scheduler);
}

// Order 0 runs the threads of a block first to last, 1 last to first, others in a random order that changes at barriers.
UNSEEN inline void run_block(unsigned index, std::mt19937& random, int order) {
  Block made;
  block = &made;
  block_index = {index, 0, 0};
  const int threads = block_size.x;
  const size_t shared = __stop_emulated_shared - __start_emulated_shared;
  if (shared) std::memset(__start_emulated_shared, 0xFF, shared);  // NaN
  made.shadow.resize(shared);
  made.warps.resize((threads + WARP - 1) / WARP);
  made.fibers.resize(threads);
  for (int id = 0; id < threads; ++id) {
    Fiber& fiber = made.fibers[id];
    fiber.id = id;
    fiber.stack.resize(STACK);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = STACK;
    makecontext(&fiber.context, enter, 0);
  }
  std::vector<int> turns(threads);
  for (int id = 0; id < threads; ++id) turns[id] = order == 1 ? threads - 1 - id : id;
  for (bool moves = true; moves && error.empty();) {
    moves = false;
    if (order > 1) std::shuffle(turns.begin(), turns.end(), random);
    for (int id : turns) {
      Fiber& fiber = made.fibers[id];
      if (fiber.done || (fiber.ready && !fiber.ready())) continue;
      moves = true;
      fiber.ready = nullptr;
      current = &fiber;
      thread_index = {static_cast<unsigned>(id), 0, 0};
      swapcontext(&scheduler, &fiber.context);
    }
  }
  for (const Fiber& fiber : made.fibers) {
    if (!fiber.done && error.empty()) {
      current = &made.fibers[fiber.id];
      fail(whom() + " waits for threads that do not come");
    }
  }
  count_global();
  count_shared();
  block = nullptr;
}

UNSEEN inline void barrier() {
  Busy work;
  ++counts.barriers;
  const int generation = block->generation;
  if (++block->arrived == static_cast<int>(block->fibers.size())) {
    block->arrived = 0;
    ++block->generation;
    return;
  }
  wait([=] { return block->generation != generation; });
}

UNSEEN inline void meet_warp() {
  Busy work;
  Warp& warp = block->warps[current->id / WARP];
  const int first = current->id / WARP * WARP, generation = warp.generation;
  const int lanes = std::min<int>(WARP, block->fibers.size() - first);
  if (++warp.arrived == lanes) {
    warp.arrived = 0;
    ++warp.generation;
    return;
  }
  wait([=, &warp] { return warp.generation != generation; });
}

// Returns what the lane `source` gives; the lane itself where there is none.
template <typename T>
UNSEEN T exchange(unsigned mask, T value, int source, bool is_inside) {
  Busy work;
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  ++counts.shuffles;
  const int lane = current->id % WARP;
  if (mask != 0xFFFFFFFFu) fail(whom() + " shuffles with a mask that is not that of the whole warp");
  Warp& warp = block->warps[current->id / WARP];
  std::memcpy(&warp.slots[lane], &value, sizeof(T));
  meet_warp();
  T result;
  std::memcpy(&result, &warp.slots[is_inside ? source : lane], sizeof(T));
  meet_warp();
  return result;
}
}  // namespace emulator

// By functions, as kernels may not touch the emulator's variables.
UNSEEN __attribute__((noinline)) inline dim3 emulated(const dim3& value) { return value; }
#define threadIdx emulated(emulator::thread_index)
#define blockIdx emulated(emulator::block_index)
#define blockDim emulated(emulator::block_size)
#define gridDim emulated(emulator::grid_size)

UNSEEN inline void __syncthreads() { emulator::barrier(); }

template <typename T>
UNSEEN T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const int lane = emulator::current->id % 32, source = lane ^ lanes;
  return emulator::exchange(mask, value, source, source / width <= lane / width);
}
template <typename T>
UNSEEN T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int lane = emulator::current->id % 32;
  return emulator::exchange(mask, value, lane + delta, lane % width + static_cast<int>(delta) < width);
}
template <typename T>
UNSEEN T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return emulator::exchange(mask, value, emulator::current->id % 32 / width * width + source % width, true);
}
using std::max;
using std::min;

#define SEEN_AT(NAME, SIZE, STORES) \
  extern "C" UNSEEN void NAME(void* at) { emulator::touch(at, SIZE, STORES, __builtin_return_address(0)); }
SEEN_AT(__tsan_read1, 1, false)
SEEN_AT(__tsan_read2, 2, false)
SEEN_AT(__tsan_read4, 4, false)
SEEN_AT(__tsan_read8, 8, false)
SEEN_AT(__tsan_read16, 16, false)
SEEN_AT(__tsan_write1, 1, true)
SEEN_AT(__tsan_write2, 2, true)
SEEN_AT(__tsan_write4, 4, true)
SEEN_AT(__tsan_write8, 8, true)
SEEN_AT(__tsan_write16, 16, true)
extern "C" UNSEEN void __tsan_init() {}
extern "C" UNSEEN void __tsan_func_entry(void*) {}
extern "C" UNSEEN void __tsan_func_exit() {}
extern "C" UNSEEN void __tsan_vptr_update(void**, void*) {}
extern "C" UNSEEN void __tsan_read_range(void* at, size_t size) {
  emulator::touch(at, static_cast<int>(size), false, __builtin_return_address(0));
}
extern "C" UNSEEN void __tsan_write_range(void* at, size_t size) {
  emulator::touch(at, static_cast<int>(size), true, __builtin_return_address(0));
}

namespace emulator {
// Runs a launch; returns the first error, "" where there is none.
UNSEEN inline const char* launch(std::function<void()> kernel, unsigned blocks, unsigned threads, int order, Counts* result) {
  std::mt19937 random(order);
  error.clear();
  counts = Counts{};
  body = std::move(kernel);
  grid_size = {blocks, 1, 1};
  block_size = {threads, 1, 1};
  std::vector<unsigned> turns(blocks);
  for (unsigned index = 0; index < blocks; ++index) turns[index] = index;
  if (order == 1) std::reverse(turns.begin(), turns.end());
  if (order > 1) std::shuffle(turns.begin(), turns.end(), random);
  for (unsigned index : turns) {
    if (error.empty()) run_block(index, random, order);
  }
  *result = counts;
  return error.c_str();
}
}  // namespace emulator

// The CUDA C that follows has it between `static` and the type, where g++ takes attributes of its own only.
#define alignas(BYTES) __attribute__((aligned(BYTES)))
