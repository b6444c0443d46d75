/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * ngtcp2 0.12 of Debian 12 in lock-step with satlab's virtual time (docs/virtual-interface.md): client or server, by the
 * set-up. Build: make -C tests/endpoints/ngtcp2 (libngtcp2-dev, libngtcp2-crypto-gnutls-dev).
 *
 * GnuTLS draws its keys from the system. They change no length, and so no time: repeated samples are the same. A second
 * connection makes a handshake of its own: sessions are not resumed.
 */
#include <arpa/inet.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>

#include "../lockstep.h"

#define PRIORITY \
  "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:-GROUP-ALL:+GROUP-X25519:%DISABLE_TLS13_COMPAT_MODE"
#define CID_BYTES 8
#define CONNECTIONS 2

struct connection {
  ngtcp2_conn *quic;
  gnutls_session_t tls;
  ngtcp2_crypto_conn_ref reference;
  ngtcp2_cid first_dcid; /* chosen by the client before it knows the server's */
  uint8_t number;
  int64_t stream;
  bool connected, requested, sends, answers, is_fin_sent, is_closed;
  char head[64]; /* request of a client */
  size_t head_bytes, skipped;
  uint64_t head_sent, sent, received;
  gnutls_hash_hd_t hash;
  char sha256[65];
  char error[160];
};

static gnutls_certificate_credentials_t credentials;
static struct connection connections[CONNECTIONS]; /* the last one, and the one before */
static uint8_t count;
static struct sockaddr_in local_address, peer_address;

static void check(int code, const char *what) {
  if (code < 0) {
    fprintf(stderr, "%s: %s\n", what, gnutls_strerror(code));
    exit(1);
  }
}

/* --- callbacks ---------------------------------------------------------------------------------------------------- */

static void on_rand(uint8_t *to, size_t length, const ngtcp2_rand_ctx *context) {
  (void)context;
  draw(to, length);
}

static int on_new_connection_id(ngtcp2_conn *quic, ngtcp2_cid *cid, uint8_t *token, size_t length, void *user) {
  (void)quic;
  draw(cid->data, length);
  cid->datalen = length;
  cid->data[0] = ((struct connection *)user)->number;
  draw(token, NGTCP2_STATELESS_RESET_TOKENLEN);
  return 0;
}

static int on_handshake(ngtcp2_conn *quic, void *user) {
  (void)quic;
  ((struct connection *)user)->connected = true;
  return 0;
}

static int on_open(ngtcp2_conn *quic, int64_t stream, void *user) {
  (void)quic;
  ((struct connection *)user)->stream = stream;
  return 0;
}

static void finish_hash(struct connection *it) {
  uint8_t digest[32];
  gnutls_hash_output(it->hash, digest);
  for (size_t at = 0; at < sizeof digest; at++) {
    snprintf(it->sha256 + 2 * at, 3, "%02x", digest[at]);
  }
}

static int on_data(
  ngtcp2_conn *quic, uint32_t flags, int64_t stream, uint64_t offset, const uint8_t *data, size_t length, void *user,
  void *stream_user
) {
  struct connection *it = user;
  (void)offset;
  (void)stream_user;
  ngtcp2_conn_extend_max_stream_offset(quic, stream, length);
  ngtcp2_conn_extend_max_offset(quic, length);
  bool is_end = (flags & NGTCP2_STREAM_DATA_FLAG_FIN) != 0;
  if (!setup.is_client && it->skipped != SIZE_MAX) { /* the request's line */
    const uint8_t *line_end = memchr(data, '\n', length);
    it->skipped = line_end == NULL ? it->skipped + length : SIZE_MAX;
    size_t line = line_end == NULL ? length : (size_t)(line_end - data) + 1;
    data += line;
    length -= line;
    it->requested = line_end != NULL;
  }
  if (it->sends) {
    return 0;
  }
  gnutls_hash(it->hash, data, length);
  it->received += length;
  if (is_end && it->sha256[0] == 0) {
    finish_hash(it);
    it->answers = !setup.is_client;
  }
  return 0;
}

static ngtcp2_conn *connection_of(ngtcp2_crypto_conn_ref *reference) {
  return ((struct connection *)reference->user_data)->quic;
}

