/* What the generated calls draw their arguments from, and where they leave what they got. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One function of the ABI, called with arguments that are drawn from the input. */
typedef struct {
    const char *name;
    void (*call)(void);
} fuzz_call_t;

/* A function that ends handles of a kind. */
typedef struct {
    int kind;
    void (*end)(void *handle);
} fuzz_end_t;

/* calls.c, which table.py makes */
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
/* Ends every handle that a call has left, and forgets them. */
void fuzz_end_handles(void);

uint8_t draw_byte(void);
uint64_t draw_number(void);
int32_t draw_timeout(void);
/* Of an array that lies in scratch. */
uint64_t draw_length(void);
/* Memory of any kind, live or freed, or what is no memory of the runtime. */
void *draw_memory(void);
void *draw_handle(int kind);
/* 512 bytes with something in them. */
void *draw_scratch(void);
char *draw_text(void);
/* NULL, or a function that does nothing and answers 0. */
void *draw_function(void);
void draw_bytes(void *to, size_t size);
/* Where a call leaves a handle of that kind, which is kept if the call succeeds. */
void *draw_out(int kind);
void fuzz_keep(int kind, const void *handle);
/* The call has answered. */
void fuzz_done(long rc);

#endif
