/* How generated calls draw their arguments, and where they store the results. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One function of the ABI, called with arguments drawn from the input. */
typedef struct {
    const char *name;
    void (*call)(void);
} fuzz_call_t;

/* A function that ends handles of one kind. */
typedef struct {
    int kind;
    void (*end)(void *handle);
} fuzz_end_t;

/* Defined in calls.c, which table.py generates. */
extern const fuzz_call_t fuzz_calls[];
extern const size_t fuzz_call_count;
extern const fuzz_end_t fuzz_ends[];
extern const size_t fuzz_end_count;
extern const size_t fuzz_kind_count;
int fuzz_kind_of(const char *name);

enum { FUZZ_MEMORY, FUZZ_KINDS_MOST = 96, FUZZ_SCRATCH_BYTES = 512 };

void fuzz_input(const uint8_t *data, size_t size);
size_t fuzz_input_left(void);
bool fuzz_scratch_make(void);
/* Ends every handle that a call has returned, and empties the pools. */
void fuzz_end_handles(void);

uint8_t draw_byte(void);
uint64_t draw_number(void);
int32_t draw_timeout(void);
/* Draws the length of an array in scratch memory. */
uint64_t draw_length(void);
/* Draws the address of memory of any kind, live or freed, or an address that the runtime did not allocate. */
void *draw_memory(void);
void *draw_handle(int kind);
/* Returns 512 bytes of scratch memory, filled from the input. */
void *draw_scratch(void);
char *draw_text(void);
/* Draws NULL, or a function that does nothing and returns 0. */
void *draw_function(void);
void draw_bytes(void *to, size_t size);
/* Returns the address where a call stores a handle of the kind `kind`. If the call succeeds, the handle is
 * added to its pool. */
void *draw_out(int kind);
void fuzz_keep(int kind, const void *handle);
/* Called after each call has returned, with its result. */
void fuzz_done(long rc);

#endif
