/* Checks the text by recursive descent, and builds no tree. Each skip_ function returns the text that follows,
 * or NULL. */
#include "json.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { NESTED_MOST = 64 };

static const char *skip_value(const char *at, int depth);

static const char *skip_blanks(const char *at) {
    return at + strspn(at, " \t\r\n");
}

static const char *skip_escape(const char *at) {
    if (*at != 'u') {
        return *at != '\0' && strchr("\"\\/bfnrt", *at) != NULL ? at + 1 : NULL;
    }
    for (int i = 1; i <= 4; i++) {
        if (isxdigit((unsigned char)at[i]) == 0) {
            return NULL;
        }
    }
    return at + 5;
}

static const char *skip_string(const char *at) {
    if (*at++ != '"') {
        return NULL;
    }
    while (at != NULL && *at != '"') {
        if ((unsigned char)*at < ' ') {
            return NULL;
        }
        at = *at == '\\' ? skip_escape(at + 1) : at + 1;
    }
    return at != NULL ? at + 1 : NULL;
}

static const char *skip_digits(const char *at) {
    size_t count = strspn(at, "0123456789");
    return count > 0 ? at + count : NULL;
}

static const char *skip_number(const char *at) {
    at += *at == '-';
    at = *at == '0' ? at + 1 : skip_digits(at);
    if (at != NULL && *at == '.') {
        at = skip_digits(at + 1);
    }
    if (at != NULL && (*at == 'e' || *at == 'E')) {
        at++;
        at = skip_digits(at + (*at == '+' || *at == '-'));
    }
    return at;
}

static const char *skip_member(const char *at, int depth) {
    at = skip_string(skip_blanks(at));
    at = at != NULL ? skip_blanks(at) : NULL;
    return at != NULL && *at == ':' ? skip_value(at + 1, depth) : NULL;
}

/* Skips the members or elements up to the closing bracket. */
static const char *skip_list(const char *at, char close, int depth) {
    const char *next = skip_blanks(at + 1);
    if (*next == close) {
        return next + 1;
    }
    do {
        at = close == '}' ? skip_member(at + 1, depth) : skip_value(at + 1, depth);
        at = at != NULL ? skip_blanks(at) : NULL;
    } while (at != NULL && *at == ',');
    return at != NULL && *at == close ? at + 1 : NULL;
}

static const char *skip_word(const char *at) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    return NULL;
}

static const char *skip_value(const char *at, int depth) {
    at = skip_blanks(at);
    if (depth == 0) {
        return NULL;
    }
    switch (*at) {
    case '{':
        return skip_list(at, '}', depth - 1);
    case '[':
        return skip_list(at, ']', depth - 1);
    case '"':
        return skip_string(at);
    default:
        return *at == '-' || isdigit((unsigned char)*at) != 0 ? skip_number(at) : skip_word(at);
    }
}

bool json_valid(const char *text) {
    const char *end = skip_value(text, NESTED_MOST);
    return end != NULL && *skip_blanks(end) == '\0';
}

static int depth_of(const char *text, char open, char close) {
    int depth = 0;
    int most = 0;
    for (; *text != '\0'; text++) {
        depth += *text == open;
        depth -= *text == close && depth > 0;
        most = depth > most ? depth : most;
    }
    return most;
}

int json_depth(const char *text) {
    int objects = depth_of(text, '{', '}');
    int arrays = depth_of(text, '[', ']');
    return objects > arrays ? objects : arrays;
}

bool json_is_object(const char *value) {
    return value != NULL && *skip_blanks(value) == '{';
}

const char *json_member(const char *object, const char *key) {
    size_t length = strlen(key);
    if (!json_is_object(object)) {
        return NULL;
    }
    const char *at = skip_blanks(object);
    while (*at != '}' && *skip_blanks(at + 1) == '"') {
        const char *name = skip_blanks(at + 1);
        const char *value = strchr(skip_string(name), ':') + 1;
        bool same = strncmp(name + 1, key, length) == 0 && name[length + 1] == '"';
        if (same) {
            return skip_blanks(value);
        }
        at = skip_blanks(skip_value(value, NESTED_MOST));
    }
    return NULL;
}

bool json_string(const char *value, char *text, size_t size) {
    if (value == NULL || *value != '"') {
        return false;
    }
    size_t length = (size_t)(skip_string(value) - value) - 2;
    if (length >= size) {
        return false;
    }
    memcpy(text, value + 1, length);
    text[length] = '\0';
    return true;
}

long json_whole(const char *value) {
    if (value == NULL) {
        return -1;
    }
    value += *value == '"';
    size_t length = strspn(value, "0123456789");
    bool alone = value[length] == '\0' || strchr("\", \t\r\n}]", value[length]) != NULL;
    if (length == 0 || length > 18 || !alone || (length > 1 && *value == '0')) {
        return -1;
    }
    return strtol(value, NULL, 10);
}
