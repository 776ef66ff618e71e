// A libcuda.so.1 for tests: devices of this process's own, whose kernels the emulator runs.
//
// What is late on a device is late here: copies and kernels of a stream are run only when somebody waits for them, in the
// order of the stream, and of others as events say. Memory that is freed, or written by the host, before that shows:
// - a copy or a kernel meets memory that is gone: the context ends, as after a fault (700);
// - device memory and pinned memory begin as ones in each bit (NaN), and are so again when freed;
// - addresses on the device are none of this process: who follows one ends with a segmentation fault;
// - streams that tests have mixed take turns, where nothing orders them;
// - a copy from other memory than pinned returns when that is read, and is written later, as the default stream's;
// - copies that do not wait take pinned memory only; nodes of a graph that do not wait for each other run last to first;
// - a capture of a stream ends in an error where a thread does what the driver's reference calls unsafe, or waits for it,
//   and events do not lead into it or out of it, but for those that each launch of the graph records and waits for.
//
// Compiled with -DWITH_CUDA_H the functions are held to the prototypes of NVIDIA's header.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#ifdef WITH_CUDA_H
#include <cuda.h>
#else
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUstreamCaptureMode, CUstreamCaptureStatus;
typedef unsigned long long CUdeviceptr, cuuint64_t;
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphNode_st* CUgraphNode;
typedef struct CUgraphExec_st* CUgraphExec;
typedef struct CUuserObject_st* CUuserObject;
typedef void (*CUhostFn)(void*);
typedef struct {
  CUfunction func;
  unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
  void **kernelParams, **extra;
  void* kern;
  CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;
#define CUDAAPI
#endif

// As the emulator has it.
struct Kernel { void (*thread)(void**); char *shared_begin, *shared_end; };
using Run = const char* (*)(Kernel, int, void**, int64_t*, int, unsigned, unsigned, int, unsigned, void*);

namespace {
constexpr uint64_t AWAY = 1ull << 52;  // between addresses of the device and of this process; no process has these
constexpr int MOST = 8;

struct Device { int capability = 80, sms = 108, shared = 163 << 10; size_t memory = 1ull << 30, used = 0; };
struct Stream;
struct Context { int ordinal; Stream* legacy; int error = 0; };
struct Graph;
struct Node;
struct Stream {
  Context* context;
  bool blocking;
  std::deque<std::function<void()>> queue;
  uint64_t asked = 0, done = 0;
  bool running = false;
  Graph* captured = nullptr;  // what is asked of it goes there
  std::vector<Node*> last;    // behind these
};
struct Event {
  Context* context;
  Stream* stream = nullptr;
  uint64_t point = 0, capture = 0;  // in which it was recorded, behind these nodes
  std::vector<Node*> last;
};
struct Object { CUhostFn destroy; void* data; unsigned references; };
struct Module { Context* context; std::string symbol; Kernel kernel; Run run; int parameters; bool is_cut; };
struct Function { Module* module; int dynamic = 48 << 10; };
struct Start { Function* function; unsigned blocks, threads, shared; std::vector<uint64_t> arguments; };
using Job = std::function<void(Context*)>;
struct Node { Job job; std::vector<Node*> before; };
struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Event*> waits, records;  // of each launch
  std::vector<Object*> objects;
  uint64_t capture = 0;  // which one adds to it; 0 for none
  int mode = 2;
  const void* thread = nullptr;
  bool is_broken = false;
};
struct Exec { std::vector<Job> order; std::vector<Event*> waits, records; std::vector<Object*> objects; bool is_gone = false; };
struct Block { size_t size; int ordinal; };

std::recursive_mutex mutex;
Device devices[MOST];
int count = 1, process = 0;
bool mixes = false;
Context* contexts[MOST];
std::map<uint64_t, Block> blocks;  // by address on the device
std::map<uint64_t, size_t> pinned;
std::set<Stream*> streams;
std::set<void*> handles;
std::map<Exec*, std::shared_ptr<Exec>> execs;
std::map<std::string, int> calls;
std::map<std::string, std::pair<int, int>> failures;  // by function: after so many calls, with which error
std::string message;
thread_local std::vector<Context*> current;
thread_local int capture_mode = 0;
thread_local char thread_mark;
uint64_t captures = 0;
std::set<Graph*> capturing;

char* here(uint64_t address) { return reinterpret_cast<char*>(address - AWAY); }

// Returns how many bytes of live memory begin at an address; 0 where there are none.
size_t room(const std::map<uint64_t, Block>& known, uint64_t at) {
  auto found = known.upper_bound(at);
  if (found == known.begin()) return 0;
  --found;
  return at < found->first + found->second.size ? found->first + found->second.size - at : 0;
}

size_t pinned_room(uint64_t at) {
  auto found = pinned.upper_bound(at);
  if (found == pinned.begin()) return 0;
  --found;
  return at < found->first + found->second ? found->first + found->second - at : 0;
}

void fault(Context* context, int error, const std::string& text) {
  if (!context->error) { context->error = error; message = text; }
}

void step(Stream* stream) {
  auto job = std::move(stream->queue.front());
  stream->queue.pop_front();
  ++stream->done;
  const bool before = std::exchange(stream->running, true);
  if (!stream->context->error) job();
  stream->running = before;
}

// While a stream is waited for, others go on too, a step at a time, if tests ask for that: as on a device, what nothing
// orders is done in any order.
void drain(Stream* stream, uint64_t point) {
  while (stream->done < point && !stream->queue.empty()) {
    step(stream);
    if (!mixes) continue;
    for (Stream* other : std::vector<Stream*>(streams.begin(), streams.end())) {
      if (other != stream && !other->running && !other->queue.empty() && !stream->running) step(other);
    }
  }
}

Node* add_node(Graph* graph, Job job, const std::vector<Node*>& before);

void push(Stream* stream, std::function<void()> job) {
  if (stream->captured) {
    stream->last = {add_node(stream->captured, [job](Context*) { job(); }, stream->last)};
    return;
  }
  std::vector<std::pair<Stream*, uint64_t>> before;
  if (stream == stream->context->legacy) {
    for (Stream* other : streams) {
      if (other != stream && other->blocking && other->context == stream->context) before.push_back({other, other->asked});
    }
  } else if (stream->blocking) {
    before.push_back({stream->context->legacy, stream->context->legacy->asked});
  }
  ++stream->asked;
  stream->queue.push_back([=] {
    for (auto& [other, point] : before) drain(other, point);
    job();
  });
}

void run_start(Context* context, const Start& start) {
  Module* module = start.function->module;
  std::vector<void*> pointers;
  std::vector<int64_t> sizes;
  for (uint64_t argument : start.arguments) {
    const size_t left = room(blocks, argument);
    if (!left) return fault(context, 700, module->symbol + " is given memory that is gone");
    pointers.push_back(here(argument));
    sizes.push_back(static_cast<int64_t>(left));
  }
  Kernel kernel = module->kernel;
  if (module->is_cut) kernel.shared_end = kernel.shared_begin + start.shared;
  const char* error = module->run(
      kernel, 0, pointers.data(), sizes.data(), static_cast<int>(pointers.size()), start.blocks, start.threads, 2,
      start.blocks, nullptr);
  if (*error) fault(context, 719, module->symbol + ": " + error);
}

int begin(const char* name, bool needs_context = true) {
  ++calls[name];
  auto found = failures.find(name);
  if (found != failures.end() && found->second.first-- == 0) {
    const int error = found->second.second;
    failures.erase(found);
    return error;
  }
  if (process && process != getpid()) return 3;
  if (!process) return std::string(name) == "cuInit" ? 0 : 3;
  if (!needs_context) return 0;
  if (current.empty()) return 201;
  return current.back()->error;
}

// What is not safe beside a capture ends it, unless the thread or the capture says otherwise.
int unsafe() {
  int refused = 0;
  for (Graph* graph : capturing) {
    const bool is_own = graph->thread == &thread_mark;
    const bool ends = is_own ? graph->mode != 2 && capture_mode != 2 : graph->mode == 0 && capture_mode == 0;
    if (ends) { graph->is_broken = true; refused = 900; }
  }
  return refused;
}

// Waiting for what is captured ends the capture.
int wait_for(Stream* stream) {
  if (!stream->captured) return 0;
  stream->captured->is_broken = true;
  return 900;
}

void release(Object* object) {
  if (--object->references) return;
  object->destroy(object->data);
  delete object;
}

Stream* stream_of(CUstream handle) {
  const auto number = reinterpret_cast<uint64_t>(handle);
  if (number <= 2) return current.back()->legacy;
  auto* stream = reinterpret_cast<Stream*>(handle);
  return streams.count(stream) && stream->context == current.back() ? stream : nullptr;
}

int make_start(CUfunction handle, unsigned grid, unsigned threads, unsigned shared, void** parameters, Start* start) {
  auto* function = reinterpret_cast<Function*>(handle);
  if (!handles.count(function)) return 400;
  if (static_cast<int>(shared) > function->dynamic || !grid || !threads || threads > 1024) return 1;
  *start = {function, grid, threads, shared, {}};
  for (int at = 0; at < function->module->parameters; ++at) {
    start->arguments.push_back(*static_cast<uint64_t*>(parameters[at]));
  }
  return 0;
}

// Adds a node behind others.
Node* add_node(Graph* graph, Job job, const std::vector<Node*>& before) {
  graph->nodes.push_back(std::make_unique<Node>(Node{std::move(job), before}));
  return graph->nodes.back().get();
}

// Returns what a graph does, the last first where nothing orders it, or the last and the first by turns where tests have
// mixed streams; false where nodes wait for each other.
bool order_of(const Graph* graph, std::vector<Job>* order) {
  std::set<Node*> ran;
  while (ran.size() < graph->nodes.size()) {
    bool moves = false;
    const size_t size = graph->nodes.size();
    for (size_t at = 0; at < size && !moves; ++at) {
      const auto* node = &graph->nodes[mixes && ran.size() % 2 ? at : size - 1 - at];
      const auto& before = (*node)->before;
      if (ran.count(node->get()) || !std::all_of(before.begin(), before.end(), [&](Node* each) { return ran.count(each); })) continue;
      moves = true;
      ran.insert(node->get());
      order->push_back((*node)->job);
    }
    if (!moves) return false;
  }
  return true;
}

std::vector<Node*> nodes_of(const CUgraphNode* before, size_t number) {
  std::vector<Node*> found;
  for (size_t at = 0; at < number; ++at) found.push_back(reinterpret_cast<Node*>(before[at]));
  return found;
}

Device& device_now() { return devices[current.back()->ordinal]; }

template <typename T>
T* kept(T* made) {
  handles.insert(made);
  return made;
}
}  // namespace

