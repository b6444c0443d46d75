/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Members of satlab's messages, which are JSON without blanks on one line (docs/virtual-interface.md).
 */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *field(const char *line, const char *name) {
  char key[64];
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *found = strstr(line, key);
  return found == NULL ? NULL : found + strlen(key);
}

static uint64_t number_of(const char *line, const char *name) {
  const char *found = field(line, name);
  return found == NULL ? 0 : strtoull(found, NULL, 10);
}

static char *text_of(const char *line, const char *name) {
  const char *found = field(line, name);
  if (found == NULL || *found != '"') {
    return NULL;
  }
  char *text = calloc(1, strlen(found) + 1), *end = text;
  if (text == NULL) {
    fputs("no memory\n", stderr);
    exit(1);
  }
  for (found++; *found != '"' && *found != 0; found++) {
    if (*found == '\\') {
      found++;
      *end++ = *found == 'n' ? '\n' : *found == 'r' ? '\r' : *found;
    } else {
      *end++ = *found;
    }
  }
  return text;
}

static bool is_text(const char *line, const char *name, const char *expected) {
  char *text = text_of(line, name);
  bool is_it = text != NULL && strcmp(text, expected) == 0;
  free(text);
  return is_it;
}

#endif
