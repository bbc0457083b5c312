/* Reading JSON: whether a text is valid, and where in it the value of a key begins. */
#ifndef ACLSIM_JSON_H
#define ACLSIM_JSON_H

#include <stdbool.h>
#include <stddef.h>

/* One value and nothing but blanks behind it. */
bool json_valid(const char *text);
/* How deep objects and arrays are nested, whichever is more; counted before anybody knows whether it is JSON.
 */
int json_depth(const char *text);
/* In valid JSON: the value of an object's key; NULL when there is none, or no object. */
const char *json_member(const char *object, const char *key);
bool json_is_object(const char *value);
/* The text of a string without escapes; false when it is none, or longer than fits. */
bool json_string(const char *value, char *text, size_t size);
/* A whole number that is not negative and has no leading zeros, plain or as a string; -1: it is none. */
long json_whole(const char *value);

#endif