#define API extern "C" __attribute__((visibility("default")))
#define ENTER(...) \
  std::lock_guard<std::recursive_mutex> held(mutex); \
  if (const int refused = begin(__VA_ARGS__)) return static_cast<CUresult>(refused)
#define ENTER_UNSAFE(NAME) \
  ENTER(NAME); \
  if (const int refused = unsafe()) return static_cast<CUresult>(refused)
#define FAIL(CODE) return static_cast<CUresult>(CODE)
#define OK return static_cast<CUresult>(0)

// What tests set and ask.
API void fake_reset(int number, int capability, size_t memory, int shared) {
  std::lock_guard<std::recursive_mutex> held(mutex);
  process = 0;
  count = number;
  for (Device& device : devices) device = {capability, 108, shared, memory, 0};
  for (Context*& context : contexts) context = nullptr;  // what was made of the last ones stays theirs
  calls.clear();
  failures.clear();
  message.clear();
  mixes = false;
  capturing.clear();
}
API void fake_mix(int does) { mixes = does; }
API void fake_capability(int ordinal, int capability) { devices[ordinal].capability = capability; }
API void fake_fail(const char* name, int error, int after) { failures[name] = {after, error}; }
API int fake_calls(const char* name) { return calls[name]; }
API size_t fake_used(int ordinal) { return devices[ordinal].used; }
API const char* fake_message() { return message.c_str(); }

