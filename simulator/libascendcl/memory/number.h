/* Reads and writes numbers in device memory, in the data types of ACL. */
#ifndef ACLSIM_NUMBER_H
#define ACLSIM_NUMBER_H

#include "sim.h"

typedef enum {
    NUMBER_NONE,
    NUMBER_SIGNED,
    NUMBER_UNSIGNED,
    NUMBER_FLOAT,
    NUMBER_HALF,
    NUMBER_BFLOAT
} number_kind_t;

typedef struct {
    number_kind_t kind;
    uint32_t bytes;
} number_type_t;

/* Returns the type of an integer of 8 to 64 bits, or of a floating-point number that C or a few shifts can
 * convert. For every other type, returns NONE. */
number_type_t number_type(aclDataType type);
bool number_is_real(number_type_t type);

double number_read_real(number_type_t type, const void *from);
void number_write_real(number_type_t type, void *to, double value);
/* Reads an integer. Signed integers are sign-extended. */
uint64_t number_read_integer(number_type_t type, const void *from);
void number_write_integer(number_type_t type, void *to, uint64_t value);

#endif
