/* What a server of TVM RPC is sent to measure kernels with: calls are made in a child process, so that one that crashes,
 * hangs or takes all memory ends neither the session nor the server, which ends for good when a session ends badly.
 *
 * Functions take and return numbers; all else passes through files of the session's folder, which the session can send
 * and fetch: `plan` (what may be called, written by tuning/served/plan.py), `order` and `times`.
 */
#define _GNU_SOURCE
#include "../../fusion/pool/launch.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* TVMFFIAny, DLTensor and the convention by which kernels are called. */
typedef struct {
    int32_t type, unused;
    union {
        int64_t number;
        void *pointer;
    };
} Any;
typedef struct {
    void *data;
    int32_t device, device_id, rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
} Tensor;
typedef int (*Kernel)(void *self, const Any *arguments, int32_t count, Any *result);
enum { IS_NUMBER = 1, IS_TENSOR = 7, ON_CPU = 1 };

/* How the calls of an order ended. */
enum { ALL_RAN, RAISED, ENDED, CAME_NOT_BACK };
#define GROWTH ((uint64_t)2 << 30) /* bytes that kernels may take beside the tensors, as tuning/confine.py has it */
#define SETUP_MS 120000
#define LOOK_MS 20

typedef struct {
    Kernel kernel;
    Any *arguments;
    int32_t count;
} Call;

/* What parent and child share. */
typedef struct {
    _Atomic int64_t done; /* entries of the order */
    int64_t count, limit_ns;
    int32_t how;
    int64_t entries[]; /* of the order, and then what each of them gave */
} Board;

static struct {
    pid_t child;
    int ask, answer;
    Board *board;
    size_t bytes;
    int64_t most;
} session;
static struct {
    Call *calls;
    Tensor *tensors;
} plan;

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Return what a file holds, with a zero behind it; NULL where it cannot be read. Files of /proc tell no size. */
static char *read_all(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    size_t room = 1 << 16, got = 0;
    char *data = file ? malloc(room + 1) : NULL;
    while (data) {
        size_t some = fread(data + got, 1, room - got, file);
        got += some;
        if (some == 0) break;
        if (got == room) data = realloc(data, (room *= 2) + 1);
    }
    if (file) fclose(file);
    if (data) data[got] = 0;
    if (size) *size = got;
    return data;
}

static bool write_all(const char *path, const void *data, size_t size) {
    FILE *file = fopen(path, "wb");
    bool written = file && fwrite(data, 1, size, file) == size;
    return file && fclose(file) == 0 && written;
}

static void *must(void *found) {
    if (!found) _exit(1);
    return found;
}

/* Return memory as the worker of this machine's own measurements has it: aligned, of zeros. */
static char *allocate(int64_t size) {
    char *memory = NULL;
    if (posix_memalign((void **)&memory, 64, size > 0 ? (size_t)size : 64)) _exit(1);
    return memset(memory, 0, (size_t)size);
}

static char *make_storage(const int64_t *fields, const char *data, int64_t data_size) {
    int64_t size = fields[0], offset = fields[1];
    char *memory = allocate(size);
    if (offset < 0) return memset(memory, (int)fields[2], (size_t)size);
    if (offset + size > data_size) _exit(1);
    return memcpy(memory, data + offset, (size_t)size);
}

/* Read a tensor; returns what is behind its fields: storage, kind and bits of its elements, rank, extents. */
static const int64_t *make_tensor(const int64_t *fields, char **storages, Tensor *tensor) {
    int32_t rank = (int32_t)fields[3];
    int64_t *extents = must(calloc((size_t)rank * 2 + 1, sizeof *extents)), step = 1;
    for (int at = rank - 1; at >= 0; at--) {
        extents[at] = fields[4 + at];
        extents[rank + at] = step;
        step *= extents[at];
    }
    *tensor = (Tensor){storages[fields[0]], ON_CPU, 0, rank, (uint8_t)fields[1], (uint8_t)fields[2], 1, extents,
                       extents + rank, 0};
    return fields + 4 + rank;
}

