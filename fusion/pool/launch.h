/* The worker pool: what compiled kernels call, and what Python sets. */
#ifndef FUSION_POOL_LAUNCH_H
#define FUSION_POOL_LAUNCH_H

#include <stdint.h>

/* TVM's TVMParallelGroupEnv and FTVMParallelLambda. No kernel of ours waits at a barrier, which sync_handle is for. */
typedef struct {
    void *sync_handle;
    int32_t num_task;
} Environment;
typedef int (*Task)(int task, Environment *environment, void *closure);

/* How an error leaves the thread that it was raised in and is raised in another, which holds it too then, so that the
 * first hold is to be given up; tvm_ffi's functions. */
typedef void (*MoveError)(void **error);
typedef void (*RaiseError)(void *error);
typedef int (*ReleaseError)(void *error);

/* Call task(0 .. tasks - 1), in this thread and in workers, and return when all are done: 0, or -1 if one failed, whose
 * error is then raised in this thread. 0 tasks are as many as pool_use() has set. As TVMBackendParallelLaunch. */
int pool_launch(Task task, void *closure, int tasks);

/* Set how many tasks the launches of this thread have that leave it open; at least 1. */
void pool_use(int threads);

/* Set what passes errors on. */
void pool_pass_errors(MoveError move, RaiseError raise, ReleaseError release);

/* Return how many workers there are. */
int pool_workers(void);

#endif
