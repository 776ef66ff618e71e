// A libcublasLt.so.12 for tests: it takes descriptors as NVIDIA's does, and computes on the memory of the fake driver.
//
// What a caller may do wrong is an error, or shows in the numbers:
// - an attribute of another size than documented, or one that is not known: INVALID_VALUE (7);
// - matrices that do not multiply, or lie over the end of their memory: INVALID_VALUE, and the context's end;
// - alignments that callers' tensors may not have: NOT_SUPPORTED (15), as 256 bytes are taken for granted unless told;
// - too little workspace, or one that is in use: it is filled with ones in each bit (NaN) by each product;
// - a product runs when its stream does, so that what it is given must live until then.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>

constexpr int BRAIN = 14;  // CUDA_R_16BF
#include "fake_library.h"

namespace {
enum { NOT_INITIALIZED = 1, INVALID_VALUE = 7, ARCH_MISMATCH = 8, NOT_SUPPORTED = 15 };
constexpr uint64_t MAGIC = 0x6675736e6c74;
constexpr size_t WORKSPACE = 4096;

struct Operation { int compute, scale; std::map<int, uint64_t> set; };
struct Layout { int type; uint64_t rows, columns; int64_t step; std::map<int, uint64_t> set; };
struct Preference { std::map<int, uint64_t> set; };
struct Heuristic { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; };

int proposals = 1;

uint64_t get(const std::map<int, uint64_t>& set, int attribute, uint64_t otherwise) {
  auto found = set.find(attribute);
  return found == set.end() ? otherwise : found->second;
}

int store(std::map<int, uint64_t>* set, const std::map<int, size_t>& sizes, int attribute, const void* value, size_t size) {
  auto known = sizes.find(attribute);
  if (known == sizes.end() || known->second != size) return INVALID_VALUE;
  uint64_t held = 0;
  std::memcpy(&held, value, size);
  (*set)[attribute] = held;
  return SUCCESS;
}

int64_t batches(const Layout& layout) { return static_cast<int64_t>(get(layout.set, 5, 1)); }
int64_t batch_step(const Layout& layout) { return static_cast<int64_t>(get(layout.set, 6, 0)); }
size_t item(const Layout& layout) { return layout.type ? 2 : 4; }
size_t extent(const Layout& layout) {
  return item(layout) * ((batches(layout) - 1) * batch_step(layout) + (layout.columns - 1) * layout.step + layout.rows);
}

struct Product {
  Operation operation;
  Layout a, b, d;
  uint64_t at_a, at_b, at_c, at_d, workspace;
  float beta;
  size_t workspace_bytes;
};

bool multiplies(const Operation& operation, const Layout& a, const Layout& b, const Layout& d) {
  const bool turns_a = get(operation.set, 3, 0), turns_b = get(operation.set, 4, 0);
  const uint64_t rows = turns_a ? a.columns : a.rows, depth = turns_a ? a.rows : a.columns;
  const uint64_t columns = turns_b ? b.rows : b.columns, other = turns_b ? b.columns : b.rows;
  for (const Layout* each : {&a, &b, &d}) {
    if (each->step < static_cast<int64_t>(each->rows) || batches(*each) != batches(d)) return false;
  }
  return rows == d.rows && columns == d.columns && depth == other && a.type == b.type;
}

void run(void* data) {
  const auto& product = *static_cast<Product*>(data);
  const Layout &a = product.a, &b = product.b, &d = product.d;
  const char* from_a = static_cast<char*>(fake_memory(product.at_a, extent(a)));
  const char* from_b = static_cast<char*>(fake_memory(product.at_b, extent(b)));
  auto* to = static_cast<char*>(fake_memory(product.at_d, extent(d)));
  const char* kept = static_cast<char*>(fake_memory(product.at_c, extent(d)));
  const auto epilogue = get(product.operation.set, 7, 1);
  const char* bias = epilogue & 4 ? static_cast<char*>(fake_memory(get(product.operation.set, 8, 0), d.rows * item(d))) : nullptr;
  void* works = fake_memory(product.workspace, product.workspace_bytes);
  if (!from_a || !from_b || !to || !kept || !works || (epilogue & 4 && !bias)) {
    log_text += "memory that is gone\n";
    return;
  }
  std::memset(works, 0xFF, product.workspace_bytes);
  const bool turns_a = get(product.operation.set, 3, 0), turns_b = get(product.operation.set, 4, 0);
  const auto depth = static_cast<int64_t>(turns_a ? a.rows : a.columns);
  for (int64_t batch = 0; batch < batches(d); ++batch) {
    for (int64_t column = 0; column < static_cast<int64_t>(d.columns); ++column) {
      for (int64_t row = 0; row < static_cast<int64_t>(d.rows); ++row) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) {
          const int64_t in_a = batch * batch_step(a) + (turns_a ? row * a.step + k : k * a.step + row);
          const int64_t in_b = batch * batch_step(b) + (turns_b ? k * b.step + column : column * b.step + k);
          sum += static_cast<double>(read(from_a, a.type, in_a)) * read(from_b, b.type, in_b);
        }
        if (product.beta) sum += product.beta * read(kept, d.type, batch * batch_step(d) + column * d.step + row);
        if (bias) sum += read(bias, d.type, row);
        if (epilogue & 2 && sum < 0) sum = 0;
        if (epilogue & 32) sum *= 0.5 * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
        write(to, d.type, batch * batch_step(d) + column * d.step + row, static_cast<float>(sum));
      }
    }
  }
}
}  // namespace

