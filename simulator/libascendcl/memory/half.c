/*
 * Half floats, converted as in the runtime: without infinity and NaN. The bit patterns of infinity and NaN are
 * read as ordinary numbers with exponent 31. A value that would become infinity or NaN becomes the largest
 * finite number.
 */
#include <string.h>

#include "sim.h"

enum { HALF_LARGEST = 0x7bff, HALF_SIGN = 0x8000, FLOAT_BIAS = 127, HALF_BIAS = 15, MANTISSA_SHIFT = 13 };

static float float_of(uint32_t bits) {
    float value = 0;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A subnormal is its mantissa times 2^-24. */
float do_aclFloat16ToFloat(aclFloat16 value) {
    uint32_t sign = (uint32_t)(value & HALF_SIGN) << 16;
    uint32_t exponent = (uint32_t)value >> 10 & 0x1fU;
    uint32_t mantissa = (uint32_t)value & 0x3ffU;
    if (exponent == 0) {
        float magnitude = (float)mantissa * 0x1p-24F;
        return sign != 0 ? -magnitude : magnitude;
    }
    return float_of(sign | (exponent + FLOAT_BIAS - HALF_BIAS) << 23 | mantissa << MANTISSA_SHIFT);
}

/* Drops the low bits and rounds to the nearest, ties to even. */
static uint32_t round_off(uint32_t bits, uint32_t count) {
    uint32_t kept = bits >> count;
    uint32_t rest = bits & ((1U << count) - 1);
    uint32_t half = 1U << (count - 1);
    return kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1U : 0U);
}

static uint32_t magnitude_of(uint32_t exponent, uint32_t mantissa) {
    int shifted = (int)exponent - FLOAT_BIAS + HALF_BIAS;
    if (shifted > 0) {
        return round_off((uint32_t)shifted << 23 | mantissa, MANTISSA_SHIFT);
    }
    return shifted < -MANTISSA_SHIFT + 2
               ? 0
               : round_off(mantissa | 1U << 23, (uint32_t)(MANTISSA_SHIFT + 1 - shifted));
}

aclFloat16 do_aclFloatToFloat16(float value) {
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & HALF_SIGN;
    uint32_t exponent = bits >> 23 & 0xffU;
    uint32_t mantissa = bits & 0x7fffffU;
    bool nan = exponent == 0xff && mantissa != 0;
    uint32_t magnitude = exponent > FLOAT_BIAS + HALF_BIAS ? HALF_LARGEST : magnitude_of(exponent, mantissa);
    magnitude = magnitude > HALF_LARGEST ? HALF_LARGEST : magnitude;
    return (aclFloat16)(nan ? HALF_LARGEST : sign | magnitude);
}
