/* SHA-256, for the private partition of simulated models. */
#ifndef ACLSIM_SHA256_H
#define ACLSIM_SHA256_H

#include <stddef.h>

enum { SHA256_BYTES = 32 };

void sha256(const void *bytes, size_t size, unsigned char digest[SHA256_BYTES]);

#endif
