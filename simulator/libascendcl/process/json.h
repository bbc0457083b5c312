/* Reading JSON: whether a text is valid, and where the value of a key begins. */
#ifndef ACLSIM_JSON_H
#define ACLSIM_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the text is one JSON value, followed only by blanks. */
bool json_valid(const char *text);
/* Returns the depth of nested objects or of nested arrays, whichever is larger. The text need not be valid
 * JSON. */
int json_depth(const char *text);
/* Returns the value of an object's key in valid JSON. NULL: there is no such key, or `object` is not an object.
 */
const char *json_member(const char *object, const char *key);
bool json_is_object(const char *value);
/* Copies a string without resolving escapes. False: the value is not a string, or it is too long for `text`. */
bool json_string(const char *value, char *text, size_t size);
/* Returns the value as a number. The value must be a whole number, plain or in a string, that is not negative
 * and has no leading zeros. -1: any other value. */
long json_whole(const char *value);

#endif
