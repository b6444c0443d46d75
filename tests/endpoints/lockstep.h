/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What adapters in C share: satlab's messages (docs/virtual-interface.md), which are JSON without blanks on one line,
 * seeded random bytes, and the loop. The adapter defines the functions that are declared here.
 */
#ifndef LOCKSTEP_H
#define LOCKSTEP_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERFACE "satlab/virtual-interface/1"
#define PERIOD 251
#define PART 65536
#define WINDOW 64000000 /* flow control: more than 250 Mbit/s times 650 ms */
#define IDLE_MS 600000
#define ZERO_NS 1000000000 /* satlab's zero: stacks take time 0 as "never" */
#define MOST_DATAGRAMS 1000
#define MOST_BYTES 2048

struct report {
  bool connected, requested, early_data, sends, slow_start;
  uint64_t received, window, in_flight, lost, pacing_bps; /* bytes, packets; pacing_bps 0: none */
  const char *supply;
  double rtt_ms;
  char sha256[65], error[160];
};

static struct {
  bool is_client, is_upload, early_data;
  uint64_t bytes;
  char server_name[128];
  char *certificate, *key;
} setup;

static uint64_t now_ns, random_state;
static bool has_begun; /* the adapter sets it with a connection; a server's begins with its first packet */
static uint8_t block[PERIOD + PART]; /* the payload from any offset modulo PERIOD on */
static uint8_t datagrams[MOST_DATAGRAMS][MOST_BYTES];
static size_t lengths[MOST_DATAGRAMS], waiting;

/* --- the adapter's ------------------------------------------------------------------------------------------------ */

static const char *stack_name(void);
static void set_up_stack(void);
static void start_client(void);
static void receive(uint8_t *data, size_t length, uint8_t ecn);
static void work(void); /* timers, and packets to `datagrams` */
static uint64_t timer_ns(void); /* UINT64_MAX: none */
static void state_of(struct report *); /* of the last connection */

/* --- for the adapter ---------------------------------------------------------------------------------------------- */

static void fail(const char *why) {
  fprintf(stderr, "%s\n", why);
  exit(1);
}

static void draw(void *to, size_t length) { /* splitmix64 */
  for (size_t at = 0; at < length; at++) {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    ((uint8_t *)to)[at] = (uint8_t)(z ^ (z >> 31));
  }
}

/* --- members of messages ------------------------------------------------------------------------------------------ */

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
    fail("no memory");
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

/* --- the loop ----------------------------------------------------------------------------------------------------- */

static void write_report(FILE *out, const struct report *it) {
  static const char *words[] = {"false", "true"};
  fprintf(
    out, ",\"report\":{\"connected\":%s,\"requested\":%s,\"early_data\":%s,\"received_bytes\":%" PRIu64,
    words[it->connected], words[it->requested], words[it->early_data], it->received
  );
  if (it->sha256[0] != 0) {
    fprintf(out, ",\"sha256\":\"%s\"", it->sha256);
  }
  if (it->error[0] != 0) {
    fprintf(out, ",\"error\":\"%s\"", it->error);
  }
  if (it->sends) {
    fprintf(
      out,
      ",\"sender\":{\"cwnd_bytes\":%" PRIu64 ",\"in_flight_bytes\":%" PRIu64
      ",\"slow_start\":%s,\"supply\":\"%s\",\"rtt_ms\":%.6f,\"lost_packets\":%" PRIu64,
      it->window, it->in_flight, words[it->slow_start], it->supply, it->rtt_ms, it->lost
    );
    if (it->pacing_bps > 0) {
      fprintf(out, ",\"pacing_bps\":%" PRIu64, it->pacing_bps);
    }
    fputs("}", out);
  }
  fputs("}", out);
}

static void answer(FILE *out) {
  uint64_t due = timer_ns();
  if (due == UINT64_MAX) {
    fputs("{\"timer_ns\":null", out);
  } else {
    fprintf(out, "{\"timer_ns\":%" PRIu64, due > ZERO_NS ? due - ZERO_NS : 0);
  }
  if (has_begun) {
    struct report report = {0};
    state_of(&report);
    write_report(out, &report);
  }
  fputs(",\"datagrams\":[", out);
  for (size_t at = 0; at < waiting; at++) {
    fprintf(out, "%s{\"bytes\":%zu}", at == 0 ? "" : ",", lengths[at]);
  }
  fputs("]}\n", out);
  for (size_t at = 0; at < waiting; at++) {
    fwrite(datagrams[at], 1, lengths[at], out);
  }
  waiting = 0;
  fflush(out);
}

static void step(const char *line, FILE *in) {
  now_ns = number_of(line, "now_ns") + ZERO_NS;
  const char *starts = field(line, "start");
  if (starts != NULL && strncmp(starts, "true", 4) == 0) {
    has_begun = false;
    if (setup.is_client) {
      start_client();
    }
  }
  for (const char *at = strstr(line, "{\"bytes\":"); at != NULL; at = strstr(at + 1, "{\"bytes\":")) {
    static uint8_t data[65536];
    size_t length = number_of(at, "bytes");
    if (length > sizeof data || fread(data, 1, length, in) != length) {
      fail("a datagram is missing");
    }
    receive(data, length, (uint8_t)number_of(at, "ecn"));
  }
  work();
}

static void set_up(const char *line) {
  setup.is_client = is_text(line, "role", "client");
  setup.is_upload = is_text(line, "direction", "upload");
  setup.bytes = number_of(line, "bytes");
  random_state = 2 * number_of(line, "seed") + (setup.is_client ? 1 : 0);
  const char *early = field(line, "early_data");
  setup.early_data = early != NULL && strncmp(early, "true", 4) == 0;
  setup.certificate = text_of(line, "certificate");
  setup.key = text_of(line, "key");
  char *name = text_of(line, "server_name");
  if (setup.certificate == NULL || name == NULL) {
    fail("the set-up has no certificate or name");
  }
  snprintf(setup.server_name, sizeof setup.server_name, "%s", name);
  free(name);
  for (size_t at = 0; at < sizeof block; at++) {
    block[at] = (uint8_t)(at % PERIOD);
  }
}

int main(void) {
  FILE *in = fdopen(dup(0), "r"), *out = fdopen(dup(0), "w");
  if (in == NULL || out == NULL) {
    fail("file descriptor 0 is not open");
  }
  char *line = NULL;
  size_t room = 0;
  if (getline(&line, &room, in) <= 0) {
    return 0;
  }
  set_up(line);
  set_up_stack();
  fprintf(out, "{\"interface\":\"" INTERFACE "\",\"name\":\"%s\"}\n", stack_name());
  fflush(out);
  while (getline(&line, &room, in) > 0) {
    step(line, in);
    answer(out);
  }
  return 0;
}

#endif