// What a library that computes on the device is given by the one beside this: work on a stream, and memory there.
API int fake_enqueue(CUstream handle, void (*run)(void*), void* data) {
  std::lock_guard<std::recursive_mutex> held(mutex);
  if (current.empty()) return 201;
  Stream* stream = stream_of(handle);
  if (!stream) return 400;
  push(stream, [=] { run(data); });
  return 0;
}
API void* fake_memory(uint64_t address, size_t size) { return room(blocks, address) < size ? nullptr : here(address); }

API CUresult CUDAAPI cuInit(unsigned) {
  ENTER("cuInit", false);
  process = getpid();
  if (!count) FAIL(100);
  OK;
}
API CUresult CUDAAPI cuDriverGetVersion(int* version) { ENTER("cuDriverGetVersion", false); *version = 12040; OK; }
API CUresult CUDAAPI cuDeviceGetCount(int* number) { ENTER("cuDeviceGetCount", false); *number = count; OK; }
API CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER("cuDeviceGet", false);
  if (ordinal < 0 || ordinal >= count) FAIL(101);
  *device = ordinal;
  OK;
}
API CUresult CUDAAPI cuDeviceGetName(char* name, int size, CUdevice device) {
  ENTER("cuDeviceGetName", false);
  snprintf(name, size, "Fake %d", device);
  OK;
}
API CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  ENTER("cuDeviceTotalMem_v2", false);
  *bytes = devices[device].memory;
  OK;
}
API CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice number) {
  ENTER("cuDeviceGetAttribute", false);
  const Device& device = devices[number];
  const std::map<int, int> known{
      {13, 1410000}, {16, device.sms}, {36, 1593000}, {37, 5120}, {38, 40 << 20}, {39, 2048}, {75, device.capability / 10},
      {76, device.capability % 10}, {81, device.shared + 1024}, {97, device.shared}, {106, 32}};
  auto found = known.find(static_cast<int>(attribute));
  if (found == known.end()) FAIL(1);
  *value = found->second;
  OK;
}
API CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  ENTER("cuDevicePrimaryCtxRetain", false);
  if (!contexts[device]) {
    contexts[device] = new Context{device, nullptr};
    contexts[device]->legacy = new Stream{contexts[device], true};
    streams.insert(contexts[device]->legacy);
  }
  *context = reinterpret_cast<CUcontext>(contexts[device]);
  OK;
}
API CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
  ENTER("cuCtxPushCurrent_v2", false);
  auto* pushed = reinterpret_cast<Context*>(context);
  if (contexts[pushed->ordinal] != pushed) FAIL(709);
  current.push_back(pushed);
  OK;
}
API CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* context) {
  ENTER("cuCtxPopCurrent_v2", false);
  if (current.empty()) FAIL(201);
  *context = reinterpret_cast<CUcontext>(current.back());
  current.pop_back();
  OK;
}
API CUresult CUDAAPI cuMemGetInfo_v2(size_t* left, size_t* total) {
  ENTER("cuMemGetInfo_v2");
  *left = device_now().memory - device_now().used;
  *total = device_now().memory;
  OK;
}
API CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t size) {
  ENTER_UNSAFE("cuMemAlloc_v2");
  if (!size) FAIL(1);
  if (device_now().used + size > device_now().memory) FAIL(2);
  const size_t whole = (size + 511) / 512 * 512;
  void* made = aligned_alloc(512, whole);
  std::memset(made, 0xFF, whole);
  *address = reinterpret_cast<uint64_t>(made) + AWAY;
  blocks[*address] = {size, current.back()->ordinal};
  device_now().used += size;
  OK;
}
API CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
  ENTER_UNSAFE("cuMemFree_v2");
  auto found = blocks.find(address);
  if (found == blocks.end()) FAIL(1);
  devices[found->second.ordinal].used -= found->second.size;
  free(here(address));
  blocks.erase(found);
  OK;
}
API CUresult CUDAAPI cuMemHostAlloc(void** address, size_t size, unsigned) {
  ENTER_UNSAFE("cuMemHostAlloc");
  if (!size) FAIL(1);
  *address = malloc(size);
  std::memset(*address, 0xFF, size);
  pinned[reinterpret_cast<uint64_t>(*address)] = size;
  OK;
}
API CUresult CUDAAPI cuMemFreeHost(void* address) {
  ENTER_UNSAFE("cuMemFreeHost");
  if (!pinned.erase(reinterpret_cast<uint64_t>(address))) FAIL(1);
  free(address);
  OK;
}
API CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, size_t size) {
  ENTER_UNSAFE("cuMemcpyHtoD_v2");
  if (room(blocks, target) < size) FAIL(1);
  Stream* stream = current.back()->legacy;
  drain(stream, stream->asked);
  const auto* begin = static_cast<const char*>(source);
  push(stream, [=, copy = std::vector<char>(begin, begin + size)] {
    if (room(blocks, target) < size) return fault(stream->context, 700, "a copy to what is gone");
    std::memcpy(here(target), copy.data(), size);
  });
  OK;
}
API CUresult CUDAAPI cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_t size) {
  ENTER_UNSAFE("cuMemcpyDtoH_v2");
  if (room(blocks, source) < size) FAIL(1);
  drain(current.back()->legacy, current.back()->legacy->asked);
  if (current.back()->error) FAIL(current.back()->error);
  std::memcpy(target, here(source), size);
  OK;
}
API CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, size_t size, CUstream handle) {
  ENTER("cuMemcpyHtoDAsync_v2");
  Stream* stream = stream_of(handle);
  if (!stream) FAIL(400);
  const auto from = reinterpret_cast<uint64_t>(source);
  if (room(blocks, target) < size || pinned_room(from) < size) FAIL(1);
  push(stream, [=] {
    if (room(blocks, target) < size || pinned_room(from) < size) return fault(stream->context, 700, "a copy of what is gone");
    std::memcpy(here(target), source, size);
  });
  OK;
}
API CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, size_t size, CUstream handle) {
  ENTER("cuMemcpyDtoHAsync_v2");
  Stream* stream = stream_of(handle);
  if (!stream) FAIL(400);
  const auto to = reinterpret_cast<uint64_t>(target);
  if (room(blocks, source) < size || pinned_room(to) < size) FAIL(1);
  push(stream, [=] {
    if (room(blocks, source) < size || pinned_room(to) < size) return fault(stream->context, 700, "a copy to what is gone");
    std::memcpy(target, here(source), size);
  });
  OK;
}
API CUresult CUDAAPI cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream handle) {
  ENTER("cuMemcpyDtoDAsync_v2");
  Stream* stream = stream_of(handle);
  if (!stream) FAIL(400);
  if (room(blocks, source) < size || room(blocks, target) < size) FAIL(1);
  push(stream, [=] {
    if (room(blocks, source) < size || room(blocks, target) < size) return fault(stream->context, 700, "a copy of what is gone");
    std::memmove(here(target), here(source), size);
  });
  OK;
}

