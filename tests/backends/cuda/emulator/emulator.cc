// Runs CUDA C on the CPU: the threads of a block are fibers, blocks run one after another.
//
// What it finds, each as an error of the launch:
// - a race: two threads touch a byte of shared memory between two barriers, and one of them writes;
// - shared memory that is read before this block wrote it;
// - shared memory that is touched while a copy to it is on its way, which it is until its thread waits for it;
// - an access outside of the buffers of the launch, or one that is not aligned to its width;
// - threads that wait for each other for ever: a barrier or a shuffle that some of them do not reach.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

struct dim3 { unsigned x, y, z; };

// What a library of a kernel hands over: a call of it as one of its threads, and where its shared memory is.
struct Kernel { void (*thread)(void** arguments); char *shared_begin, *shared_end; };

namespace {
constexpr int WARP = 32, SECTOR = 32, BANKS = 32, BANK_BYTES = 4, STACK = 1 << 16;

struct Range { uintptr_t begin, end; };
struct Touch { int lane; uintptr_t address; int size; };

// What the accesses of one launch add up to. Conflicts are the most words of one bank that one request of a warp needs.
struct Counts {
  int64_t load_bytes = 0, load_sectors = 0, store_bytes = 0, store_sectors = 0;
  int64_t shared_requests = 0, shared_passes = 0, worst_conflict = 0, wide_bytes = 0, barriers = 0, shuffles = 0, products = 0;
};

// A copy from global to shared memory: `size` bytes, or zeros where `bytes` is 0.
struct Copy { char* to; const char* from; int bytes, size; };

struct Fiber {
  jmp_buf context;
  char* stack = nullptr;
  int id = 0;
  bool begun = false, done = false;
  std::function<bool()> ready;  // what it waits for
  uint64_t turn = 0;  // of the loops that it is in, all of them together
  std::vector<uint64_t> outer;  // the same of those around each
  std::unordered_map<uintptr_t, int> times;  // by place in the code and turn: how often this thread came there
  std::vector<Copy> open;  // copies that no group has yet
  std::deque<std::vector<Copy>> groups;  // of copies that are on their way
};

struct Shadow { int writer = -1, written = -1, reader = -1, read = -1; bool known = false, awaited = false; };

// What its lanes exchange: bits of a shuffle, rows of matrices, or fragments of products.
struct Warp { int arrived = 0, generation = 0; uint64_t slots[WARP]; uint32_t fragments[WARP][6]; };

// One request of a warp: what its lanes do at one place in the code in one turn, when they came there as often.
struct Request {
  int warp, time;
  uintptr_t place;
  bool stores;
  bool operator==(const Request& other) const {
    return warp == other.warp && time == other.time && place == other.place && stores == other.stores;
  }
};
struct Hash {
  size_t operator()(const Request& each) const {
    return (each.place + (static_cast<uint64_t>(each.time) << 20 | each.warp << 1 | each.stores)) * 0x9E3779B97F4A7C15u >> 16;
  }
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<Shadow> shadow;
  int arrived = 0, generation = 0;
  std::unordered_map<Request, std::vector<Touch>, Hash> global, shared;
};

std::vector<Range> buffers;
std::vector<std::unique_ptr<char[]>> stacks;  // of the fibers of a block, the same for the next
Counts counts;
bool counts_accesses = false;
std::string error;
Block* block = nullptr;
Fiber* current = nullptr;
jmp_buf scheduler;
Kernel kernel = {};
void** arguments = nullptr;
int variant = 0;
dim3 thread_index, block_index, block_size, grid_size;

void fail(const std::string& text) { if (error.empty()) error = text; }

std::string whom() {
  return "thread " + std::to_string(current->id) + " of block " + std::to_string(block_index.x);
}

void leave() {
  if (!_setjmp(current->context)) _longjmp(scheduler, 1);
}

void wait(std::function<bool()> ready) {
  current->ready = std::move(ready);
  leave();
}

Shadow& shadow_of(uintptr_t at) { return block->shadow[at - reinterpret_cast<uintptr_t>(kernel.shared_begin)]; }

bool is_shared(uintptr_t at) {
  return at >= reinterpret_cast<uintptr_t>(kernel.shared_begin) && at < reinterpret_cast<uintptr_t>(kernel.shared_end);
}

void shared_touch(uintptr_t at, int size, bool stores) {
  for (int byte = 0; byte < size; ++byte) {
    Shadow& seen = shadow_of(at + byte);
    if (seen.awaited) fail(whom() + " touches shared memory to which a copy is on its way");
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

// `aligned`: bytes that divide the address, where those are not `size`.
void touch(const void* pointer, int size, bool stores, void* code, int aligned = 0) {
  const auto at = reinterpret_cast<uintptr_t>(pointer), stack = reinterpret_cast<uintptr_t>(current->stack);
  if (at >= stack && at < stack + STACK) return;
  aligned = aligned ? aligned : size;
  if (at % aligned != 0) fail(whom() + " touches " + std::to_string(aligned) + " bytes that are not aligned");
  const bool shared = is_shared(at);
  if (shared) {
    shared_touch(at, size, stores);
  } else if (std::none_of(buffers.begin(), buffers.end(), [=](Range each) { return at >= each.begin && at + size <= each.end; })) {
    fail(whom() + (stores ? " stores" : " loads") + " outside of all buffers");
  }
  if (!counts_accesses) return;
  const auto place = reinterpret_cast<uintptr_t>(code) ^ current->turn;
  const Request request{current->id / WARP, current->times[place]++, place, stores};
  (shared ? block->shared : block->global)[request].push_back({current->id % WARP, at, size});
}

// Sectors of 32 bytes that a request of a warp moves: Nsight Compute's documentation, "L1/TEX cache".
void count_global() {
  for (const auto& [request, touches] : block->global) {
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
    (request.stores ? counts.store_bytes : counts.load_bytes) += bytes.size();
    (request.stores ? counts.store_sectors : counts.load_sectors) += sectors.size();
  }
}

// A request of 4 bytes a lane is one pass over 32 banks, one of 8 or 16 bytes is two or four of 16 or 8 lanes each; in
// a pass, each other word of one bank is a pass more. CUDA C++ programming guide, "Shared memory".
void count_shared() {
  for (const auto& [request, touches] : block->shared) {
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

void enter() {
  kernel.thread(arguments);
  current->done = true;
  _longjmp(scheduler, 1);
}

// Lets a fiber go on until it waits or ends. Only its first step is the system's, which asks the kernel for signals' masks.
__attribute__((noinline)) void resume(Fiber& fiber) {
  if (_setjmp(scheduler)) return;
  if (fiber.begun) _longjmp(fiber.context, 1);
  fiber.begun = true;
  ucontext_t start;
  getcontext(&start);
  start.uc_stack.ss_sp = fiber.stack;
  start.uc_stack.ss_size = STACK;
  makecontext(&start, enter, 0);
  setcontext(&start);
}

// Order 0 runs the threads of a block first to last, 1 last to first, others in a random order that changes at barriers.
void run_block(unsigned index, std::mt19937& random, int order) {
  Block made;
  block = &made;
  block_index = {index, 0, 0};
  const int threads = block_size.x;
  const size_t shared = kernel.shared_end - kernel.shared_begin;
  if (shared) std::memset(kernel.shared_begin, 0xFF, shared);  // NaN
  made.shadow.resize(shared);
  made.warps.resize((threads + WARP - 1) / WARP);
  made.fibers.resize(threads);
  for (int id = 0; id < threads; ++id) {
    if (static_cast<int>(stacks.size()) == id) stacks.emplace_back(new char[STACK]);
    made.fibers[id].id = id;
    made.fibers[id].stack = stacks[id].get();
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
      resume(fiber);
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

void meet_warp() {
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

float as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

// The numbers of a register, first to last: two of 16 bits, or one of 32, of which the tensor core reads the upper 19 bits.
enum Kind { FLOAT16, BFLOAT16, TFLOAT32 };

float number(uint32_t bits, int at, int kind) {
  if (kind == TFLOAT32) return as_float(bits & ~0x1FFFu);
  const auto half = static_cast<uint16_t>(bits >> 16 * at);
  if (kind == BFLOAT16) return as_float(static_cast<uint32_t>(half) << 16);
  _Float16 x;
  std::memcpy(&x, &half, 2);
  return static_cast<float>(x);
}

}  // namespace

extern "C" {
dim3 emulated_thread() { return thread_index; }
dim3 emulated_block() { return block_index; }
dim3 emulated_threads() { return block_size; }
dim3 emulated_blocks() { return grid_size; }
void emulated_turn(int count) {
  current->outer.push_back(current->turn);
  current->turn = (current->turn + count + 1) * 0x9E3779B97F4A7C15u;
}
void emulated_turn_end() {
  current->turn = current->outer.back();
  current->outer.pop_back();
}

void emulated_barrier() {
  ++counts.barriers;
  const int generation = block->generation;
  if (++block->arrived == static_cast<int>(block->fibers.size())) {
    block->arrived = 0;
    ++block->generation;
    return;
  }
  wait([=] { return block->generation != generation; });
}

uint64_t emulated_exchange(unsigned mask, uint64_t bits, int source, bool is_inside) {
  ++counts.shuffles;
  const int lane = current->id % WARP;
  if (mask != 0xFFFFFFFFu) fail(whom() + " shuffles with a mask that is not that of the whole warp");
  Warp& warp = block->warps[current->id / WARP];
  warp.slots[lane] = bits;
  meet_warp();
  const uint64_t result = warp.slots[is_inside ? source : lane];
  meet_warp();
  return result;
}

void emulated_copy(void* to, const void* from, int bytes, int size) {
  void* place = __builtin_return_address(0);
  const auto at = reinterpret_cast<uintptr_t>(to);
  if (!is_shared(at)) fail(whom() + " copies to what is no shared memory");
  if (bytes) touch(from, bytes, false, place, size);
  touch(to, size, true, place);
  if (!error.empty()) return;
  for (int byte = 0; byte < size; ++byte) shadow_of(at + byte).awaited = true;
  std::memset(to, 0xFF, size);
  current->open.push_back({static_cast<char*>(to), static_cast<const char*>(from), bytes, size});
}

void emulated_commit() {
  current->groups.push_back(std::move(current->open));
  current->open.clear();
}

void emulated_wait(int groups) {
  for (; static_cast<int>(current->groups.size()) > groups; current->groups.pop_front()) {
    for (const Copy& copy : current->groups.front()) {
      std::memset(copy.to, 0, copy.size);
      std::memcpy(copy.to, copy.from, copy.bytes);
      for (int byte = 0; byte < copy.size; ++byte) {
        Shadow& seen = shadow_of(reinterpret_cast<uintptr_t>(copy.to) + byte);
        seen.awaited = false;
        seen.writer = current->id;
        seen.written = block->generation;
      }
    }
  }
}

// Lane l gets row l / 4 of each of four matrices, of which it has the columns l % 4 * 2 and the next; of transposed ones
// the columns are rows. PTX ISA, "ldmatrix".
void emulated_load_matrices(unsigned* to, const void* row, bool is_transposed) {
  Warp& warp = block->warps[current->id / WARP];
  const int lane = current->id % WARP;
  if (!is_shared(reinterpret_cast<uintptr_t>(row))) fail(whom() + " loads matrices from what is no shared memory");
  touch(row, 16, false, __builtin_return_address(0));
  warp.slots[lane] = reinterpret_cast<uint64_t>(row);
  meet_warp();
  for (int matrix = 0; matrix < 4 && error.empty(); ++matrix) {
    uint16_t pair[2];
    for (int at = 0; at < 2; ++at) {
      const int line = is_transposed ? lane % 4 * 2 + at : lane / 4, column = is_transposed ? lane / 4 : lane % 4 * 2 + at;
      std::memcpy(&pair[at], reinterpret_cast<const char*>(warp.slots[matrix * 8 + line]) + column * 2, 2);
    }
    to[matrix] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
  meet_warp();
}

// Lane l has rows l / 4 and l / 4 + 8 of the left matrix and column l / 4 of the right one, of the depths of each half
// those of one register at l % 4; and the sums of its rows at columns l % 4 * 2 and the next. PTX ISA, "mma".
void emulated_multiply(float* sums, const unsigned* rows, const unsigned* columns, int kind) {
  Warp& warp = block->warps[current->id / WARP];
  const int lane = current->id % WARP, many = kind == TFLOAT32 ? 1 : 2;
  std::memcpy(warp.fragments[lane], rows, 16);
  std::memcpy(warp.fragments[lane] + 4, columns, 8);
  ++counts.products;
  meet_warp();
  for (int at = 0; at < 4; ++at) {
    const int row = lane / 4, upper = at / 2, column = lane % 4 * 2 + at % 2;
    double sum = sums[at];
    for (int half = 0; half < 2; ++half) {
      for (int part = 0; part < 4; ++part) {
        const uint32_t left = warp.fragments[row * 4 + part][half * 2 + upper];
        const uint32_t right = warp.fragments[column * 4 + part][4 + half];
        for (int each = 0; each < many; ++each) sum += static_cast<double>(number(left, each, kind)) * number(right, each, kind);
      }
    }
    sums[at] = static_cast<float>(sum);
  }
  meet_warp();
}

#define SEEN_AT(NAME, SIZE, STORES) \
  void NAME(void* at) { touch(at, SIZE, STORES, __builtin_return_address(0)); }
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
void emulated_trap() { fail(whom() + " stopped the kernel"); }
int emulated_variant() { return variant; }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void* at, size_t size) { touch(at, static_cast<int>(size), false, __builtin_return_address(0)); }
void __tsan_write_range(void* at, size_t size) { touch(at, static_cast<int>(size), true, __builtin_return_address(0)); }

// Runs a launch, of its blocks the first `most` of the order, and counts what it accesses if there is a `result`; returns
// the first error, "" where there is none.
const char* emulated_run(
    Kernel launched, int launched_variant, void** pointers, int64_t* sizes, int count, unsigned blocks, unsigned threads, int order, unsigned most,
    Counts* result) {
  buffers.clear();
  for (int at = 0; at < count; ++at) {
    const auto begin = reinterpret_cast<uintptr_t>(pointers[at]);
    buffers.push_back({begin, begin + static_cast<uintptr_t>(sizes[at])});
  }
  kernel = launched;
  variant = launched_variant;
  arguments = pointers;
  std::mt19937 random(order);
  error.clear();
  counts = Counts{};
  counts_accesses = result != nullptr;
  grid_size = {blocks, 1, 1};
  block_size = {threads, 1, 1};
  std::vector<unsigned> turns(blocks);
  std::iota(turns.begin(), turns.end(), 0u);
  if (order == 1) std::reverse(turns.begin(), turns.end());
  if (order > 1) std::shuffle(turns.begin(), turns.end(), random);
  turns.resize(std::min(blocks, most));
  for (unsigned index : turns) {
    if (error.empty()) run_block(index, random, order);
  }
  if (result) *result = counts;
  return error.c_str();
}
}  // extern "C"