#define API extern "C" __attribute__((visibility("default")))
#define ENTER(NAME) \
  if (const int status = failed(NAME)) return status

API void fake_cublaslt_reset() { log_text.clear(); failures.clear(); proposals = 1; }
API const char* fake_cublaslt_log() { return log_text.c_str(); }
API void fake_cublaslt_fail(const char* name, int status) { failures[name] = status; }
API void fake_cublaslt_propose(int number) { proposals = number; }

API const char* cublasLtGetStatusString(int status) { return status == NOT_SUPPORTED ? "not supported" : "another status"; }
API int cublasLtCreate(void** handle) {
  ENTER("cublasLtCreate");
  *handle = new uint64_t(MAGIC);
  return SUCCESS;
}
API int cublasLtMatmulDescCreate(void** made, int compute, int scale) { *made = new Operation{compute, scale, {}}; return SUCCESS; }
API int cublasLtMatmulDescDestroy(void* made) { delete static_cast<Operation*>(made); return SUCCESS; }
API int cublasLtMatmulDescSetAttribute(void* made, int attribute, const void* value, size_t size) {
  return store(&static_cast<Operation*>(made)->set, {{3, 4}, {4, 4}, {7, 4}, {8, 8}}, attribute, value, size);
}
API int cublasLtMatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns, int64_t step) {
  if (type != 0 && type != 2 && type != 14) return INVALID_VALUE;
  *made = new Layout{type, rows, columns, step, {}};
  return SUCCESS;
}
API int cublasLtMatrixLayoutDestroy(void* made) { delete static_cast<Layout*>(made); return SUCCESS; }
API int cublasLtMatrixLayoutSetAttribute(void* made, int attribute, const void* value, size_t size) {
  return store(&static_cast<Layout*>(made)->set, {{5, 4}, {6, 8}}, attribute, value, size);
}
API int cublasLtMatmulPreferenceCreate(void** made) { *made = new Preference; return SUCCESS; }
API int cublasLtMatmulPreferenceDestroy(void* made) { delete static_cast<Preference*>(made); return SUCCESS; }
API int cublasLtMatmulPreferenceSetAttribute(void* made, int attribute, const void* value, size_t size) {
  return store(&static_cast<Preference*>(made)->set, {{1, 8}, {5, 4}, {6, 4}, {7, 4}, {8, 4}}, attribute, value, size);
}
API int cublasLtMatmulAlgoGetHeuristic(
    void* handle, void* operation, void* a, void* b, void* c, void* d, void* preference, int asked, Heuristic* found, int* count) {
  ENTER("cublasLtMatmulAlgoGetHeuristic");
  const auto& known = *static_cast<Operation*>(operation);
  const auto& set = static_cast<Preference*>(preference)->set;
  if (*static_cast<uint64_t*>(handle) != MAGIC || asked < 1 || c != d) return INVALID_VALUE;
  if (!multiplies(known, *static_cast<Layout*>(a), *static_cast<Layout*>(b), *static_cast<Layout*>(d))) return INVALID_VALUE;
  for (int matrix : {5, 6, 7, 8}) {
    if (get(set, matrix, 256) > 16) return NOT_SUPPORTED;
  }
  if (get(known.set, 7, 1) & 4 && get(known.set, 8, 0) % 32 != 16) return NOT_SUPPORTED;
  *count = get(set, 1, 0) < WORKSPACE ? 0 : proposals;
  *found = Heuristic{{MAGIC}, WORKSPACE, SUCCESS, 1.0f, {}};
  return SUCCESS;
}
API int cublasLtMatmul(
    void* handle, void* operation, const void* alpha, const void* a, void* layout_a, const void* b, void* layout_b,
    const void* beta, const void* c, void* layout_c, void* d, void* layout_d, const uint64_t* algorithm, void* workspace,
    size_t workspace_bytes, void* stream) {
  ENTER("cublasLtMatmul");
  if (*static_cast<uint64_t*>(handle) != MAGIC || *algorithm != MAGIC || workspace_bytes < WORKSPACE) return INVALID_VALUE;
  if (*static_cast<const float*>(alpha) != 1.0f || layout_c != layout_d) return INVALID_VALUE;
  const float kept = *static_cast<const float*>(beta);
  if ((kept != 0.0f && kept != 1.0f) || (kept == 0.0f) != (c == d)) return INVALID_VALUE;
  auto* made = new Product{
      *static_cast<Operation*>(operation), *static_cast<Layout*>(layout_a), *static_cast<Layout*>(layout_b),
      *static_cast<Layout*>(layout_d), reinterpret_cast<uint64_t>(a), reinterpret_cast<uint64_t>(b),
      reinterpret_cast<uint64_t>(c), reinterpret_cast<uint64_t>(d), reinterpret_cast<uint64_t>(workspace), kept, workspace_bytes};
  char line[256];
  const auto& set = made->operation.set;
  snprintf(
      line, sizeof line, "compute %d, A %s %lux%lu/%ld type %d, B %s %lux%lu/%ld, D %lux%lu type %d, batches %ld, epilogue %lu%s\n",
      made->operation.compute, get(set, 3, 0) ? "T" : "N", made->a.rows, made->a.columns, made->a.step, made->a.type,
      get(set, 4, 0) ? "T" : "N", made->b.rows, made->b.columns, made->b.step, made->d.rows, made->d.columns, made->d.type,
      batches(made->d), get(set, 7, 1), kept ? ", beta 1" : "");
  log_text += line;
  return fake_enqueue(stream, run, made) ? INVALID_VALUE : SUCCESS;
}
