// A libcudnn.so.9 for tests: it takes the descriptors of cuDNN's graph API as NVIDIA documents them, and computes on the memory
// of the fake driver.
//
// What a caller may do wrong is an error, or shows in the numbers:
// - an attribute that a descriptor has not, of another type or number of elements, or set when it is final: BAD_PARAM (2000);
// - a descriptor without what is required, or of others that are not final: BAD_PARAM;
// - tensors that do not lie with channels innermost, that begin at more than 16 bytes, or another result than the window has;
// - a residual or a maximum without a bias has no engine, as in 9.28.1;
// - addresses that are null, not aligned as was said, too many or too few; a workspace that is missing;
// - a maximum that was not asked to pass NaN on makes them 0;
// - the workspace is filled with ones in each bit (NaN) by each run, which is when its stream is, not before.
// The engines that it ranks first transform (Winograd), round operands, are not supported, cannot be compiled, or work in too
// much memory: those are to be passed over.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <vector>

constexpr int BRAIN = 9;  // CUDNN_DATA_BFLOAT16
#include "fake_library.h"

namespace {
enum { BAD_PARAM = 2000, NOT_SUPPORTED = 3000, FAILED = 4001 };
enum { POINTWISE, CONVOLUTION, ENGINE, ENGINECFG, ENGINEHEUR, PLAN, FORWARD = 10, POINT = 13, GRAPH = 15, PACK, TENSOR };
enum { HANDLE, DATA_TYPE, BOOLEAN, INT64, FLOAT, POINTER = 6, CONV_MODE, HEUR_MODE, NAN_MODE = 10, NOTE, MODE = 14, DESCRIPTOR };
constexpr uint64_t MAGIC = 0x6675736e646e;
constexpr int64_t ALIGNMENT = 16;
constexpr size_t WORKSPACE = 4096;

struct Rule { int type; int64_t least, most; };
const std::map<int, std::map<int, Rule>> RULES = {
    {POINTWISE, {{0, {MODE, 1, 1}}, {1, {DATA_TYPE, 1, 1}}, {2, {NAN_MODE, 0, 1}}}},
    {CONVOLUTION, {{100, {DATA_TYPE, 1, 1}}, {101, {CONV_MODE, 1, 1}}, {102, {INT64, 2, 2}}, {103, {INT64, 2, 2}},
                   {104, {INT64, 2, 2}}, {105, {INT64, 2, 2}}, {106, {INT64, 1, 1}}}},
    {ENGINEHEUR, {{200, {HEUR_MODE, 1, 1}}, {201, {DESCRIPTOR, 1, 1}}}},
    {PLAN, {{400, {HANDLE, 1, 1}}, {401, {DESCRIPTOR, 1, 1}}}},
    {FORWARD, {{700, {FLOAT, 1, 1}}, {701, {FLOAT, 1, 1}}, {702, {DESCRIPTOR, 1, 1}}, {703, {DESCRIPTOR, 1, 1}},
               {704, {DESCRIPTOR, 1, 1}}, {705, {DESCRIPTOR, 1, 1}}}},
    {POINT, {{750, {DESCRIPTOR, 1, 1}}, {751, {DESCRIPTOR, 1, 1}}, {752, {DESCRIPTOR, 0, 1}}, {753, {DESCRIPTOR, 1, 1}}}},
    {GRAPH, {{800, {HANDLE, 1, 1}}, {801, {DESCRIPTOR, 1, 8}}}},
    {PACK, {{1000, {INT64, 1, 8}}, {1001, {POINTER, 1, 8}}, {1003, {POINTER, 1, 1}}}},
    {TENSOR, {{900, {INT64, 1, 1}}, {901, {DATA_TYPE, 1, 1}}, {902, {INT64, 4, 4}}, {903, {INT64, 4, 4}}, {906, {INT64, 1, 1}},
              {907, {BOOLEAN, 0, 1}}}},
};
const std::map<int, size_t> SIZES = {{HANDLE, 8}, {DATA_TYPE, 4}, {BOOLEAN, 1}, {INT64, 8}, {FLOAT, 4}, {POINTER, 8},
                                     {CONV_MODE, 4}, {HEUR_MODE, 4}, {NAN_MODE, 4}, {NOTE, 4}, {MODE, 4}, {DESCRIPTOR, 8}};

struct Engine { std::vector<int> notes; int status; int64_t workspace; };
const Engine WINOGRAD{{5, 0}, SUCCESS, 0}, ROUNDED{{0, 1}, SUCCESS, 0}, MISSING{{0}, NOT_SUPPORTED, 0}, FAILING{{0}, FAILED, 0},
    LARGE{{0}, SUCCESS, int64_t{1} << 40}, GOOD{{0}, SUCCESS, WORKSPACE}, PLAIN{{}, SUCCESS, 0};
int proposals = 6;  // of the ranked engines

struct Tensor {
  int64_t id, dims[4], steps[4];
  int type;
  bool is_virtual;
  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  size_t bytes() const { return elements() * (type ? 2 : 4); }
};

struct Step { bool is_relu, passes_nan; Tensor other; };
struct Work {
  Tensor image, weight, sums, result;
  int64_t dilations[2], strides[2], after[2], before[2];
  std::vector<Step> steps;
  std::map<int64_t, uint64_t> at;
  uint64_t workspace;
  size_t workspace_bytes;
};

struct Descriptor {
  int kind;
  bool is_final = false;
  std::map<int, std::vector<uint64_t>> set;
  Engine engine{};
  Work work;  // of an engine, and what refers to it