static time_t virtual_time(time_t *to) {
  time_t seconds = 1000000000 + (time_t)(now_ns / 1000000000); /* certificates are valid from 1975 on */
  if (to != NULL) {
    *to = seconds;
  }
  return seconds;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static ngtcp2_callbacks callbacks(void) {
  return (ngtcp2_callbacks){
    .client_initial = ngtcp2_crypto_client_initial_cb,
    .recv_client_initial = ngtcp2_crypto_recv_client_initial_cb,
    .recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb,
    .handshake_completed = on_handshake,
    .encrypt = ngtcp2_crypto_encrypt_cb,
    .decrypt = ngtcp2_crypto_decrypt_cb,
    .hp_mask = ngtcp2_crypto_hp_mask_cb,
    .recv_stream_data = on_data,
    .stream_open = on_open,
    .recv_retry = ngtcp2_crypto_recv_retry_cb,
    .rand = on_rand,
    .get_new_connection_id = on_new_connection_id,
    .update_key = ngtcp2_crypto_update_key_cb,
    .delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb,
    .delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb,
    .get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb,
    .version_negotiation = ngtcp2_crypto_version_negotiation_cb,
  };
}

static ngtcp2_path path(void) {
  return (ngtcp2_path){
    .local = {(struct sockaddr *)&local_address, sizeof local_address},
    .remote = {(struct sockaddr *)&peer_address, sizeof peer_address},
  };
}

static ngtcp2_cid own_cid(uint8_t number) {
  ngtcp2_cid cid = {.datalen = CID_BYTES};
  draw(cid.data, CID_BYTES);
  cid.data[0] = number;
  return cid;
}

static void remove_connection(struct connection *it) {
  if (it->quic != NULL) {
    ngtcp2_conn_del(it->quic);
    gnutls_deinit(it->tls);
    gnutls_hash_deinit(it->hash, NULL);
  }
  memset(it, 0, sizeof *it);
}

static void make_tls(struct connection *it) {
  static const gnutls_datum_t alpn = {(unsigned char *)"hq-interop", 10};
  unsigned int flags = setup.is_client ? GNUTLS_CLIENT : GNUTLS_SERVER | GNUTLS_NO_AUTO_SEND_TICKET;
  check(gnutls_init(&it->tls, flags | GNUTLS_NO_END_OF_EARLY_DATA), "gnutls_init");
  check(gnutls_priority_set_direct(it->tls, PRIORITY, NULL), "priority");
  check(gnutls_credentials_set(it->tls, GNUTLS_CRD_CERTIFICATE, credentials), "credentials");
  check(gnutls_alpn_set_protocols(it->tls, &alpn, 1, GNUTLS_ALPN_MANDATORY), "alpn");
  if (setup.is_client) {
    check(
      gnutls_server_name_set(it->tls, GNUTLS_NAME_DNS, setup.server_name, strlen(setup.server_name)), "server name"
    );
    gnutls_session_set_verify_cert(it->tls, setup.server_name, 0);
    check(ngtcp2_crypto_gnutls_configure_client_session(it->tls), "client session");
  } else {
    check(ngtcp2_crypto_gnutls_configure_server_session(it->tls), "server session");
  }
  it->reference = (ngtcp2_crypto_conn_ref){connection_of, it};
  gnutls_session_set_ptr(it->tls, &it->reference);
}

static struct connection *begin(const ngtcp2_pkt_hd *initial) {
  struct connection *it = &connections[count % CONNECTIONS];
  remove_connection(it);
  it->number = count++;
  has_begun = true;
  it->stream = -1;
  it->sends = setup.is_client == setup.is_upload;
  check(gnutls_hash_init(&it->hash, GNUTLS_DIG_SHA256), "hash");
  make_tls(it);
  ngtcp2_settings settings;
  ngtcp2_settings_default(&settings);
  settings.initial_ts = now_ns;
  ngtcp2_transport_params parameters;
  ngtcp2_transport_params_default(&parameters);
  parameters.initial_max_data = WINDOW;
  parameters.initial_max_stream_data_bidi_local = parameters.initial_max_stream_data_bidi_remote = WINDOW;
  parameters.initial_max_streams_bidi = 4;
  parameters.max_idle_timeout = IDLE_MS * NGTCP2_MILLISECONDS;
  ngtcp2_callbacks called = callbacks();
  ngtcp2_path way = path();
  ngtcp2_cid scid = own_cid(it->number);
  int code;
  if (initial == NULL) {
    ngtcp2_cid dcid = own_cid(it->number);
    dcid.datalen = NGTCP2_MIN_INITIAL_DCIDLEN;
    code = ngtcp2_conn_client_new(
      &it->quic, &dcid, &scid, &way, NGTCP2_PROTO_VER_V1, &called, &settings, &parameters, NULL, it
    );
  } else {
    parameters.original_dcid = it->first_dcid = initial->dcid;
    code = ngtcp2_conn_server_new(
      &it->quic, &initial->scid, &scid, &way, initial->version, &called, &settings, &parameters, NULL, it
    );
  }
  if (code != 0) {
    fail(ngtcp2_strerror(code));
  }
  ngtcp2_conn_set_tls_native_handle(it->quic, it->tls);
  return it;
}

static void start_client(void) {
  struct connection *it = begin(NULL);
  it->requested = it->sends;
  const char *verb = setup.is_upload ? "PUT" : "GET";
  it->head_bytes = (size_t)snprintf(it->head, sizeof it->head, "%s /%" PRIu64 "\r\n", verb, setup.bytes);
}

static struct connection *receiver_of(const uint8_t *data, size_t length) {
  ngtcp2_version_cid header;
  if (ngtcp2_pkt_decode_version_cid(&header, data, length, CID_BYTES) != 0) {
    return NULL;
  }
  for (size_t at = 0; at < CONNECTIONS; at++) {
    struct connection *it = &connections[at];
    if (it->quic == NULL) {
      continue;
    }
    const ngtcp2_cid *first = &it->first_dcid;
    if (first->datalen == header.dcidlen && memcmp(first->data, header.dcid, header.dcidlen) == 0) {
      return it;
    }
    ngtcp2_cid known[16], searched;
    size_t all = ngtcp2_conn_get_num_scid(it->quic);
    if (all <= 16) {
      ngtcp2_conn_get_scid(it->quic, known);
      ngtcp2_cid_init(&searched, header.dcid, header.dcidlen);
      for (size_t one = 0; one < all; one++) {
        if (ngtcp2_cid_eq(&known[one], &searched)) {
          return it;
        }
      }
    }
  }
  ngtcp2_pkt_hd initial;
  if (setup.is_client || ngtcp2_accept(&initial, data, length) != 0) {
    return NULL;
  }
  return begin(&initial);
}

static void note(struct connection *it, int code) {
  it->is_closed = true;
  bool is_over = it->sha256[0] != 0 || (it->sends && it->is_fin_sent);
  if (!is_over && it->error[0] == 0) {
    snprintf(it->error, sizeof it->error, "%s", ngtcp2_strerror(code));
  }
}

static void receive(uint8_t *data, size_t length, uint8_t ecn) {
  (void)ecn;
  struct connection *it = receiver_of(data, length);
  if (it == NULL || it->is_closed) {
    return;
  }
  ngtcp2_path way = path();
  ngtcp2_pkt_info info = {0};
  int code = ngtcp2_conn_read_pkt(it->quic, &way, &info, data, length, now_ns);
  if (code != 0) {
    note(it, code);
  }
}

/* Return what the stream has to send next: its length; `is_end` if nothing follows. */
static size_t supply(const struct connection *it, const uint8_t **from, bool *is_end) {
  if (it->head_sent < it->head_bytes) {
    *from = (const uint8_t *)it->head + it->head_sent;
    *is_end = !it->sends;
    return it->head_bytes - it->head_sent;
  }
  uint64_t left = it->sends && it->requested ? setup.bytes - it->sent : 0;
  *from = block + it->sent % PERIOD;
  *is_end = left <= PART;
  return left < PART ? (size_t)left : PART;
}

static void account(struct connection *it, size_t length) {
  size_t head = it->head_bytes - it->head_sent;
  it->head_sent += length < head ? length : head;
  it->sent += length < head ? 0 : length - head;
}

static bool has_supply(const struct connection *it) {
  return it->stream >= 0 && !it->is_fin_sent && (setup.is_client || (it->sends ? it->requested : it->answers));
}

static void send_packets(struct connection *it) {
  size_t quantum = ngtcp2_conn_get_send_quantum(it->quic), sent = 0;
  bool is_blocked = false;
  while (waiting < MOST_DATAGRAMS && sent < quantum) {
    ngtcp2_vec part = {NULL, 0};
    const uint8_t *from = NULL;
    bool is_end = false;
    bool has_data = !is_blocked && has_supply(it);
    if (has_data) {
      part.len = supply(it, &from, &is_end);
      part.base = (uint8_t *)from;
    }
    ngtcp2_ssize taken = -1;
    ngtcp2_pkt_info info;
    uint32_t flags = has_data && is_end ? NGTCP2_WRITE_STREAM_FLAG_FIN : 0;
    ngtcp2_ssize length = ngtcp2_conn_writev_stream(
      it->quic, NULL, &info, datagrams[waiting], MOST_BYTES, &taken, flags, has_data ? it->stream : -1, &part,
      has_data ? 1 : 0, now_ns
    );
    if (length == NGTCP2_ERR_STREAM_DATA_BLOCKED || length == NGTCP2_ERR_STREAM_SHUT_WR) {
      is_blocked = true;
      continue;
    }
    if (length < 0) {
      note(it, (int)length);
      return;
    }
    if (taken >= 0) {
      account(it, (size_t)taken);
      it->is_fin_sent = is_end && (size_t)taken == part.len;
    }
    if (length == 0) {
      break;
    }
    lengths[waiting++] = (size_t)length;
    sent += (size_t)length;
  }
  ngtcp2_conn_update_pkt_tx_time(it->quic, now_ns);
}

static void close_connection(struct connection *it) {
  ngtcp2_connection_close_error reason;
  ngtcp2_connection_close_error_default(&reason);
  ngtcp2_pkt_info info;
  ngtcp2_ssize length =
    ngtcp2_conn_write_connection_close(it->quic, NULL, &info, datagrams[waiting], MOST_BYTES, &reason, now_ns);
  if (length > 0) {
    lengths[waiting++] = (size_t)length;
  }
  it->is_closed = true;
}

static void work_on(struct connection *it) {
  if (it->quic == NULL || it->is_closed) {
    return;
  }
  if (ngtcp2_conn_get_expiry(it->quic) <= now_ns) {
    int code = ngtcp2_conn_handle_expiry(it->quic, now_ns);
    if (code != 0) {
      note(it, code);
      return;
    }
  }
  if (setup.is_client && it->stream < 0 && it->connected) {
    (void)ngtcp2_conn_open_bidi_stream(it->quic, &it->stream, NULL);
  }
  if (waiting < MOST_DATAGRAMS) {
    send_packets(it);
  }
  if (setup.is_client && it->sha256[0] != 0 && waiting < MOST_DATAGRAMS) {
    close_connection(it);
  }
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

static const char *supply_name(const struct connection *it) {
  if (it->is_fin_sent) {
    return "done";
  }
  bool has_stream = it->stream >= 0 && !it->is_closed;
  uint64_t left = ngtcp2_conn_get_max_data_left(it->quic);
  return has_stream && (left == 0 || ngtcp2_conn_get_max_stream_data_left(it->quic, it->stream) == 0) ? "blocked"
                                                                                                      : "slow";
}

static void state_of(struct report *to) {
  const struct connection *it = &connections[(count - 1) % CONNECTIONS];
  *to = (struct report){
    .connected = it->connected, .requested = it->requested, .sends = it->sends, .received = it->received
  };
  memcpy(to->sha256, it->sha256, sizeof to->sha256);
  memcpy(to->error, it->error, sizeof to->error);
  if (it->sends) {
    ngtcp2_conn_stat state;
    ngtcp2_conn_get_conn_stat(it->quic, &state);
    to->window = state.cwnd;
    to->in_flight = state.bytes_in_flight;
    to->slow_start = state.cwnd < state.ssthresh;
    to->supply = supply_name(it);
    to->rtt_ms = (double)state.smoothed_rtt / 1e6;
    to->lost = it->stream < 0 ? 0 : ngtcp2_conn_get_stream_loss_count(it->quic, it->stream);
  }
}

static void work(void) {
  for (size_t at = 0; at < CONNECTIONS; at++) {
    work_on(&connections[at]);
  }
}

static uint64_t timer_ns(void) {
  uint64_t due = UINT64_MAX;
  for (size_t at = 0; at < CONNECTIONS; at++) {
    struct connection *it = &connections[at];
    if (it->quic != NULL && !it->is_closed) {
      uint64_t own = ngtcp2_conn_get_expiry(it->quic);
      due = own < due ? own : due;
    }
  }
  return due;
}

static const char *stack_name(void) {
  static char name[40];
  snprintf(name, sizeof name, "ngtcp2 %s", ngtcp2_version(0)->version_str);
  return name;
}

static void set_up_stack(void) {
  gnutls_global_set_time_function(virtual_time);
  local_address.sin_family = peer_address.sin_family = AF_INET;
  local_address.sin_port = htons(1);
  peer_address.sin_port = htons(2);
  check(gnutls_certificate_allocate_credentials(&credentials), "credentials");
  gnutls_datum_t chain = {(unsigned char *)setup.certificate, (unsigned int)strlen(setup.certificate)};
  if (setup.is_client) {
    check(gnutls_certificate_set_x509_trust_mem(credentials, &chain, GNUTLS_X509_FMT_PEM), "trust");
  } else if (setup.key != NULL) {
    gnutls_datum_t key = {(unsigned char *)setup.key, (unsigned int)strlen(setup.key)};
    check(gnutls_certificate_set_x509_key_mem(credentials, &chain, &key, GNUTLS_X509_FMT_PEM), "key");
  }
}