/* Return the library, which is loaded, with its launches in the pool of this file's library. */
static void *open_kernels(const char *name) {
    void *library = must(dlopen(name, RTLD_NOW | RTLD_LOCAL));
    void **launch = dlsym(library, "__TVMBackendParallelLaunch");
    if (launch) *launch = (void *)pool_launch;
    return library;
}

static void *find(void **libraries, int64_t count, const char *symbol) {
    void *found = NULL;
    for (int64_t index = 0; index < count && !found; index++) found = dlsym(libraries[index], symbol);
    return found;
}

static const char *next_text(const char *text) { return text + strlen(text) + 1; }

/* Make what `plan` describes: counts, storages, tensors and calls as 64-bit numbers, and then the texts. */
static void make_plan(void) {
    size_t data_size = 0;
    const int64_t *fields = must(read_all("plan", NULL)), *at = fields + 6;
    int64_t threads = fields[0], storage_count = fields[1], tensor_count = fields[2], call_count = fields[3];
    int64_t library_count = fields[4];
    const char *text = (const char *)fields + fields[5];
    const char *data = *text ? must(read_all(text, &data_size)) : NULL;
    text = next_text(text);
    char **storages = must(calloc((size_t)storage_count + 1, sizeof *storages));
    for (int64_t index = 0; index < storage_count; index++, at += 3)
        storages[index] = make_storage(at, data, (int64_t)data_size);
    free((void *)data);
    plan.tensors = must(calloc((size_t)tensor_count + 1, sizeof *plan.tensors));
    for (int64_t index = 0; index < tensor_count; index++) at = make_tensor(at, storages, &plan.tensors[index]);
    void **libraries = must(calloc((size_t)library_count + 1, sizeof *libraries));
    for (int64_t index = 0; index < library_count; index++, text = next_text(text)) libraries[index] = open_kernels(text);
    plan.calls = must(calloc((size_t)call_count + 1, sizeof *plan.calls));
    for (int64_t index = 0; index < call_count; index++, text = next_text(text)) {
        Call *call = &plan.calls[index];
        call->count = (int32_t)*at++;
        call->arguments = must(calloc((size_t)call->count + 1, sizeof *call->arguments));
        for (int32_t place = 0; place < call->count; place++)
            call->arguments[place] = (Any){.type = IS_TENSOR, .pointer = &plan.tensors[*at++]};
        call->kernel = (Kernel)must(find(libraries, library_count, text));
    }
    pool_use((int)threads);
}

/* Let kernels write nowhere, leave no core, and take no more than so much beside what there is. */
static void confine(void) {
    long unused, pages = 0;
    int nowhere = open("/dev/null", O_RDWR);
    for (int number = 0; number < 3; number++) dup2(nowhere, number);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return;
    if (fscanf(file, "%ld %ld %ld %ld %ld %ld", &unused, &unused, &unused, &unused, &unused, &pages) == 6) {
        rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + GROWTH;
        setrlimit(RLIMIT_DATA, &(struct rlimit){most, most});
    }
    fclose(file);
}

/* Make one entry of the order: a call, whose nanoseconds are what it gives, or, below 0, a look at a tensor's first
 * byte. */
static bool make_entry(int64_t entry, int64_t *given) {
    if (entry < 0) {
        *given = *(const int8_t *)plan.tensors[-entry - 1].data;
        return true;
    }
    const Call *call = &plan.calls[entry];
    Any result = {0};
    int64_t began = now_ns();
    int status = call->kernel(NULL, call->arguments, call->count, &result);
    *given = now_ns() - began;
    return status == 0;
}

static void run_order(Board *board) {
    int64_t ends = now_ns() + board->limit_ns;
    board->how = ALL_RAN;
    for (int64_t index = 0; index < board->count && now_ns() < ends; index++) {
        if (!make_entry(board->entries[index], &board->entries[session.most + index])) {
            board->how = RAISED;
            return;
        }
        board->done = index + 1;
    }
}

