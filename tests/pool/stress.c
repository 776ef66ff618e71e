/* Many callers launch at once, nested and failing jobs among them; aborts where a task was left out or done twice. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "launch.h"

enum { CALLERS = 8, LAUNCHES = 5000, MOST_TASKS = 9, CPUS = 24 };

typedef struct {
    int64_t done[MOST_TASKS];
    int tasks, failing;
} Job;

static _Thread_local intptr_t raised;
static _Atomic long moved, released;

static void move(void **error) {
    *error = (void *)raised;
    moved++;
    raised = 0;
}

static void raise_again(void *error) { raised = (intptr_t)error; }

static int release(void *error) {
    (void)error;
    released++;
    return 0;
}

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "wrong: %s\n", what);
        abort();
    }
}

/* The pool is compiled to ask this in place of sched_getaffinity: with fewer CPUs than callers these would work alone. */
int many_cpus(pid_t process, size_t size, cpu_set_t *cpus) {
    (void)process;
    CPU_ZERO_S(size, cpus);
    for (size_t index = 0; index < CPUS; index++) CPU_SET_S(index, size, cpus);
    return 0;
}

static int once(int task, Environment *environment, void *closure) {
    Job *job = closure;
    expect(environment->num_task == job->tasks, "the number of tasks");
    job->done[task]++;
    if (task != job->failing) return 0;
    raised = task + 1;
    return -1;
}

static int nested(int task, Environment *environment, void *closure) {
    (void)environment;
    Job inner = {.tasks = 3, .failing = -1};
    expect(pool_launch(once, &inner, 3) == 0, "a job within a job");
    for (int index = 0; index < 3; index++) expect(inner.done[index] == 1, "each task of it is done once");
    ((Job *)closure)->done[task]++;
    return 0;
}

static void *call(void *number) {
    int caller = (int)(intptr_t)number;
    pool_use(2 + caller % 5);
    for (int launch = 0; launch < LAUNCHES; launch++) {
        int open = launch % 3 == 0, tasks = open ? 2 + caller % 5 : 1 + (caller + launch) % MOST_TASKS;
        Job job = {.tasks = tasks, .failing = launch % 7 == 0 ? tasks - 1 : -1};
        Task task = launch % 11 == 0 ? nested : once;
        int fails = task == once && job.failing >= 0;
        raised = 0;
        expect((pool_launch(task, &job, open ? 0 : tasks) != 0) == fails, "whether the job failed");
        expect(raised == (fails ? tasks : 0), "which error was raised");
        for (int index = 0; index < tasks; index++) expect(job.done[index] == 1, "each task is done once");
    }
    return NULL;
}

int main(void) {
    pool_pass_errors(move, raise_again, release);
    for (int round = 0; round < 3; round++) {
        pthread_t callers[CALLERS];
        for (intptr_t index = 0; index < CALLERS; index++) pthread_create(&callers[index], NULL, call, (void *)index);
        for (int index = 0; index < CALLERS; index++) pthread_join(callers[index], NULL);
    }
    expect(pool_workers() >= MOST_TASKS - 1, "there are workers for the job with the most tasks");
    expect(pool_workers() < CPUS, "there are fewer workers than CPUs");
    expect(moved == released && moved > 0, "errors that are passed on are held once");
    puts("right");
}
