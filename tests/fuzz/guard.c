/* Puts what posix_memalign returns beside a page that nobody may touch, while guard_side is not 0.
 *
 * Preloaded into a worker; fusion's runtime takes outputs, and what kernels ask for, from posix_memalign. Blocks come from
 * one reserved range, so that free knows them, and are never used again: what reads or writes one after it was freed ends
 * the process too. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define PAGE 4096UL
#define RANGE (16UL << 30)

int guard_side = 0; /* 1: the page lies behind the block; 2: before it */

static char *range = NULL;
static size_t used = 0;
static uint32_t *pages_of = NULL; /* of the block that begins in a page */

static int (*real_memalign)(void **, size_t, size_t) = NULL;
static void (*real_free)(void *) = NULL;

static void find_real(void) {
    real_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

int guard_reserve(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    size_t table = RANGE / PAGE * sizeof(uint32_t);
    pages_of = mmap(NULL, table, PROT_READ | PROT_WRITE, flags, -1, 0);
    char *made = mmap(NULL, RANGE, PROT_NONE, flags, -1, 0);
    if (made == MAP_FAILED || pages_of == MAP_FAILED) return 0;
    range = made;
    return 1;
}

/* Returns `size` bytes that end where an inaccessible page begins, or begin where one ends. */
void *guard_block(size_t size, int side) {
    size_t pages = (size + PAGE - 1) / PAGE + (size == 0);
    size_t first = __atomic_fetch_add(&used, (pages + 1) * PAGE, __ATOMIC_RELAXED);
    if (range == NULL || first + (pages + 2) * PAGE > RANGE) return NULL;
    char *begin = range + first + PAGE; /* the page before is the end of the last block's guard */
    if (mprotect(begin, pages * PAGE, PROT_READ | PROT_WRITE)) return NULL;
    pages_of[(begin - range) / PAGE] = pages;
    return side == 1 ? begin + pages * PAGE - size : begin;
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    if (real_memalign == NULL) find_real();
    if (guard_side == 0) return real_memalign(block, alignment, size);
    *block = guard_block(size, guard_side);
    return *block == NULL ? ENOMEM : 0;
}

void free(void *block) {
    char *place = block;
    if (range == NULL || place < range || place >= range + RANGE) {
        if (real_free == NULL) find_real();
        real_free(block);
        return;
    }
    size_t page = (place - range) / PAGE;
    char *begin = range + page * PAGE;
    madvise(begin, pages_of[page] * PAGE, MADV_DONTNEED);
    mprotect(begin, pages_of[page] * PAGE, PROT_NONE);
}