// An image is lines of text: its kind, the architecture, the emulator's library and the kernel's, symbol, how many
// parameters, and 1 where the kernel's shared memory is all of the size that a launch says.
API CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  ENTER_UNSAFE("cuModuleLoadData");
  std::istringstream lines(static_cast<const char*>(image));
  std::string kind, emulator, library, symbol;
  int arch = 0, parameters = 0, is_cut = 0;
  if (!std::getline(lines, kind) || !(lines >> arch)) FAIL(200);
  const int capability = device_now().capability;
  if (kind == "FAKE CUBIN" && (arch / 10 != capability / 10 || arch > capability)) FAIL(209);
  if (kind == "FAKE PTX" && arch > capability) FAIL(222);
  if (kind != "FAKE CUBIN" && kind != "FAKE PTX") FAIL(200);
  lines >> emulator >> library >> symbol >> parameters >> is_cut;
  void* runs = dlopen(emulator.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* holds = runs ? dlopen(library.c_str(), RTLD_NOW) : nullptr;
  if (!holds) FAIL(301);
  auto* made = new Module{
      current.back(), symbol, *static_cast<Kernel*>(dlsym(holds, "emulated_kernel")),
      reinterpret_cast<Run>(dlsym(runs, "emulated_run")), parameters, is_cut == 1};
  *module = reinterpret_cast<CUmodule>(kept(made));
  OK;
}
API CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  ENTER_UNSAFE("cuModuleUnload");
  if (!handles.erase(module)) FAIL(400);
  OK;
}
API CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  ENTER("cuModuleGetFunction");
  auto* module = reinterpret_cast<Module*>(handle);
  if (!handles.count(module)) FAIL(400);
  if (module->symbol != name) FAIL(500);
  *function = reinterpret_cast<CUfunction>(kept(new Function{module}));
  OK;
}
API CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  ENTER("cuFuncSetAttribute");
  if (!handles.count(handle)) FAIL(400);
  if (static_cast<int>(attribute) != 8 || value > device_now().shared) FAIL(1);
  reinterpret_cast<Function*>(handle)->dynamic = value;
  OK;
}
API CUresult CUDAAPI cuLaunchKernel(
    CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y, unsigned threads_z,
    unsigned shared, CUstream handle, void** parameters, void**) {
  ENTER("cuLaunchKernel");
  Stream* stream = stream_of(handle);
  Start start;
  if (!stream || y != 1 || z != 1 || threads_y != 1 || threads_z != 1) FAIL(400);
  if (const int error = make_start(function, x, threads, shared, parameters, &start)) FAIL(error);
  push(stream, [=] { run_start(stream->context, start); });
  OK;
}
API CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned flags) {
  ENTER("cuStreamCreate");
  auto* made = new Stream{current.back(), flags != 1};
  streams.insert(made);
  *stream = reinterpret_cast<CUstream>(made);
  OK;
}
API CUresult CUDAAPI cuStreamDestroy_v2(CUstream handle) {
  ENTER("cuStreamDestroy_v2");
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!streams.count(stream)) FAIL(400);
  drain(stream, stream->asked);  // a device goes on with it; events may still refer to it, so it stays here
  streams.erase(stream);
  OK;
}
API CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned* flags) {
  ENTER("cuStreamGetFlags");
  Stream* stream = stream_of(handle);
  if (!stream) FAIL(400);
  *flags = stream->blocking ? 0 : 1;
  OK;
}
API CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
  ENTER("cuStreamSynchronize");
  Stream* stream = stream_of(handle);
  if (!stream) FAIL(400);
  if (const int refused = wait_for(stream)) FAIL(refused);
  drain(stream, stream->asked);
  FAIL(stream->context->error);
}
API CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  ENTER("cuStreamWaitEvent");
  Stream* stream = stream_of(handle);
  if (!stream || !handles.count(event)) FAIL(400);
  const Event known = *reinterpret_cast<Event*>(event);
  if (flags) {
    if (flags != 1 || !stream->captured) FAIL(1);
    stream->captured->waits.push_back(reinterpret_cast<Event*>(event));
    OK;
  }
  if (known.capture) {
    auto found = std::find_if(
        capturing.begin(), capturing.end(), [&](Graph* graph) { return graph->capture == known.capture; });
    if (found == capturing.end()) FAIL(907);
    if (stream->captured && stream->captured != *found) FAIL(902);
    stream->captured = *found;
    stream->last.insert(stream->last.end(), known.last.begin(), known.last.end());
    OK;
  }
  if (stream->captured) {
    stream->captured->is_broken = true;
    FAIL(905);
  }
  if (known.stream) push(stream, [=] { drain(known.stream, known.point); });
  OK;
}
API CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned) {
  ENTER("cuEventCreate");
  *event = reinterpret_cast<CUevent>(kept(new Event{current.back()}));
  OK;
}
API CUresult CUDAAPI cuEventDestroy_v2(CUevent event) {
  ENTER("cuEventDestroy_v2");
  if (!handles.erase(event)) FAIL(400);
  OK;
}
API CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream) {
  ENTER("cuEventRecord");
  auto* event = reinterpret_cast<Event*>(handle);
  if (!handles.count(event) || !stream_of(stream)) FAIL(400);
  event->stream = stream_of(stream);
  event->capture = event->stream->captured ? event->stream->captured->capture : 0;
  event->last = event->stream->last;
  if (event->capture) OK;
  push(event->stream, [] {});
  event->point = event->stream->asked;
  OK;
}
API CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
  ENTER("cuEventRecordWithFlags");
  Stream* stream = stream_of(handle);
  if (!stream || !handles.count(event)) FAIL(400);
  if (flags != 1 || !stream->captured) FAIL(1);
  stream->captured->records.push_back(reinterpret_cast<Event*>(event));
  OK;
}
API CUresult CUDAAPI cuEventQuery(CUevent handle) {
  ENTER_UNSAFE("cuEventQuery");
  auto* event = reinterpret_cast<Event*>(handle);
  if (!handles.count(event)) FAIL(400);
  if (event->capture) FAIL(907);
  if (event->stream && event->stream->done < event->point) FAIL(600);
  OK;
}
API CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
  ENTER_UNSAFE("cuEventSynchronize");
  auto* event = reinterpret_cast<Event*>(handle);
  if (!handles.count(event)) FAIL(400);
  if (event->capture) FAIL(907);
  if (event->stream) drain(event->stream, event->point);
  FAIL(event->context->error);
}
API CUresult CUDAAPI cuGraphCreate(CUgraph* graph, unsigned) {
  ENTER("cuGraphCreate");
  *graph = reinterpret_cast<CUgraph>(kept(new Graph));
  OK;
}
API CUresult CUDAAPI cuGraphAddKernelNode_v2(
    CUgraphNode* node, CUgraph handle, const CUgraphNode* before, size_t number, const CUDA_KERNEL_NODE_PARAMS* start) {
  ENTER("cuGraphAddKernelNode_v2");
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (!handles.count(graph)) FAIL(400);
  Start made;
  const int error =
      make_start(start->func, start->gridDimX, start->blockDimX, start->sharedMemBytes, start->kernelParams, &made);
  if (error) FAIL(error);
  Node* added = add_node(graph, [=](Context* context) { run_start(context, made); }, nodes_of(before, number));
  *node = reinterpret_cast<CUgraphNode>(added);
  OK;
}
API CUresult CUDAAPI cuGraphAddChildGraphNode(
    CUgraphNode* node, CUgraph handle, const CUgraphNode* before, size_t number, CUgraph child) {
  ENTER("cuGraphAddChildGraphNode");
  auto* graph = reinterpret_cast<Graph*>(handle);
  std::vector<Job> order;
  if (!handles.count(graph) || !handles.count(child)) FAIL(400);
  if (!order_of(reinterpret_cast<Graph*>(child), &order)) FAIL(1);
  Job all = [=](Context* context) { for (const Job& job : order) job(context); };
  *node = reinterpret_cast<CUgraphNode>(add_node(graph, all, nodes_of(before, number)));
  OK;
}
API CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  ENTER("cuStreamBeginCapture_v2");
  Stream* stream = stream_of(handle);
  if (!stream || stream == stream->context->legacy || stream->captured) FAIL(900);
  Graph* graph = kept(new Graph);
  graph->capture = ++captures;
  graph->mode = static_cast<int>(mode);
  graph->thread = &thread_mark;
  capturing.insert(graph);
  stream->captured = graph;
  stream->last.clear();
  OK;
}
API CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph* graph) {
  ENTER("cuStreamEndCapture");
  Stream* stream = stream_of(handle);
  if (!stream || !stream->captured) FAIL(901);
  Graph* made = stream->captured;
  capturing.erase(made);
  made->capture = 0;
  for (Stream* each : streams) {
    if (each->captured == made) { each->captured = nullptr; each->last.clear(); }
  }
  *graph = made->is_broken ? nullptr : reinterpret_cast<CUgraph>(made);
  FAIL(made->is_broken ? 901 : 0);
}
API CUresult CUDAAPI cuStreamGetCaptureInfo_v2(
    CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph, const CUgraphNode** before, size_t* number) {
  ENTER("cuStreamGetCaptureInfo_v2");
  Stream* stream = stream_of(handle);
  if (!stream || before || number) FAIL(400);
  *status = static_cast<CUstreamCaptureStatus>(stream->captured ? 1 + stream->captured->is_broken : 0);
  if (!stream->captured) OK;
  *id = stream->captured->capture;
  *graph = reinterpret_cast<CUgraph>(stream->captured);
  OK;
}
API CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  ENTER("cuThreadExchangeStreamCaptureMode", false);
  *mode = static_cast<CUstreamCaptureMode>(std::exchange(capture_mode, static_cast<int>(*mode)));
  OK;
}
API CUresult CUDAAPI cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned references, unsigned flags) {
  ENTER("cuUserObjectCreate");
  if (flags != 1 || !references) FAIL(1);
  *object = reinterpret_cast<CUuserObject>(kept(new Object{destroy, data, references}));
  OK;
}
API CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned number) {
  ENTER("cuUserObjectRelease");
  if (number != 1 || !handles.count(object)) FAIL(1);
  release(reinterpret_cast<Object*>(object));
  OK;
}
API CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned number, unsigned flags) {
  ENTER("cuGraphRetainUserObject");
  if (number != 1 || flags != 1 || !handles.count(graph) || !handles.count(object)) FAIL(1);
  reinterpret_cast<Graph*>(graph)->objects.push_back(reinterpret_cast<Object*>(object));
  OK;
}
API CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph handle, unsigned long long) {
  ENTER("cuGraphInstantiateWithFlags");
  auto* graph = reinterpret_cast<Graph*>(handle);
  if (!handles.count(graph)) FAIL(400);
  auto made = std::make_shared<Exec>();
  if (graph->capture || !order_of(graph, &made->order)) FAIL(1);
  made->waits = graph->waits;
  made->records = graph->records;
  made->objects = graph->objects;
  for (Object* each : made->objects) ++each->references;
  execs[made.get()] = made;
  *exec = reinterpret_cast<CUgraphExec>(made.get());
  OK;
}
API CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream to) {
  ENTER("cuGraphLaunch");
  auto found = execs.find(reinterpret_cast<Exec*>(handle));
  Stream* stream = stream_of(to);
  if (found == execs.end() || !stream) FAIL(400);
  auto exec = found->second;
  std::vector<Event> waits;
  for (Event* each : exec->waits) {
    if (!handles.count(each)) FAIL(400);
    waits.push_back(*each);
  }
  push(stream, [=] {
    for (const Event& each : waits) {
      if (each.stream) drain(each.stream, each.point);
    }
    if (exec->is_gone) return fault(stream->context, 700, "a graph that is gone");
    for (const Job& job : exec->order) {
      if (!stream->context->error) job(stream->context);
    }
  });
  for (Event* each : exec->records) {
    if (!handles.count(each)) FAIL(400);
    *each = {each->context, stream, stream->asked};
  }
  OK;
}
API CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
  ENTER("cuGraphExecDestroy");
  auto found = execs.find(reinterpret_cast<Exec*>(handle));
  if (found == execs.end()) FAIL(400);
  found->second->is_gone = true;
  for (Object* each : found->second->objects) release(each);
  execs.erase(found);
  OK;
}
API CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  ENTER("cuGraphDestroy");
  if (!handles.erase(graph)) FAIL(400);
  for (Object* each : reinterpret_cast<Graph*>(graph)->objects) release(each);
  delete reinterpret_cast<Graph*>(graph);
  OK;
}
API CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
  static const std::map<int, const char*> names{
      {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {100, "CUDA_ERROR_NO_DEVICE"}, {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}};
  auto found = names.find(static_cast<int>(error));
  if (found == names.end()) FAIL(1);
  *text = found->second;
  OK;
}
API CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) { return cuGetErrorName(error, text); }
