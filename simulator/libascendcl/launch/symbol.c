/* Global variables of device code. The simulator has no device code, so no symbol is a variable. */
#include "kernel.h"

static aclError refuse(const void *symbol, const void *other) {
    if (symbol == NULL || other == NULL) {
        return error_quiet(ACL_INVALID_PARAM, symbol == NULL ? "symbol" : "pointer");
    }
    SIM_GUARD();
    const context_t *context = context_need();
    return context == NULL ? RT_CONTEXT_NULL
                           : error_set(RT_SYMBOL_NOT_FOUND, "symbol: there are no variables of device code");
}

aclError do_aclrtGetSymbolAddress(const void *symbol, void **devPtr) {
    return refuse(symbol, devPtr);
}

aclError do_aclrtGetSymbolSize(const void *symbol, size_t *size) {
    return refuse(symbol, size);
}

aclError do_aclrtMemcpyFromSymbol(void *dst, size_t dstMax, const void *symbol, size_t count, size_t offset,
                                  aclrtMemcpyKind kind) {
    (void)dstMax;
    (void)count;
    (void)offset;
    (void)kind;
    return refuse(symbol, dst);
}

aclError do_aclrtMemcpyFromSymbolAsync(void *dst, size_t dstMax, const void *symbol, size_t count,
                                       size_t offset, aclrtMemcpyKind kind, aclrtStream stream) {
    (void)stream;
    return do_aclrtMemcpyFromSymbol(dst, dstMax, symbol, count, offset, kind);
}

aclError do_aclrtMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset,
                                aclrtMemcpyKind kind) {
    (void)count;
    (void)offset;
    (void)kind;
    return refuse(symbol, src);
}

aclError do_aclrtMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count, size_t offset,
                                     aclrtMemcpyKind kind, aclrtStream stream) {
    (void)stream;
    return do_aclrtMemcpyToSymbol(symbol, src, count, offset, kind);
}

aclError do_aclrtBinaryGetGlobal(aclrtBinHandle binHandle, const char *name, void **dptr, size_t *size) {
    binary_t *binary = NULL;
    if (binHandle == NULL || name == NULL || dptr == NULL || size == NULL) {
        return error_quiet(ACL_INVALID_PARAM, binHandle == NULL ? "binHandle" : "name, dptr or size");
    }
    SIM_GUARD();
    aclError rc = binary_find(binHandle, &binary);
    return rc != ACL_SUCCESS ? rc
                             : error_set(RT_SYMBOL_NOT_FOUND, "name: there are no variables of device code");
}
