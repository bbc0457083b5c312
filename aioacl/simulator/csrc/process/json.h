/* Reading JSON: whether a text is valid, and where the value of a key begins. */
#ifndef ACLSIM_JSON_H
#define ACLSIM_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* True for one value with only blanks after it. */
bool json_valid(const char *text);
/* The depth of nested objects or of nested arrays, whichever is larger. It is counted before the text is known
 * to be JSON. */
int json_depth(const char *text);
/* In valid JSON: the value of an object's key; NULL if there is no such key, or the value is not an object. */
const char *json_member(const char *object, const char *key);
bool json_is_object(const char *value);
/* Copies a string without escapes. False: it is not one, or it does not fit. */
bool json_string(const char *value, char *text, size_t size);
/* A whole number that is not negative and has no leading zeros, plain or as a string; -1: not such a number. */
long json_whole(const char *value);

#endif
