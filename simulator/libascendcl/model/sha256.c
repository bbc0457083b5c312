/* SHA-256 as FIPS 180-4 defines it. */
#include "sha256.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK_SIZE = 64, ROUNDS = 64, LENGTH_AT = 56 };

static const uint32_t constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t word, int count) {
    return word >> count | word << (32 - count);
}

static uint32_t read_big(const unsigned char *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void write_big(unsigned char *bytes, uint32_t word) {
    for (int i = 0; i < 4; i++) {
        bytes[i] = (unsigned char)(word >> (24 - 8 * i));
    }
}

static void extend(uint32_t *words, const unsigned char *block) {
    for (int i = 0; i < 16; i++) {
        words[i] = read_big(block + i * 4);
    }
    for (int i = 16; i < ROUNDS; i++) {
        uint32_t low = rotate(words[i - 15], 7) ^ rotate(words[i - 15], 18) ^ words[i - 15] >> 3;
        uint32_t high = rotate(words[i - 2], 17) ^ rotate(words[i - 2], 19) ^ words[i - 2] >> 10;
        words[i] = words[i - 16] + low + words[i - 7] + high;
    }
}

static void compress(uint32_t state[8], const unsigned char *block) {
    uint32_t words[ROUNDS];
    uint32_t now[8];
    extend(words, block);
    memcpy(now, state, sizeof now);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t high = rotate(now[4], 6) ^ rotate(now[4], 11) ^ rotate(now[4], 25);
        uint32_t choice = (now[4] & now[5]) ^ (~now[4] & now[6]);
        uint32_t first = now[7] + high + choice + constants[i] + words[i];
        uint32_t low = rotate(now[0], 2) ^ rotate(now[0], 13) ^ rotate(now[0], 22);
        uint32_t majority = (now[0] & now[1]) ^ (now[0] & now[2]) ^ (now[1] & now[2]);
        memmove(now + 1, now, 7 * sizeof *now);
        now[4] += first;
        now[0] = first + low + majority;
    }
    for (int i = 0; i < 8; i++) {
        state[i] += now[i];
    }
}

/* The last bytes, then a one bit, zeros, and the length in bits: one or two blocks. */
static void finish(uint32_t state[8], const unsigned char *rest, size_t left, size_t size) {
    unsigned char tail[2 * BLOCK_SIZE] = {0};
    size_t blocks = left < LENGTH_AT ? 1 : 2;
    uint64_t bits = (uint64_t)size * 8;
    if (left > 0) {
        memcpy(tail, rest, left);
    }
    tail[left] = 0x80;
    write_big(tail + blocks * BLOCK_SIZE - 8, (uint32_t)(bits >> 32));
    write_big(tail + blocks * BLOCK_SIZE - 4, (uint32_t)bits);
    for (size_t i = 0; i < blocks; i++) {
        compress(state, tail + i * BLOCK_SIZE);
    }
}

void sha256(const void *bytes, size_t size, unsigned char digest[SHA256_BYTES]) {
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const unsigned char *at = bytes;
    size_t left = size;
    for (; left >= BLOCK_SIZE; left -= BLOCK_SIZE, at += BLOCK_SIZE) {
        compress(state, at);
    }
    finish(state, at, left, size);
    for (int i = 0; i < 8; i++) {
        write_big(digest + i * 4, state[i]);
    }
}