  const std::vector<uint64_t>& all(int attribute) const { return set.at(attribute); }
  int64_t one(int attribute) const { return static_cast<int64_t>(set.at(attribute).at(0)); }
  const Descriptor& of(int attribute) const { return *reinterpret_cast<Descriptor*>(set.at(attribute).at(0)); }
  bool has(int attribute) const { return set.count(attribute); }
};
std::set<const void*> alive;

struct Handle { uint64_t magic; void* stream; };

Tensor tensor_of(const Descriptor& from) {
  Tensor made{from.one(906), {}, {}, static_cast<int>(from.one(901)), from.has(907) && from.one(907)};
  for (int axis = 0; axis < 4; ++axis) {
    made.dims[axis] = static_cast<int64_t>(from.all(902)[axis]);
    made.steps[axis] = static_cast<int64_t>(from.all(903)[axis]);
  }
  return made;
}

bool is_kind(uint64_t handle, int kind) {
  auto* found = reinterpret_cast<Descriptor*>(handle);
  return alive.count(found) && found->kind == kind && found->is_final;
}

bool lies_channels_last(const Tensor& one) {
  const int64_t *d = one.dims, *s = one.steps;
  return s[0] == d[2] * d[3] * d[1] && s[1] == 1 && s[2] == d[3] * d[1] && s[3] == d[1];
}

int check_tensor(const Descriptor& made) {
  const Tensor one = tensor_of(made);
  for (int64_t extent : one.dims) if (extent < 1) return BAD_PARAM;
  if (one.type != 0 && one.type != 2 && one.type != BRAIN) return BAD_PARAM;
  return one.id > 0 && made.one(900) > 0 && made.one(900) <= ALIGNMENT && lies_channels_last(one) ? SUCCESS : BAD_PARAM;
}

int check_convolution(const Descriptor& made) {
  if (made.one(100) != 0 || made.one(101) != 1 || made.one(106) != 2) return BAD_PARAM;
  for (int axis : {0, 1}) {
    const auto at = [&](int name) { return static_cast<int64_t>(made.all(name)[axis]); };
    if (at(102) < 1 || at(103) < 1 || at(104) < 0 || at(105) < 0) return BAD_PARAM;
  }
  return SUCCESS;
}

int check_forward(const Descriptor& made) {
  for (int name : {703, 704, 705}) if (!is_kind(made.all(name)[0], TENSOR)) return BAD_PARAM;
  if (!is_kind(made.all(702)[0], CONVOLUTION)) return BAD_PARAM;
  float alpha, beta;
  std::memcpy(&alpha, &made.all(700)[0], 4);
  std::memcpy(&beta, &made.all(701)[0], 4);
  const Tensor image = tensor_of(made.of(704)), weight = tensor_of(made.of(703)), result = tensor_of(made.of(705));
  if (alpha != 1 || beta != 0 || image.type != weight.type || image.is_virtual || weight.is_virtual) return BAD_PARAM;
  if (image.dims[1] % weight.dims[1] || result.dims[0] != image.dims[0] || result.dims[1] != weight.dims[0]) return BAD_PARAM;
  if (weight.dims[0] % (image.dims[1] / weight.dims[1])) return BAD_PARAM;
  for (int axis : {0, 1}) {
    const auto at = [&](int name) { return static_cast<int64_t>(made.of(702).all(name)[axis]); };
    const int64_t reach = at(102) * (weight.dims[2 + axis] - 1) + 1, room = image.dims[2 + axis] + at(104) + at(105) - reach;
    if (room < 0 || result.dims[2 + axis] != room / at(103) + 1) return BAD_PARAM;
  }
  return SUCCESS;
}

int check_point(const Descriptor& made) {
  if (!is_kind(made.all(750)[0], POINTWISE) || made.of(750).one(1) != 0) return BAD_PARAM;
  for (int name : {751, 752, 753}) if (made.has(name) && !is_kind(made.all(name)[0], TENSOR)) return BAD_PARAM;
  const int64_t mode = made.of(750).one(0);
  if ((mode != 0 && mode != 100) || (mode == 0) != made.has(752)) return BAD_PARAM;
  const Tensor from = tensor_of(made.of(751)), to = tensor_of(made.of(753));
  for (int axis = 0; axis < 4; ++axis) {
    const int64_t other = made.has(752) ? static_cast<int64_t>(made.of(752).all(902)[axis]) : to.dims[axis];
    if (from.dims[axis] != to.dims[axis] || (other != 1 && other != to.dims[axis])) return BAD_PARAM;
  }
  return SUCCESS;
}

// Return what a graph computes, as far as it is a chain that begins with a convolution.
int read_graph(const Descriptor& graph, Work* work) {
  const auto& operations = graph.all(801);
  if (!is_kind(operations[0], FORWARD)) return NOT_SUPPORTED;
  const auto& first = *reinterpret_cast<Descriptor*>(operations[0]);
  work->image = tensor_of(first.of(704)), work->weight = tensor_of(first.of(703)), work->sums = tensor_of(first.of(705));
  for (int axis : {0, 1}) {
    const auto at = [&](int name) { return static_cast<int64_t>(first.of(702).all(name)[axis]); };
    work->dilations[axis] = at(102), work->strides[axis] = at(103), work->after[axis] = at(104), work->before[axis] = at(105);
  }
  std::map<int64_t, const Descriptor*> known;
  const auto is_one = [&](const Descriptor& one) { return known.emplace(one.one(906), &one).first->second == &one; };
  if (!is_one(first.of(704)) || !is_one(first.of(703)) || !is_one(first.of(705))) return BAD_PARAM;
  const Descriptor* last = &first.of(705);
  for (size_t place = 1; place < operations.size(); ++place) {
    if (!is_kind(operations[place], POINT)) return BAD_PARAM;
    const auto& each = *reinterpret_cast<Descriptor*>(operations[place]);
    const Tensor between = tensor_of(*last);
    if (&each.of(751) != last || !between.is_virtual || between.type != 0 || !is_one(each.of(753))) return BAD_PARAM;
    if (each.has(752) && !is_one(each.of(752))) return BAD_PARAM;
    const auto& how = each.of(750);
    work->steps.push_back({how.one(0) == 100, how.has(2) && how.one(2) == 1, each.has(752) ? tensor_of(each.of(752)) : Tensor{}});
    last = &each.of(753);
  }
  work->result = tensor_of(*last);
  return work->result.is_virtual ? BAD_PARAM : SUCCESS;
}

bool has_engine(const Work& work) {
  bool has_bias = work.steps.empty();
  for (const Step& step : work.steps) has_bias |= !step.is_relu && step.other.dims[2] * step.other.dims[3] * step.other.dims[0] == 1;
  return has_bias;
}

int check_graph(const Descriptor& made) {
  Work work{};
  if (reinterpret_cast<Handle*>(made.all(800)[0])->magic != MAGIC) return BAD_PARAM;
  return read_graph(made, &work);
}

int check(const Descriptor& made) {
  switch (made.kind) {
    case TENSOR: return check_tensor(made);
    case CONVOLUTION: return check_convolution(made);
    case FORWARD: return check_forward(made);
    case POINT: return check_point(made);
    case GRAPH: return check_graph(made);
    case ENGINEHEUR: return is_kind(made.all(201)[0], GRAPH) ? SUCCESS : BAD_PARAM;
    case PLAN: {
      const bool is_known = reinterpret_cast<Handle*>(made.all(400)[0])->magic == MAGIC && is_kind(made.all(401)[0], ENGINECFG);
      return is_known ? made.of(401).engine.status : BAD_PARAM;
    }
    case PACK: return made.all(1000).size() == made.all(1001).size() ? SUCCESS : BAD_PARAM;
    default: return SUCCESS;
  }
}

int64_t place(const Tensor& one, int64_t n, int64_t c, int64_t y, int64_t x) {
  return n * one.steps[0] + c * one.steps[1] + y * one.steps[2] + x * one.steps[3];
}

void run(void* data) {
  const auto& work = *static_cast<Work*>(data);
  const auto at = [&](const Tensor& one) { return static_cast<char*>(fake_memory(work.at.at(one.id), one.bytes())); };
  const char *image = at(work.image), *weight = at(work.weight);
  char* to = at(work.result);
  void* works = work.workspace_bytes ? fake_memory(work.workspace, work.workspace_bytes) : to;
  bool is_there = image && weight && to && works;
  for (const Step& step : work.steps) is_there &= step.is_relu || at(step.other);
  if (!is_there) {
    log_text += "memory that is gone\n";
    return;
  }
  if (work.workspace_bytes) std::memset(works, 0xFF, work.workspace_bytes);
  const Tensor &in = work.image, &by = work.weight, &out = work.result;
  const int64_t group = out.dims[1] / (in.dims[1] / by.dims[1]);
  for (int64_t n = 0; n < out.dims[0]; ++n)
    for (int64_t y = 0; y < out.dims[2]; ++y)
      for (int64_t x = 0; x < out.dims[3]; ++x)
        for (int64_t o = 0; o < out.dims[1]; ++o) {
          double sum = 0;
          for (int64_t r = 0; r < by.dims[2]; ++r)
            for (int64_t s = 0; s < by.dims[3]; ++s) {
              const int64_t row = y * work.strides[0] + r * work.dilations[0] - work.before[0];
              const int64_t column = x * work.strides[1] + s * work.dilations[1] - work.before[1];
              if (row < 0 || row >= in.dims[2] || column < 0 || column >= in.dims[3]) continue;
              for (int64_t c = 0; c < by.dims[1]; ++c)
                sum += static_cast<double>(read(image, in.type, place(in, n, o / group * by.dims[1] + c, row, column))) *
                       read(weight, by.type, place(by, o, c, r, s));
            }
          for (const Step& step : work.steps) {
            if (step.is_relu) {
              sum = sum > 0 || (step.passes_nan && std::isnan(sum)) ? sum : 0;
            } else {
              const int64_t* d = step.other.dims;
              sum += read(at(step.other), step.other.type, place(step.other, n % d[0], o % d[1], y % d[2], x % d[3]));
            }
          }
          write(to, out.type, place(out, n, o, y, x), static_cast<float>(sum));
        }
}

void log_work(const Work& work) {
  char line[256];
  const int64_t *in = work.image.dims, *by = work.weight.dims;
  snprintf(
      line, sizeof line, "%ldx%ldx%ldx%ld by %ldx%ldx%ldx%ld type %d, strides %ld %ld, dilations %ld %ld, before %ld %ld, after %ld %ld",
      in[0], in[1], in[2], in[3], by[0], by[1], by[2], by[3], work.image.type, work.strides[0], work.strides[1], work.dilations[0],
      work.dilations[1], work.before[0], work.before[1], work.after[0], work.after[1]);
  log_text += line;
  for (const Step& step : work.steps) log_text += step.is_relu ? ", relu" : step.other.id == 4 ? ", bias" : ", residual";
  log_text += "\n";
}
}  // namespace

