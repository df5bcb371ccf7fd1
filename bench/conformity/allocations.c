/* Counts the bytes that a process holds in large blocks: preloaded, before the C library's own.

   Every thread's calls come here, those of gloo's, too. Blocks are counted at the size that the
   allocator gives them, from LEAST bytes: tensors of a step that weigh anything, hardly an object
   of Python. Needs glibc, whose allocator has a second name for each function. */

#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>

#define LEAST 4096

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static atomic_long held, most;

long held_bytes(void) { return atomic_load(&held); }
long most_bytes(void) { return atomic_load(&most); }
void forget_most(void) { atomic_store(&most, atomic_load(&held)); }

static void count(long size)
{
    long now = atomic_fetch_add(&held, size) + size;
    long known = atomic_load(&most);
    while (now > known && !atomic_compare_exchange_weak(&most, &known, now)) {
    }
}

static size_t counted(void *block)
{
    size_t size = block ? malloc_usable_size(block) : 0;
    return size < LEAST ? 0 : size;
}

static void *taken(void *block)
{
    size_t size = counted(block);
    if (size)
        count((long)size);
    return block;
}

void *malloc(size_t size) { return taken(__libc_malloc(size)); }
void *calloc(size_t number, size_t size) { return taken(__libc_calloc(number, size)); }
void *memalign(size_t alignment, size_t size) { return taken(__libc_memalign(alignment, size)); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size)
{
    void *made;
    if (alignment % sizeof(void *) || alignment & (alignment - 1) || !alignment)
        return EINVAL;
    made = memalign(alignment, size);
    if (!made)
        return ENOMEM;
    *block = made;
    return 0;
}

void *realloc(void *block, size_t size)
{
    size_t before = counted(block);
    void *made = __libc_realloc(block, size);
    if (made || !size)
        count(-(long)before);
    return taken(made);
}

void free(void *block)
{
    size_t size = counted(block);
    if (size)
        count(-(long)size);
    __libc_free(block);
}
