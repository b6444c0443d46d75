/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * picoquic in lock-step with satlab's virtual time (docs/virtual-interface.md): client or server, by the set-up. Build:
 * ./satlab --install picoquic. Variables: CONGESTION_CONTROL (picoquic's names; default bbr, as in its own program) and
 * RECEIVE_WINDOW (flow control, bytes).
 *
 * OpenSSL draws its keys from the system. They change no length, and so no time: repeated samples are the same.
 */
#include <arpa/inet.h>
#include <openssl/evp.h>
#include <picoquic.h>
#include <picoquic_internal.h>
#include <picotls.h>
#include <tls_api.h>

#include "../lockstep.h"

#define ALPN "hq-interop"
#define PACKET 1280 /* bytes: a full one */

struct connection {
  picoquic_cnx_t *quic; /* NULL: it is closed */
  bool is_fin_sent, is_line_read;
  char head[64]; /* request of a client */
  size_t head_bytes, head_sent;
  uint64_t sent;
  EVP_MD_CTX *hash;
  struct report report;
};

static picoquic_quic_t *context;
static uint64_t now_us;
static struct connection *last;
static struct sockaddr_in local_address, peer_address;

/* --- the application ---------------------------------------------------------------------------------------------- */

static int on_event(picoquic_cnx_t *, uint64_t, uint8_t *, size_t, picoquic_call_back_event_t, void *, void *);

static struct connection *begin(picoquic_cnx_t *of) {
  struct connection *it = calloc(1, sizeof *it);
  if (it == NULL || (it->hash = EVP_MD_CTX_new()) == NULL || EVP_DigestInit(it->hash, EVP_sha256()) != 1) {
    fail("no memory");
  }
  it->quic = of;
  it->report.sends = setup.is_client == setup.is_upload;
  it->report.requested = setup.is_client && it->report.sends;
  picoquic_set_callback(of, on_event, it);
  last = it;
  has_begun = true;
  return it;
}

static void finish(struct connection *it) {
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  EVP_DigestFinal(it->hash, digest, &length);
  for (size_t at = 0; at < length; at++) {
    snprintf(it->report.sha256 + 2 * at, 3, "%02x", digest[at]);
  }
}

/* Take what has arrived on the stream. */
static int take(struct connection *it, const uint8_t *data, size_t length, bool is_end) {
  if (!setup.is_client && !it->is_line_read && length > 0) {
    const uint8_t *line_end = memchr(data, '\n', length);
    it->is_line_read = line_end != NULL;
    it->report.requested = it->report.requested || it->is_line_read;
    size_t line = line_end == NULL ? length : (size_t)(line_end - data) + 1;
    data += line;
    length -= line;
    if (it->report.requested && it->report.sends) {
      return picoquic_mark_active_stream(it->quic, 0, 1, it);
    }
  }
  if (!it->report.sends) {
    EVP_DigestUpdate(it->hash, data, length);
    it->report.received += length;
    if (is_end) {
      finish(it);
    }
  }
  if (is_end && setup.is_client) {
    return picoquic_close(it->quic, 0);
  }
  return is_end && !it->report.sends ? picoquic_add_to_stream(it->quic, 0, NULL, 0, 1) : 0;
}

/* Give at most `room` bytes of the stream: the request's rest, or payload. */
static int supply(struct connection *it, void *to, size_t room) {
  bool is_head = it->head_sent < it->head_bytes;
  uint64_t left = is_head ? it->head_bytes - it->head_sent : setup.bytes - it->sent;
  size_t length = left < room ? (size_t)left : room;
  length = length < PART ? length : PART;
  bool is_end = length == left && (!is_head || !it->report.sends);
  uint8_t *place = picoquic_provide_stream_data_buffer(to, length, is_end, !is_end);
  if (place == NULL) {
    return -1;
  }
  memcpy(place, is_head ? (uint8_t *)it->head + it->head_sent : block + it->sent % PERIOD, length);
  it->head_sent += is_head ? length : 0;
  it->sent += is_head ? 0 : length;
  it->is_fin_sent = is_end;
  return 0;
}

static void note_end(struct connection *it) {
  struct report *to = &it->report;
  if (to->sha256[0] == 0 && !(to->sends && it->is_fin_sent) && to->error[0] == 0) {
    snprintf(
      to->error, sizeof to->error, "closed with error 0x%" PRIx64 ", the peer's 0x%" PRIx64,
      picoquic_get_local_error(it->quic), picoquic_get_remote_error(it->quic)
    );
  }
}

static int on_event(
  picoquic_cnx_t *of, uint64_t stream, uint8_t *data, size_t length, picoquic_call_back_event_t event, void *user,
  void *stream_user
) {
  struct connection *it = user == NULL ? begin(of) : user;
  (void)stream_user;
  switch (event) {
    case picoquic_callback_stream_data:
    case picoquic_callback_stream_fin:
      return stream == 0 ? take(it, data, length, event == picoquic_callback_stream_fin) : 0;
    case picoquic_callback_prepare_to_send:
      return supply(it, data, length);
    case picoquic_callback_stateless_reset:
    case picoquic_callback_application_close:
      note_end(it);
      return 0;
    case picoquic_callback_close: /* the last event: picoquic frees it */
      note_end(it);
      it->quic = NULL;
      return 0;
    default:
      return 0;
  }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static void start_client(void) {
  now_us = now_ns / 1000;
  picoquic_cnx_t *made = picoquic_create_cnx(
    context, picoquic_null_connection_id, picoquic_null_connection_id, (struct sockaddr *)&peer_address, now_us,
    PICOQUIC_V1_VERSION, setup.server_name, ALPN, 1
  );
  if (made == NULL) {
    fail("picoquic_create_cnx");
  }
  struct connection *it = begin(made);
  const char *verb = setup.is_upload ? "PUT" : "GET";
  it->head_bytes = (size_t)snprintf(it->head, sizeof it->head, "%s /%" PRIu64 "\r\n", verb, setup.bytes);
  if (picoquic_start_client_cnx(made) != 0 || picoquic_mark_active_stream(made, 0, 1, it) != 0) {
    fail("picoquic_start_client_cnx");
  }
}

static void receive(uint8_t *data, size_t length, uint8_t ecn) {
  now_us = now_ns / 1000;
  picoquic_cnx_t *of = NULL;
  (void)picoquic_incoming_packet_ex(
    context, data, length, (struct sockaddr *)&peer_address, (struct sockaddr *)&local_address, 0, ecn, &of, now_us
  );
  if (of != NULL && picoquic_get_callback_context(of) == NULL && of->cnx_state < picoquic_state_disconnecting) {
    begin(of);
  }
}

static void work(void) {
  now_us = now_ns / 1000;
  /* A call may only set the next time. */
  for (int calls = 0; calls < 2 * MOST_DATAGRAMS && waiting < MOST_DATAGRAMS; calls++) {
    if (picoquic_get_next_wake_time(context, now_us) > now_us) {
      return;
    }
    struct sockaddr_storage to, from;
    int interface = 0;
    size_t length = 0;
    if (picoquic_prepare_next_packet(
          context, now_us, datagrams[waiting], MOST_BYTES, &length, &to, &from, &interface, NULL, NULL
        ) != 0) {
      fail("picoquic_prepare_next_packet");
    }
    lengths[waiting] = length;
    waiting += length > 0 ? 1 : 0;
  }
}

static uint64_t timer_ns(void) {
  uint64_t due = picoquic_get_next_wake_time(context, now_us);
  return due == UINT64_MAX ? due : due * 1000;
}

static const char *supply_of(const struct connection *it) {
  if (it->is_fin_sent) {
    return "done";
  }
  const picoquic_stream_head_t *stream = picoquic_find_stream(it->quic, 0);
  bool has_credit = stream == NULL || (stream->sent_offset + PACKET <= stream->maxdata_remote &&
                                       it->quic->data_sent + PACKET <= it->quic->maxdata_remote);
  return has_credit ? "slow" : "blocked";
}

static void state_of(struct report *to) {
  if (last->quic != NULL) {
    struct report *it = &last->report;
    picoquic_state_enum state = picoquic_get_cnx_state(last->quic);
    it->connected = it->connected || state == picoquic_state_client_ready_start || state == picoquic_state_ready;
    it->early_data = last->quic->nb_zero_rtt_sent > 0 && last->quic->zero_rtt_data_accepted;
    picoquic_path_quality_t quality;
    picoquic_get_default_path_quality(last->quic, &quality);
    it->window = quality.cwin;
    it->in_flight = quality.bytes_in_transit;
    it->lost = quality.lost;
    it->pacing_bps = 8 * quality.pacing_rate;
    it->rtt_ms = (double)quality.rtt / 1e3;
    it->slow_start = !last->quic->path[0]->is_ssthresh_initialized; /* BBR: it starts up */
    it->supply = supply_of(last);
  }
  *to = last->report;
}

static const char *stack_name(void) { return "picoquic " PICOQUIC_VERSION; }

/* picoquic takes names of files alone. */
static const char *file(const char *name, const char *content) {
  static char paths[2][80];
  char *path = paths[content == setup.key ? 1 : 0];
  snprintf(path, sizeof paths[0], "/tmp/lockstep-%d-%s", (int)getpid(), name);
  FILE *to = content == NULL ? NULL : fopen(path, "wx");
  if (to == NULL || fputs(content, to) < 0 || fclose(to) != 0) {
    fail("the certificate cannot be stored");
  }
  return path;
}

static void set_up_stack(void) {
  local_address = peer_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(4433)};
  local_address.sin_addr.s_addr = htonl(0xc0000201 + (setup.is_client ? 0 : 1)); /* 192.0.2.1, 192.0.2.2 */
  peer_address.sin_addr.s_addr = htonl(0xc0000201 + (setup.is_client ? 1 : 0));
  const char *control = getenv("CONGESTION_CONTROL"), *window = getenv("RECEIVE_WINDOW");
  uint64_t credit = window == NULL ? WINDOW : strtoull(window, NULL, 10);
  uint8_t reset_seed[PICOQUIC_RESET_SECRET_SIZE], ticket_key[32];
  draw(reset_seed, sizeof reset_seed);
  draw(ticket_key, sizeof ticket_key);
  const char *certificate = file("certificate.pem", setup.certificate);
  const char *key = setup.is_client ? NULL : file("key.pem", setup.key);
  now_us = ZERO_NS / 1000;
  context = picoquic_create(
    4, setup.is_client ? NULL : certificate, key, setup.is_client ? certificate : NULL, ALPN, on_event, NULL, NULL,
    NULL, reset_seed, now_us, &now_us, setup.is_client && setup.early_data ? "/tmp/no-tickets-yet" : NULL, ticket_key,
    sizeof ticket_key
  );
  unlink(certificate);
  if (key != NULL) {
    unlink(key);
  }
  picoquic_register_all_congestion_control_algorithms();
  const picoquic_congestion_algorithm_t *chosen = picoquic_get_congestion_algorithm(control == NULL ? "bbr" : control);
  if (context == NULL || chosen == NULL) {
    fail(context == NULL ? "picoquic_create" : "CONGESTION_CONTROL is no algorithm of picoquic");
  }
  picoquic_set_default_congestion_algorithm(context, chosen);
  ((ptls_context_t *)context->tls_master_ctx)->random_bytes = draw;
  uint64_t seed;
  draw(&seed, sizeof seed);
  picoquic_public_random_seed_64(seed, 1);
  picoquic_set_default_tp_value(context, picoquic_tp_initial_max_data, credit);
  picoquic_set_default_tp_value(context, picoquic_tp_initial_max_stream_data_bidi_local, credit);
  picoquic_set_default_tp_value(context, picoquic_tp_initial_max_stream_data_bidi_remote, credit);
  picoquic_set_default_idle_timeout(context, IDLE_MS);
  picoquic_set_client_cert_verification_policy(context, 1);
}