static void serve(int asked, int answers) {
    char word = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    make_plan();
    confine();
    do {
        if (write(answers, &word, 1) != 1) _exit(1);
        if (read(asked, &word, 1) != 1) _exit(0);
        run_order(session.board);
    } while (true);
}

static void end_child(void) {
    if (session.child > 0) {
        kill(session.child, SIGKILL);
        waitpid(session.child, NULL, 0);
        close(session.ask);
        close(session.answer);
        munmap(session.board, session.bytes);
    }
    session.child = 0;
}

/* Wait for the child until it has answered, has ended, or no entry has ended for so long. */
static int wait_for_child(int64_t entry_ms) {
    int64_t seen = -1, ends = 0;
    for (;;) {
        char word;
        struct pollfd answer = {session.answer, POLLIN, 0};
        if (poll(&answer, 1, LOOK_MS) > 0) return read(session.answer, &word, 1) == 1 ? session.board->how : ENDED;
        int64_t done = session.board->done, now = now_ns();
        if (done != seen) ends = now + entry_ms * 1000000;
        if (done == seen && now > ends) return CAME_NOT_BACK;
        seen = done;
    }
}

static int give(Any *result, int64_t number) {
    *result = (Any){.type = IS_NUMBER, .number = number};
    return 0;
}

/* (most) -> 0 once a child has made what `plan` describes, for orders of so many entries; or how it failed. */
int __tvm_ffi_fusion_open(void *self, const Any *arguments, int32_t count, Any *result) {
    int asked[2], answers[2];
    end_child();
    session.most = arguments[0].number;
    session.bytes = sizeof(Board) + 2 * (size_t)session.most * sizeof(int64_t);
    session.board = mmap(NULL, session.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (session.board == MAP_FAILED || pipe2(asked, O_CLOEXEC) || pipe2(answers, O_CLOEXEC)) return give(result, ENDED);
    session.child = fork();
    if (session.child == 0) {
        close(asked[1]);
        close(answers[0]);
        serve(asked[0], answers[1]);
    }
    close(asked[0]);
    close(answers[1]);
    session.ask = asked[1];
    session.answer = answers[0];
    int how = session.child > 0 ? wait_for_child(SETUP_MS) : ENDED;
    if (how != ALL_RAN) end_child();
    return give(result, how);
}

/* (entry_ms, total_ms) -> how << 32 | how many entries of `order` were made, whose results are in `times`. None may take
 * longer than the first, and none begins after the second. Unless all is well the child is gone. */
int __tvm_ffi_fusion_run(void *self, const Any *arguments, int32_t count, Any *result) {
    size_t size = 0;
    int64_t *order = session.child > 0 ? (int64_t *)read_all("order", &size) : NULL;
    if (!order || size / sizeof *order > (size_t)session.most) {
        free(order);
        return give(result, (int64_t)ENDED << 32);
    }
    Board *board = session.board;
    board->done = 0;
    board->count = (int64_t)(size / sizeof *order);
    board->limit_ns = arguments[1].number * 1000000;
    memcpy(board->entries, order, size);
    free(order);
    int64_t how = write(session.ask, "", 1) == 1 ? wait_for_child(arguments[0].number) : ENDED, done = board->done;
    if (!write_all("times", board->entries + session.most, (size_t)done * sizeof(int64_t))) how = ENDED;
    if (how != ALL_RAN) end_child();
    return give(result, how << 32 | done);
}

/* () -> whether the file whose path is in `path` could be copied to `text`. */
int __tvm_ffi_fusion_copy(void *self, const Any *arguments, int32_t count, Any *result) {
    size_t size = 0;
    char *path = read_all("path", NULL), *data = path ? read_all(path, &size) : NULL;
    bool copied = write_all("text", data ? data : "", data ? size : 0) && data;
    free(path);
    free(data);
    return give(result, copied);
}

/* () -> 0; ends the child. */
int __tvm_ffi_fusion_close(void *self, const Any *arguments, int32_t count, Any *result) {
    end_child();
    return give(result, 0);
}