#define API extern "C" __attribute__((visibility("default")))
#define ENTER(NAME) \
  if (const int status = failed(NAME)) return status

API void fake_cudnn_reset() { log_text.clear(); failures.clear(); proposals = 6; }
API const char* fake_cudnn_log() { return log_text.c_str(); }
API void fake_cudnn_fail(const char* name, int status) { failures[name] = status; }
API void fake_cudnn_propose(int number) { proposals = number; }
API int fake_cudnn_alive() { return static_cast<int>(alive.size()); }

API const char* cudnnGetErrorString(int status) { return status == NOT_SUPPORTED ? "not supported" : "another status"; }
API int cudnnCreate(void** handle) {
  ENTER("cudnnCreate");
  *handle = new Handle{MAGIC, nullptr};
  return SUCCESS;
}
API int cudnnSetStream(void* handle, void* stream) {
  ENTER("cudnnSetStream");
  static_cast<Handle*>(handle)->stream = stream;
  return SUCCESS;
}
API int cudnnBackendCreateDescriptor(int kind, void** made) {
  ENTER("cudnnBackendCreateDescriptor");
  if (!RULES.count(kind) && kind != ENGINE && kind != ENGINECFG) return BAD_PARAM;
  auto* one = new Descriptor{kind};
  alive.insert(one);
  *made = one;
  return SUCCESS;
}
API int cudnnBackendDestroyDescriptor(void* made) {
  if (!alive.erase(made)) return BAD_PARAM;
  delete static_cast<Descriptor*>(made);
  return SUCCESS;
}
API int cudnnBackendSetAttribute(void* made, int attribute, int type, int64_t count, const void* values) {
  auto& one = *static_cast<Descriptor*>(made);
  const auto rules = RULES.find(one.kind);
  if (one.is_final || rules == RULES.end() || !rules->second.count(attribute)) return BAD_PARAM;
  const Rule& rule = rules->second.at(attribute);
  if (type != rule.type || count < rule.least || count > rule.most) return BAD_PARAM;
  std::vector<uint64_t> held(count);
  for (int64_t at = 0; at < count; ++at) std::memcpy(&held[at], static_cast<const char*>(values) + at * SIZES.at(type), SIZES.at(type));
  one.set[attribute] = held;
  return SUCCESS;
}
API int cudnnBackendFinalize(void* made) {
  ENTER("cudnnBackendFinalize");
  auto& one = *static_cast<Descriptor*>(made);
  const auto rules = RULES.find(one.kind);
  if (one.is_final || rules == RULES.end()) return BAD_PARAM;
  for (const auto& [name, rule] : rules->second) if (rule.least && !one.has(name)) return BAD_PARAM;
  const int status = check(one);
  one.is_final = status == SUCCESS;
  return status;
}
API int cudnnBackendGetAttribute(void* made, int attribute, int type, int64_t most, int64_t* count, void* values) {
  ENTER("cudnnBackendGetAttribute");
  auto& one = *static_cast<Descriptor*>(made);
  if (!one.is_final) return BAD_PARAM;
  const auto fill = [&](int kind, const std::vector<Engine>& engines, const Work& work) {
    *count = static_cast<int64_t>(engines.size());
    for (int64_t at = 0; at < most && at < *count; ++at) {
      auto* to = static_cast<Descriptor**>(values)[at];
      if (!alive.count(to) || to->kind != kind || to->is_final) return static_cast<int>(BAD_PARAM);
      to->engine = engines[at];
      to->work = work;
      to->is_final = true;
    }
    return SUCCESS;
  };
  if (one.kind == ENGINEHEUR && attribute == 202 && type == DESCRIPTOR) {
    Work work{};
    read_graph(one.of(201), &work);
    std::vector<Engine> engines{WINOGRAD, ROUNDED, MISSING, FAILING, LARGE, GOOD};
    if (one.one(200) == 2) engines = proposals < 0 ? std::vector<Engine>{} : std::vector<Engine>{PLAIN};
    else engines.resize(proposals < 0 ? 0 : proposals);
    return fill(ENGINECFG, has_engine(work) ? engines : std::vector<Engine>{}, work);
  }
  if (one.kind == ENGINECFG && attribute == 300 && type == DESCRIPTOR) return fill(ENGINE, {one.engine}, one.work);
  if (one.kind == ENGINE && attribute == 1303 && type == NOTE) {
    *count = static_cast<int64_t>(one.engine.notes.size());
    std::memcpy(values, one.engine.notes.data(), 4 * std::min(*count, most));
    return SUCCESS;
  }
  if (one.kind == PLAN && attribute == 402 && type == INT64 && most == 1) {
    *count = 1;
    *static_cast<int64_t*>(values) = one.of(401).engine.workspace;
    return SUCCESS;
  }
  return BAD_PARAM;
}
API int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  ENTER("cudnnBackendExecute");
  if (!is_kind(reinterpret_cast<uint64_t>(plan), PLAN) || !is_kind(reinterpret_cast<uint64_t>(pack), PACK)) return BAD_PARAM;
  const auto &how = static_cast<Descriptor*>(plan)->of(401), &given = *static_cast<Descriptor*>(pack);
  if (static_cast<Handle*>(handle)->magic != MAGIC) return BAD_PARAM;
  auto* work = new Work(how.work);
  std::set<int64_t> ids{work->image.id, work->weight.id, work->result.id};
  for (const Step& step : work->steps) if (!step.is_relu) ids.insert(step.other.id);
  for (size_t place = 0; place < given.all(1000).size(); ++place) {
    const uint64_t address = given.all(1001)[place];
    if (!ids.erase(static_cast<int64_t>(given.all(1000)[place])) || !address || address % ALIGNMENT) return BAD_PARAM;
    work->at[static_cast<int64_t>(given.all(1000)[place])] = address;
  }
  work->workspace = given.one(1003);
  work->workspace_bytes = how.engine.workspace;
  if (!ids.empty() || (work->workspace_bytes && (!work->workspace || work->workspace % ALIGNMENT))) return BAD_PARAM;
  log_work(*work);
  return fake_enqueue(static_cast<Handle*>(handle)->stream, run, work) ? BAD_PARAM : SUCCESS;
}
