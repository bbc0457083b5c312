/* Reading and writing numbers in device memory. Half floats are rounded to nearest, ties to even. */
#include "number.h"

#include <math.h>
#include <string.h>

number_type_t number_type(aclDataType type) {
    switch ((int)type) {
    case ACL_INT8:
        return (number_type_t){NUMBER_SIGNED, 1};
    case ACL_INT16:
        return (number_type_t){NUMBER_SIGNED, 2};
    case ACL_INT32:
        return (number_type_t){NUMBER_SIGNED, 4};
    case ACL_INT64:
        return (number_type_t){NUMBER_SIGNED, 8};
    case ACL_UINT8:
        return (number_type_t){NUMBER_UNSIGNED, 1};
    case ACL_UINT16:
        return (number_type_t){NUMBER_UNSIGNED, 2};
    case ACL_UINT32:
        return (number_type_t){NUMBER_UNSIGNED, 4};
    case ACL_UINT64:
        return (number_type_t){NUMBER_UNSIGNED, 8};
    case ACL_FLOAT:
        return (number_type_t){NUMBER_FLOAT, 4};
    case ACL_DOUBLE:
        return (number_type_t){NUMBER_FLOAT, 8};
    case ACL_FLOAT16:
        return (number_type_t){NUMBER_HALF, 2};
    case ACL_BF16:
        return (number_type_t){NUMBER_BFLOAT, 2};
    default:
        return (number_type_t){NUMBER_NONE, 0};
    }
}

bool number_is_real(number_type_t type) {
    return type.kind == NUMBER_FLOAT || type.kind == NUMBER_HALF || type.kind == NUMBER_BFLOAT;
}

static double half_value(uint16_t bits) {
    int exponent = bits >> 10 & 31;
    double fraction = bits & 1023;
    double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) {
        value = (bits & 1023) != 0 ? (double)NAN : (double)INFINITY;
    }
    return (bits >> 15) != 0 ? -value : value;
}

/* The distance between two neighbouring half floats of this size is 2 to the power of (exponent - 10). */
static uint16_t half_bits(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value);
    int exponent = 0;
    if (isnan(value)) {
        return 0x7E00;
    }
    if (size == 0) {
        return sign;
    }
    if (size >= 65520) { /* half way between the largest half float and the number that would follow it */
        return sign | 0x7C00;
    }
    frexp(size, &exponent);
    exponent = exponent - 1 < -14 ? -14 : exponent - 1;
    uint32_t steps = (uint32_t)nearbyint(ldexp(size, 10 - exponent));
    /* If rounding carries out of `steps`, the sum increases the exponent by one, which is correct. */
    uint32_t bits = ((uint32_t)(exponent + 14) << 10) + steps;
    return (uint16_t)(sign | bits);
}

static double bfloat_value(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value = 0;
    memcpy(&value, &wide, sizeof value);
    return (double)value;
}

static uint16_t bfloat_bits(double value) {
    float narrow = (float)value;
    uint32_t bits = 0;
    memcpy(&bits, &narrow, sizeof bits);
    if (isnan(narrow)) {
        return 0x7FC0;
    }
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

double number_read_real(number_type_t type, const void *from) {
    float narrow = 0;
    double wide = 0;
    uint16_t bits = 0;
    if (type.kind == NUMBER_FLOAT && type.bytes == 8) {
        memcpy(&wide, from, sizeof wide);
        return wide;
    }
    if (type.kind == NUMBER_FLOAT) {
        memcpy(&narrow, from, sizeof narrow);
        return (double)narrow;
    }
    memcpy(&bits, from, sizeof bits);
    return type.kind == NUMBER_HALF ? half_value(bits) : bfloat_value(bits);
}

void number_write_real(number_type_t type, void *to, double value) {
    float narrow = (float)value;
    uint16_t bits = type.kind == NUMBER_HALF ? half_bits(value) : bfloat_bits(value);
    if (type.kind != NUMBER_FLOAT) {
        memcpy(to, &bits, sizeof bits);
    } else if (type.bytes == 8) {
        memcpy(to, &value, sizeof value);
    } else {
        memcpy(to, &narrow, sizeof narrow);
    }
}

uint64_t number_read_integer(number_type_t type, const void *from) {
    uint64_t value = 0;
    memcpy(&value, from, type.bytes); /* the lowest byte is first on every host that ACL supports */
    uint32_t unused = 64 - type.bytes * 8;
    return type.kind == NUMBER_SIGNED ? (uint64_t)((int64_t)(value << unused) >> unused) : value;
}

void number_write_integer(number_type_t type, void *to, uint64_t value) {
    memcpy(to, &value, type.bytes);
}
