/* Launches after the worker slept, from one CPU and then from another: it may run anywhere but there, unless somebody has
 * restricted the process to one CPU in between. Prints "right", or what is wrong. */
#define _GNU_SOURCE
#include "launch.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int nothing(int index, Environment *environment, void *closure) {
    (void)index, (void)environment, (void)closure;
    usleep(200);
    return 0;
}

static pid_t find_worker(void) {
    DIR *threads = opendir("/proc/self/task");
    pid_t found = 0;
    for (struct dirent *entry; (entry = readdir(threads)) != NULL;)
        if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid()) found = atoi(entry->d_name);
    closedir(threads);
    return found;
}

static void restrict_to(pid_t thread, int cpu) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(cpu, &cpus);
    sched_setaffinity(thread, sizeof cpus, &cpus);
}

static void *launch(void *cpu) {
    restrict_to(0, *(int *)cpu);
    usleep(100000); /* the worker sleeps after 50 us, on a busy machine when it is its turn */
    pool_launch(nothing, NULL, 2);
    return NULL;
}

/* Launch from a thread on `cpu`; return where the worker may run then. */
static cpu_set_t launch_from(int cpu, pid_t worker) {
    pthread_t caller;
    cpu_set_t there;
    pthread_create(&caller, NULL, launch, &cpu);
    pthread_join(caller, NULL);
    sched_getaffinity(worker, sizeof there, &there);
    return there;
}

int main(void) {
    cpu_set_t all, found;
    int first = -1, second = -1;
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) *(first < 0 ? &first : &second) = cpu;
    pool_launch(nothing, NULL, 2);
    pid_t worker = find_worker();
    for (int turn = 0; turn < 4; turn++) {
        int cpu = turn % 2 ? second : first;
        found = launch_from(cpu, worker);
        if (CPU_ISSET(cpu, &found) || CPU_COUNT(&found) != CPU_COUNT(&all) - 1) return puts("it is where its caller is");
    }
    restrict_to(0, first);
    restrict_to(worker, first);
    found = launch_from(first, worker);
    if (!CPU_ISSET(first, &found) || CPU_COUNT(&found) != 1) return puts("it left the CPU that all were told");
    return puts("right") < 0;
}
