/* One pool of worker threads for the whole process.
 *
 * A launch puts a job into a slot: a function, its closure and the number of its tasks. The caller and the workers claim
 * tasks one by one; the caller waits only for tasks that somebody has begun, so that a worker which the system does not
 * schedule costs nothing. Workers without work spin for SPIN_NS and then sleep on a futex. Launches at a time get workers
 * of their own as long as there are CPUs for them; where there are as many callers as CPUs, each works alone.
 *
 * The scheduler wakes a thread where its waker runs unless an idle CPU shares a cache with that, and on virtual machines
 * none may: of calls 20 ms apart nine in ten had caller and worker on one CPU, and took 2.1 to 2.5 times as long as on
 * two. So a worker that is to be woken is barred from its caller's CPU before, and one that woke a caller sleeps.
 *
 * A slot's word holds [generation | tasks | next task]. One compare-and-swap claims a task of a job that is open; until
 * every claimed task is finished the slot holds no other job, so that function and closure stay what they are. The
 * generation tells a job from those before it: it comes round after 2^40 launches.
 */
#define _GNU_SOURCE
#include "launch.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FEW_CPUS = 8, NO_CPU = -1 }; /* to bar a worker takes two system calls; with more it was not measured */
enum { SLOTS = 64, MOST_WORKERS = 1023, LINE = 64, FIELD = 12, MOST_TASKS = (1 << FIELD) - 1 };
#define SPIN_NS 50000u
#define STACK_BYTES (1u << 20)

/* What a launch writes lies on two lines: the first is the workers' to read, the second theirs to write. */
typedef struct {
    _Alignas(LINE) _Atomic uint64_t word; /* generation << 24 | tasks << 12 | next task */
    _Atomic(Task) task;
    _Atomic(void *) closure;
    atomic_bool taken;
    _Alignas(LINE) _Atomic uint32_t finished; /* tasks that workers have finished; the caller sleeps on it */
    atomic_bool caller_sleeps;
    atomic_bool failed;
    _Atomic(void *) error; /* of the first task that failed */
} Slot;

typedef struct {
    _Alignas(LINE) _Atomic int state;
    _Atomic pid_t thread; /* its number, once it has begun */
    /* Under `barring`: where it might run before it was barred from a CPU, where it may since and where the first thread
     * of the process might then, and that CPU. */
    cpu_set_t allowed, left, process;
    int barred_from;
} Worker;

enum { LOOKING, BUSY, ASLEEP };

static Slot slots[SLOTS];
static Worker all_workers[MOST_WORKERS];
static _Alignas(LINE) _Atomic int used_slots; /* slots with a higher index never held a job */
static _Atomic uint32_t epoch;                /* changes where workers are to wake, who sleep on it */
static _Atomic int sleeping;
static _Atomic int workers;
static _Atomic int most_workers = MOST_WORKERS; /* fewer once the system has refused one */
static _Atomic(MoveError) move_error;
static _Atomic(RaiseError) raise_error;
static _Atomic(ReleaseError) release_error;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER, barring = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int threads = 1;
static _Alignas(LINE) _Atomic int launches; /* under way */

static uint64_t word_of(uint64_t generation, uint64_t tasks, uint64_t next) {
    return generation << 2 * FIELD | tasks << FIELD | next;
}
static uint64_t generation_of(uint64_t word) { return word >> 2 * FIELD; }
static int tasks_of(uint64_t word) { return (int)(word >> FIELD & MOST_TASKS); }
static int next_of(uint64_t word) { return (int)(word & MOST_TASKS); }

static void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void sleep_on(_Atomic uint32_t *address, uint32_t value) {
    syscall(SYS_futex, address, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *address, int count) {
    syscall(SYS_futex, address, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Take the error that a task has raised in this thread along to the caller, unless another task was first. */
static void note_failure(Slot *slot) {
    MoveError move = atomic_load(&move_error);
    if (!atomic_exchange(&slot->failed, true) && move != NULL) {
        void *error = NULL;
        move(&error);
        atomic_store(&slot->error, error);
    }
}

typedef struct {
    Slot *slot;
    Task task;
    void *closure;
    int index, tasks;
} Claim;

/* Claim the next task of the job in `slot`; false if none is left. */
static bool claim_from(Slot *slot, Claim *claim) {
    uint64_t word = atomic_load(&slot->word);
    while (next_of(word) < tasks_of(word)) {
        if (!atomic_compare_exchange_weak(&slot->word, &word, word + 1)) continue;
        *claim = (Claim){
            slot,
            atomic_load_explicit(&slot->task, memory_order_relaxed),
            atomic_load_explicit(&slot->closure, memory_order_relaxed),
            next_of(word),
            tasks_of(word),
        };
        return true;
    }
    return false;
}

static bool claim_any(Claim *claim) {
    int used = atomic_load(&used_slots);
    for (int index = 0; index < used; index++)
        if (claim_from(&slots[index], claim)) return true;
    return false;
}

static void run(const Claim *claim) {
    Environment environment = {NULL, claim->tasks};
    if (claim->task(claim->index, &environment, claim->closure) != 0) note_failure(claim->slot);
}

/* Claim a task of any job, looking for one for SPIN_NS. */
static bool look_for_work(Claim *claim) {
    uint64_t deadline = now_ns() + SPIN_NS;
    do
        for (int turn = 0; turn < 16; turn++) {
            if (claim_any(claim)) return true;
            pause_cpu();
        }
    while (now_ns() < deadline);
    return false;
}

/* Sleep until a launch wakes this worker, unless there is work: then claim a task of it. A launch opens its job before it
 * asks who sleeps, and a worker says that it sleeps before it looks a last time: one of them sees the other. */
static bool sleep_unless_work(Worker *self, Claim *claim) {
    uint32_t seen = atomic_load(&epoch);
    atomic_store(&self->state, ASLEEP);
    atomic_fetch_add(&sleeping, 1);
    bool found = claim_any(claim);
    if (!found) sleep_on(&epoch, seen);
    atomic_fetch_sub(&sleeping, 1);
    return found;
}

static void *work(void *self) {
    Worker *worker = self;
    bool woke_caller = false;
    atomic_store(&worker->thread, (pid_t)syscall(SYS_gettid));
    for (;;) {
        Claim claim;
        atomic_store_explicit(&worker->state, LOOKING, memory_order_relaxed);
        bool found = !woke_caller && look_for_work(&claim);
        woke_caller = false;
        if (!found && !sleep_unless_work(worker, &claim)) continue;
        atomic_store_explicit(&worker->state, BUSY, memory_order_relaxed);
        Slot *slot = claim.slot;
        do {
            run(&claim);
            atomic_fetch_add(&slot->finished, 1);
            if (atomic_load(&slot->caller_sleeps)) {
                wake(&slot->finished, 1);
                woke_caller = true;
            }
        } while (claim_from(slot, &claim));
    }
    return NULL;
}

/* The workers and the other callers are not in the child. */
static void forget_after_fork(void) {
    memset(slots, 0, sizeof slots);
    atomic_store(&workers, 0);
    atomic_store(&launches, 0);
    atomic_store(&sleeping, 0);
    pthread_mutex_init(&starting, NULL);
    pthread_mutex_init(&barring, NULL);
}

/* Start a worker, which no signal interrupts; false if the system refuses. */
static bool start_worker(Worker *worker) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    atomic_store(&worker->state, LOOKING);
    atomic_store(&worker->thread, 0);
    worker->barred_from = NO_CPU;
    bool started = pthread_create(&thread, &attributes, work, worker) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

/* Start workers until there are `wanted`, or as many as the system allows. */
static void start_workers(int wanted) {
    static bool prepared;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&starting);
    if (!prepared) prepared = pthread_atfork(NULL, NULL, forget_after_fork) == 0;
    while (atomic_load(&workers) < wanted && prepared && start_worker(&all_workers[atomic_load(&workers)]))
        atomic_fetch_add(&workers, 1);
    if (atomic_load(&workers) < wanted) atomic_store(&most_workers, atomic_load(&workers));
    pthread_mutex_unlock(&starting);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Return a slot without a job, the first one if it is free, or NULL. */
static Slot *take_slot(void) {
    for (int index = 0; index < SLOTS; index++) {
        Slot *slot = &slots[index];
        if (atomic_load_explicit(&slot->taken, memory_order_relaxed) || atomic_exchange(&slot->taken, true)) continue;
        for (int used = atomic_load(&used_slots); used <= index;)
            if (atomic_compare_exchange_weak(&used_slots, &used, index + 1)) break;
        return slot;
    }
    return NULL;
}

/* The CPUs that the thread which launches first may run on. */
static int count_cpus(void) {
    static _Atomic int counted;
    int count = atomic_load_explicit(&counted, memory_order_relaxed);
    if (count > 0) return count;
    cpu_set_t cpus;
    count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    atomic_store(&counted, count > 0 ? count : 1);
    return count > 0 ? count : 1;
}

static int min(int a, int b) { return a < b ? a : b; }

static int max(int a, int b) { return a > b ? a : b; }

/* Return how many workers there should be for so many launches at a time, of which one has so many tasks. */
static int workers_for(int callers, int tasks) {
    int shared = min(callers * (tasks - 1), count_cpus() - 1);
    return min(max(shared, tasks - 1), atomic_load_explicit(&most_workers, memory_order_relaxed));
}

static int run_alone(Task task, void *closure, int tasks) {
    Environment environment = {NULL, tasks};
    for (int index = 0; index < tasks; index++)
        if (task(index, &environment, closure) != 0) return -1;
    return 0;
}

/* Let `worker` run anywhere but on `cpu`, if it has another CPU. Where somebody else has said since where it may run, that
 * holds, also where all threads of the process were told just what it was left with. */
static void bar(Worker *worker, int cpu) {
    pid_t thread = atomic_load(&worker->thread);
    cpu_set_t now, process, others;
    if (thread == 0 || worker->barred_from == cpu || sched_getaffinity(thread, sizeof now, &now) != 0) return;
    if (sched_getaffinity(getpid(), sizeof process, &process) != 0) return;
    bool told_all = !CPU_EQUAL(&process, &worker->process) && CPU_EQUAL(&process, &now);
    if (worker->barred_from == NO_CPU || !CPU_EQUAL(&now, &worker->left) || told_all) worker->allowed = now;
    others = worker->allowed;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(thread, sizeof others, &others) != 0) return;
    worker->left = others;
    worker->process = process;
    worker->barred_from = cpu;
}

/* Bar those who sleep from the caller's CPU; another caller at the same time has workers of its own to wake. */
static void bar_sleepers(void) {
    int cpu = sched_getcpu();
    if (cpu < 0 || count_cpus() > FEW_CPUS || pthread_mutex_trylock(&barring) != 0) return;
    for (int index = 0, count = atomic_load(&workers); index < count; index++)
        if (atomic_load(&all_workers[index].state) == ASLEEP) bar(&all_workers[index], cpu);
    pthread_mutex_unlock(&barring);
}

/* Wake as many workers as so many tasks can use beside those that look for work. */
static void wake_workers(int tasks) {
    for (int index = 0, count = atomic_load(&workers); index < count && tasks > 0; index++)
        tasks -= atomic_load(&all_workers[index].state) == LOOKING;
    if (tasks == 0) return;
    bar_sleepers();
    atomic_fetch_add(&epoch, 1);
    wake(&epoch, tasks);
}

/* Let workers see a job whose first task is claimed. */
static void open_job(Slot *slot, Task task, void *closure, int tasks) {
    atomic_store_explicit(&slot->finished, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->failed, false, memory_order_relaxed);
    atomic_store_explicit(&slot->error, NULL, memory_order_relaxed);
    atomic_store_explicit(&slot->task, task, memory_order_relaxed);
    atomic_store_explicit(&slot->closure, closure, memory_order_relaxed);
    uint64_t generation = generation_of(atomic_load_explicit(&slot->word, memory_order_relaxed)) + 1;
    atomic_store(&slot->word, word_of(generation, (uint64_t)tasks, 1));
    if (atomic_load(&sleeping) > 0) wake_workers(tasks - 1);
}

/* Wait until workers have finished so many tasks. */
static void await_workers(Slot *slot, uint32_t tasks) {
    uint64_t deadline = 0;
    for (uint32_t finished; (finished = atomic_load(&slot->finished)) < tasks;) {
        pause_cpu();
        uint64_t now = now_ns();
        if (deadline == 0) deadline = now + SPIN_NS;
        if (now < deadline) continue;
        atomic_store(&slot->caller_sleeps, true);
        if ((finished = atomic_load(&slot->finished)) < tasks) sleep_on(&slot->finished, finished);
        atomic_store(&slot->caller_sleeps, false);
    }
}

static int run_shared(Slot *slot, Task task, void *closure, int tasks) {
    open_job(slot, task, closure, tasks);
    Claim claim = {slot, task, closure, 0, tasks};
    int others = tasks;
    do {
        run(&claim);
        others--;
    } while (claim_from(slot, &claim));
    await_workers(slot, (uint32_t)others);
    bool failed = atomic_load_explicit(&slot->failed, memory_order_relaxed);
    void *error = atomic_load_explicit(&slot->error, memory_order_relaxed);
    atomic_store(&slot->taken, false);
    if (error != NULL) {
        atomic_load(&raise_error)(error);
        atomic_load(&release_error)(error);
    }
    return failed ? -1 : 0;
}

int pool_launch(Task task, void *closure, int tasks) {
    if (tasks <= 0) tasks = threads;
    if (tasks == 1) return run_alone(task, closure, tasks);
    int callers = atomic_fetch_add(&launches, 1) + 1, wanted = workers_for(callers, tasks);
    if (atomic_load_explicit(&workers, memory_order_relaxed) < wanted) start_workers(wanted);
    bool room = callers == 1 || callers < count_cpus();
    Slot *slot = room && tasks <= MOST_TASKS ? take_slot() : NULL;
    int result = slot == NULL ? run_alone(task, closure, tasks) : run_shared(slot, task, closure, tasks);
    atomic_fetch_sub(&launches, 1);
    return result;
}

void pool_use(int count) { threads = count > 1 ? count : 1; }

void pool_pass_errors(MoveError move, RaiseError raise, ReleaseError release) {
    atomic_store(&raise_error, raise);
    atomic_store(&release_error, release);
    atomic_store(&move_error, move); /* the others are there before an error is moved */
}

int pool_workers(void) { return atomic_load(&workers); }
