/* SPDX-License-Identifier: GPL-3.0-or-later
 *
 * HTTP/0.9 over QUIC (ALPN hq-interop) with ngtcp2 0.12 of Debian 12, for the endpoint of the QUIC interop runner in this
 * folder: Debian's own programs of ngtcp2 speak HTTP/3 alone. Build: make -C tests/endpoints/ngtcp2 endpoint.
 *
 *   hq client HOST PORT FOLDER [--key-update] [--chacha20] URL...    downloads files with one connection, without
 *                                                                    certificate checks
 *   hq server PORT FOLDER KEY CERTIFICATE [--retry] [--chacha20] [--preferred]     serves a folder until it is ended
 *
 * With --preferred a server asks its clients to go on at PREFERRED_PORT of server4 and server6.
 *
 * Both use IPv4 and IPv6, and mark their packets ECT(0). A server follows a client to another address. GnuTLS writes
 * $SSLKEYLOGFILE. Exit status of the client: 0 if every file is complete.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>

#define PRIORITY(ciphers) \
  "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:" ciphers \
  ":-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:%DISABLE_TLS13_COMPAT_MODE"
#define CID_BYTES 8
#define WINDOW 16000000 /* flow control, bytes: more than 20 Mbit/s times 1.5 s */
#define STREAMS 2048 /* files of a connection */
#define STREAMS_AT_ONCE 128
#define CONNECTIONS 64
#define MOST_BYTES 1452
#define PREFERRED_PORT 4443
#define REQUEST 1024
#define IDLE (60 * NGTCP2_SECONDS)

struct stream {
  int64_t id;
  char request[REQUEST];
  size_t request_bytes;
  const uint8_t *data; /* what is sent: kept until it is acknowledged */
  size_t size, sent;
  bool sends, is_fin_sent, is_complete;
  FILE *file;
};

struct connection {
  ngtcp2_conn *quic;
  gnutls_session_t tls;
  ngtcp2_crypto_conn_ref reference;
  ngtcp2_cid first_dcid;
  struct sockaddr_in6 peer;
  struct stream streams[STREAMS];
  size_t count;
  bool connected, confirmed, has_updated;
};

/* Sockets and their addresses: the one that is listened on, and a server's preferred one. */
enum { FIRST, PREFERRED, SOCKETS };
static int udp[SOCKETS] = {-1, -1};
static struct sockaddr_in6 local[SOCKETS];
static bool is_client, has_retry, has_key_update, has_chacha20_alone, has_preferred;
static const char *folder;
static char **urls;
static size_t files;
static struct connection *connections[CONNECTIONS];
static gnutls_certificate_credentials_t credentials;
static uint8_t secret[32];

static void fail(const char *what, const char *why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(int code, const char *what) {
  if (code < 0) {
    fail(what, gnutls_strerror(code));
  }
}

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * NGTCP2_SECONDS + (uint64_t)at.tv_nsec;
}

static void draw(uint8_t *to, size_t length) { check(gnutls_rnd(GNUTLS_RND_RANDOM, to, length), "random numbers"); }

static void on_rand(uint8_t *to, size_t length, const ngtcp2_rand_ctx *context) {
  (void)context;
  draw(to, length);
}

static int on_new_connection_id(ngtcp2_conn *quic, ngtcp2_cid *cid, uint8_t *token, size_t length, void *user) {
  (void)quic;
  (void)user;
  draw(cid->data, length);
  cid->datalen = length;
  draw(token, NGTCP2_STATELESS_RESET_TOKENLEN);
  return 0;
}

static int on_handshake(ngtcp2_conn *quic, void *user) {
  (void)quic;
  ((struct connection *)user)->connected = true;
  return 0;
}

static int on_confirmed(ngtcp2_conn *quic, void *user) { /* keys may change from now on (RFC 9001, 6.1) */
  ((struct connection *)user)->confirmed = quic != NULL;
  return 0;
}

/* --- streams ------------------------------------------------------------------------------------------------------ */

static struct stream *stream_of(struct connection *it, int64_t id) {
  for (size_t at = 0; at < it->count; at++) {
    if (it->streams[at].id == id) {
      return &it->streams[at];
    }
  }
  return NULL;
}

static int on_open(ngtcp2_conn *quic, int64_t id, void *user) {
  struct connection *it = user;
  (void)quic;
  if (it->count < STREAMS) {
    it->streams[it->count++] = (struct stream){.id = id};
  }
  return 0;
}

/* A server answers a complete request; a missing file has no bytes. */
static void answer(struct stream *to) {
  char name[REQUEST + 256];
  to->request[to->request_bytes] = 0;
  char *at = strstr(to->request, "GET /"), *end = strpbrk(to->request, "\r\n");
  to->sends = true;
  if (at == NULL || end == NULL || strstr(at, "..") != NULL) {
    return;
  }
  *end = 0;
  snprintf(name, sizeof name, "%s/%s", folder, at + strlen("GET /"));
  int file = open(name, O_RDONLY);
  struct stat found;
  if (file >= 0 && fstat(file, &found) == 0 && found.st_size > 0) {
    void *data = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data != MAP_FAILED) {
      to->data = data;
      to->size = (size_t)found.st_size;
    }
  }
  (void)close(file);
}

static int on_data(
  ngtcp2_conn *quic, uint32_t flags, int64_t id, uint64_t offset, const uint8_t *data, size_t length, void *user,
  void *stream_user
) {
  struct stream *it = stream_of(user, id);
  (void)offset;
  (void)stream_user;
  ngtcp2_conn_extend_max_stream_offset(quic, id, length);
  ngtcp2_conn_extend_max_offset(quic, length);
  if (it == NULL) {
    return 0;
  }
  if (is_client) {
    if (it->file == NULL || fwrite(data, 1, length, it->file) != length) {
      return NGTCP2_ERR_CALLBACK_FAILURE;
    }
    if ((flags & NGTCP2_STREAM_DATA_FLAG_FIN) != 0) {
      it->is_complete = fclose(it->file) == 0;
      it->file = NULL;
    }
    return 0;
  }
  size_t room = REQUEST - 1 - it->request_bytes, part = length < room ? length : room;
  memcpy(it->request + it->request_bytes, data, part);
  it->request_bytes += part;
  if (!it->sends && memchr(it->request, '\n', it->request_bytes) != NULL) {
    answer(it);
  }
  return 0;
}

static int on_closed(ngtcp2_conn *quic, uint32_t flags, int64_t id, uint64_t error, void *user, void *stream_user) {
  struct stream *it = stream_of(user, id);
  (void)flags;
  (void)error;
  (void)stream_user;
  if (it != NULL && !is_client) {
    if (it->data != NULL) {
      munmap((void *)it->data, it->size);
    }
    struct connection *of = user;
    *it = of->streams[--of->count];
    ngtcp2_conn_extend_max_streams_bidi(quic, 1);
  }
  return 0;
}

static void open_streams(struct connection *it) {
  while (it->connected && it->count < files && ngtcp2_conn_get_streams_bidi_left(it->quic) > 0) {
    struct stream *to = &it->streams[it->count];
    const char *url = urls[it->count], *host = strstr(url, "://"), *path = strchr(host == NULL ? url : host + 3, '/');
    char name[REQUEST + 256];
    if (path == NULL || strlen(path) > REQUEST - 16) {
      fail(url, "has no path");
    }
    snprintf(name, sizeof name, "%s/%s", folder, strrchr(path, '/') + 1);
    to->file = fopen(name, "wb");
    if (to->file == NULL || ngtcp2_conn_open_bidi_stream(it->quic, &to->id, NULL) != 0) {
      fail(name, "cannot be requested");
    }
    to->size = (size_t)snprintf(to->request, REQUEST, "GET %s\r\n", path);
    to->data = (const uint8_t *)to->request;
    to->sends = true;
    it->count++;
  }
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static ngtcp2_conn *connection_of(ngtcp2_crypto_conn_ref *reference) {
  return ((struct connection *)reference->user_data)->quic;
}

/* A client goes on at the server's preferred address of the family that it uses. */
static int on_preferred(ngtcp2_conn *quic, ngtcp2_path *to, const ngtcp2_preferred_addr *offered, void *user) {
  const struct sockaddr_in6 *peer = &((struct connection *)user)->peer;
  struct sockaddr_in6 next = *peer;
  (void)quic;
  if (IN6_IS_ADDR_V4MAPPED(&peer->sin6_addr)) {
    if (!offered->ipv4_present) {
      return 0;
    }
    memcpy(&next.sin6_addr.s6_addr[12], &offered->ipv4.sin_addr, 4);
    next.sin6_port = offered->ipv4.sin_port;
  } else {
    if (!offered->ipv6_present) {
      return 0;
    }
    memcpy(&next.sin6_addr, &offered->ipv6.sin6_addr, 16);
    next.sin6_port = offered->ipv6.sin6_port;
  }
  memcpy(to->remote.addr, &next, sizeof next);
  to->remote.addrlen = sizeof next;
  return 0;
}

static ngtcp2_callbacks callbacks(void) {
  return (ngtcp2_callbacks){
    .client_initial = ngtcp2_crypto_client_initial_cb,
    .recv_client_initial = ngtcp2_crypto_recv_client_initial_cb,
    .recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb,
    .handshake_completed = on_handshake, .handshake_confirmed = on_confirmed,
    .encrypt = ngtcp2_crypto_encrypt_cb,
    .decrypt = ngtcp2_crypto_decrypt_cb,
    .hp_mask = ngtcp2_crypto_hp_mask_cb,
    .recv_stream_data = on_data,
    .stream_open = on_open,
    .stream_close = on_closed,
    .recv_retry = ngtcp2_crypto_recv_retry_cb,
    .rand = on_rand, .get_new_connection_id = on_new_connection_id,
    .update_key = ngtcp2_crypto_update_key_cb,
    .delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb,
    .delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb,
    .get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb,
    .version_negotiation = ngtcp2_crypto_version_negotiation_cb,
    .select_preferred_addr = on_preferred,
  };
}

static ngtcp2_path path_to(struct sockaddr_in6 *peer, int from) {
  return (ngtcp2_path){
    {(struct sockaddr *)&local[from], sizeof local[from]}, {(struct sockaddr *)peer, sizeof *peer}, NULL
  };
}

static struct sockaddr_in6 resolved(const char *host, const char *port) {
  struct addrinfo hints = {.ai_family = AF_INET6, .ai_socktype = SOCK_DGRAM, .ai_flags = AI_V4MAPPED}, *found;
  int code = getaddrinfo(host, port, &hints, &found);
  if (code != 0) {
    fail(host, gai_strerror(code));
  }
  struct sockaddr_in6 address;
  memcpy(&address, found->ai_addr, sizeof address);
  freeaddrinfo(found);
  return address;
}

static ngtcp2_cid new_cid(size_t length) {
  ngtcp2_cid cid = {.datalen = length};
  draw(cid.data, length);
  return cid;
}

static void make_tls(struct connection *it, const char *server_name) {
  static const gnutls_datum_t alpn = {(unsigned char *)"hq-interop", 10};
  unsigned int flags = is_client ? GNUTLS_CLIENT : GNUTLS_SERVER | GNUTLS_NO_AUTO_SEND_TICKET;
  check(gnutls_init(&it->tls, flags | GNUTLS_NO_END_OF_EARLY_DATA), "gnutls_init");
  const char *priority =
    has_chacha20_alone ? PRIORITY("+CHACHA20-POLY1305") : PRIORITY("+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305");
  check(gnutls_priority_set_direct(it->tls, priority, NULL), "priority");
  check(gnutls_credentials_set(it->tls, GNUTLS_CRD_CERTIFICATE, credentials), "credentials");
  check(gnutls_alpn_set_protocols(it->tls, &alpn, 1, GNUTLS_ALPN_MANDATORY), "alpn");
  if (is_client) {
    check(gnutls_server_name_set(it->tls, GNUTLS_NAME_DNS, server_name, strlen(server_name)), "server name");
    check(ngtcp2_crypto_gnutls_configure_client_session(it->tls), "client session");
  } else {
    check(ngtcp2_crypto_gnutls_configure_server_session(it->tls), "server session");
  }
  it->reference = (ngtcp2_crypto_conn_ref){connection_of, it};
  gnutls_session_set_ptr(it->tls, &it->reference);
}

/* Offer the preferred address, with its connection ID. */
static void prefer(ngtcp2_transport_params *parameters) {
  struct sockaddr_in6 four = resolved("server4", NULL), six = resolved("server6", NULL);
  ngtcp2_preferred_addr *to = &parameters->preferred_address;
  parameters->preferred_address_present = 1;
  to->cid = new_cid(CID_BYTES);
  draw(to->stateless_reset_token, sizeof to->stateless_reset_token);
  to->ipv4_present = to->ipv6_present = 1;
  to->ipv4.sin_family = AF_INET;
  memcpy(&to->ipv4.sin_addr, &four.sin6_addr.s6_addr[12], 4);
  to->ipv6.sin6_family = AF_INET6;
  memcpy(&to->ipv6.sin6_addr, &six.sin6_addr, 16);
  to->ipv4.sin_port = to->ipv6.sin6_port = htons(PREFERRED_PORT);
}

/* Begin a client's connection, or a server's for an Initial packet; `original` is what a Retry's token names. */
static struct connection *begin(struct sockaddr_in6 peer, const char *name, ngtcp2_pkt_hd *initial, ngtcp2_cid *original) {
  size_t place = 0;
  while (place < CONNECTIONS && connections[place] != NULL) {
    place++;
  }
  struct connection *it = place < CONNECTIONS ? calloc(1, sizeof *it) : NULL;
  if (it == NULL) {
    return NULL;
  }
  it->peer = peer;
  make_tls(it, name);
  ngtcp2_settings settings;
  ngtcp2_settings_default(&settings);
  settings.initial_ts = now();
  settings.handshake_timeout = IDLE;
  ngtcp2_transport_params parameters;
  ngtcp2_transport_params_default(&parameters);
  parameters.initial_max_data = WINDOW;
  parameters.initial_max_stream_data_bidi_local = parameters.initial_max_stream_data_bidi_remote = WINDOW;
  parameters.initial_max_streams_bidi = STREAMS_AT_ONCE;
  parameters.max_idle_timeout = IDLE;
  ngtcp2_callbacks called = callbacks();
  ngtcp2_path way = path_to(&it->peer, FIRST);
  ngtcp2_cid scid = new_cid(CID_BYTES);
  int code;
  if (initial == NULL) {
    ngtcp2_cid dcid = new_cid(NGTCP2_MIN_INITIAL_DCIDLEN);
    uint32_t version = NGTCP2_PROTO_VER_V1;
    code = ngtcp2_conn_client_new(&it->quic, &dcid, &scid, &way, version, &called, &settings, &parameters, NULL, it);
  } else {
    if (has_preferred) {
      prefer(&parameters);
    }
    it->first_dcid = initial->dcid;
    parameters.original_dcid = original == NULL ? initial->dcid : *original;
    if (original != NULL) {
      parameters.retry_scid = initial->dcid;
      parameters.retry_scid_present = 1;
      settings.token = initial->token;
    }
    code = ngtcp2_conn_server_new(
      &it->quic, &initial->scid, &scid, &way, initial->version, &called, &settings, &parameters, NULL, it
    );
  }
  if (code != 0) {
    fail("connection", ngtcp2_strerror(code));
  }
  ngtcp2_conn_set_tls_native_handle(it->quic, it->tls);
  return connections[place] = it;
}

static void end(struct connection *it) {
  for (size_t at = 0; at < CONNECTIONS; at++) {
    if (connections[at] == it) {
      connections[at] = NULL;
    }
  }
  for (size_t at = 0; at < it->count && !is_client; at++) {
    if (it->streams[at].data != NULL) {
      munmap((void *)it->streams[at].data, it->streams[at].size);
    }
  }
  ngtcp2_conn_del(it->quic);
  gnutls_deinit(it->tls);
  free(it);
}

static void ended(struct connection *it, int code) {
  is_client ? fail("connection", ngtcp2_strerror(code)) : end(it);
}

/* Set the ECN field of what a socket sends, for IPv4 and IPv6. */
static void mark(int by, uint32_t ecn) {
  static uint32_t last[SOCKETS] = {NGTCP2_ECN_NOT_ECT, NGTCP2_ECN_NOT_ECT};
  int field = (int)ecn;
  if (ecn != last[by]) {
    (void)setsockopt(udp[by], IPPROTO_IP, IP_TOS, &field, sizeof field);
    (void)setsockopt(udp[by], IPPROTO_IPV6, IPV6_TCLASS, &field, sizeof field);
    last[by] = ecn;
  }
}

static void put(const ngtcp2_path *way, const uint8_t *data, size_t length, uint32_t ecn) {
  const struct sockaddr_in6 *from = (const struct sockaddr_in6 *)way->local.addr;
  int by = udp[PREFERRED] >= 0 && from->sin6_port == local[PREFERRED].sin6_port ? PREFERRED : FIRST;
  mark(by, ecn);
  (void)sendto(udp[by], data, length, 0, way->remote.addr, way->remote.addrlen);
}

static bool has_cid(const struct connection *it, const ngtcp2_version_cid *header) {
  const ngtcp2_cid *first = &it->first_dcid;
  if (first->datalen == header->dcidlen && memcmp(first->data, header->dcid, header->dcidlen) == 0) {
    return true;
  }
  ngtcp2_cid known[32], searched;
  size_t all = ngtcp2_conn_get_num_scid(it->quic);
  ngtcp2_cid_init(&searched, header->dcid, header->dcidlen);
  if (all > sizeof known / sizeof *known) {
    return false;
  }
  ngtcp2_conn_get_scid(it->quic, known);
  for (size_t one = 0; one < all; one++) {
    if (ngtcp2_cid_eq(&known[one], &searched)) {
      return true;
    }
  }
  return false;
}

static void send_retry(ngtcp2_pkt_hd *initial, struct sockaddr_in6 *peer) {
  uint8_t token[NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN], packet[MOST_BYTES];
  ngtcp2_cid scid = new_cid(CID_BYTES);
  ngtcp2_ssize length = ngtcp2_crypto_generate_retry_token(
    token, secret, sizeof secret, initial->version, (struct sockaddr *)peer, sizeof *peer, &scid, &initial->dcid, now()
  );
  if (length > 0) {
    length = ngtcp2_crypto_write_retry(
      packet, sizeof packet, initial->version, &initial->scid, &scid, &initial->dcid, token, (size_t)length
    );
  }
  if (length > 0) {
    ngtcp2_path way = path_to(peer, FIRST);
    put(&way, packet, (size_t)length, NGTCP2_ECN_NOT_ECT);
  }
}

static struct connection *accepted(const uint8_t *data, size_t length, struct sockaddr_in6 *peer) {
  ngtcp2_pkt_hd initial;
  ngtcp2_cid original;
  if (is_client || ngtcp2_accept(&initial, data, length) != 0) {
    return NULL;
  }
  if (!has_retry) {
    return begin(*peer, NULL, &initial, NULL);
  }
  if (initial.token.len == 0) {
    send_retry(&initial, peer);
    return NULL;
  }
  int code = ngtcp2_crypto_verify_retry_token(
    &original, initial.token.base, initial.token.len, secret, sizeof secret, initial.version, (struct sockaddr *)peer,
    sizeof *peer, &initial.dcid, 10 * NGTCP2_SECONDS, now()
  );
  return code == 0 ? begin(*peer, NULL, &initial, &original) : NULL;
}

static void receive(const uint8_t *data, size_t length, struct sockaddr_in6 *peer, int by, uint32_t ecn) {
  ngtcp2_version_cid header;
  if (ngtcp2_pkt_decode_version_cid(&header, data, length, CID_BYTES) != 0) {
    return;
  }
  struct connection *it = NULL;
  for (size_t at = 0; at < CONNECTIONS && it == NULL; at++) {
    it = connections[at] != NULL && has_cid(connections[at], &header) ? connections[at] : NULL;
  }
  it = it == NULL ? accepted(data, length, peer) : it;
  if (it == NULL) {
    return;
  }
  ngtcp2_path way = path_to(peer, by);
  ngtcp2_pkt_info info = {ecn};
  int code = ngtcp2_conn_read_pkt(it->quic, &way, &info, data, length, now());
  if (code != 0) {
    ended(it, code);
  }
}

/* The next stream with something to send, after `from`; a blocked one is skipped by the caller. */
static struct stream *next_to_send(struct connection *it, size_t *from) {
  for (; *from < it->count; (*from)++) {
    struct stream *one = &it->streams[*from];
    if (one->sends && !one->is_fin_sent) {
      return one;
    }
  }
  return NULL;
}

static int send_packets(struct connection *it) {
  size_t quantum = ngtcp2_conn_get_send_quantum(it->quic), sent = 0, from = 0;
  uint64_t at = now();
  while (sent < quantum) {
    uint8_t packet[MOST_BYTES];
    struct stream *one = next_to_send(it, &from);
    ngtcp2_vec part = {NULL, 0};
    if (one != NULL) {
      part = (ngtcp2_vec){(uint8_t *)one->data + one->sent, one->size - one->sent};
    }
    ngtcp2_ssize taken = -1;
    ngtcp2_pkt_info info;
    ngtcp2_path_storage way;
    ngtcp2_path_storage_zero(&way);
    ngtcp2_ssize length = ngtcp2_conn_writev_stream(
      it->quic, &way.path, &info, packet, sizeof packet, &taken, one == NULL ? 0 : NGTCP2_WRITE_STREAM_FLAG_FIN,
      one == NULL ? -1 : one->id, &part, one == NULL ? 0 : 1, at
    );
    if (length == NGTCP2_ERR_STREAM_DATA_BLOCKED || length == NGTCP2_ERR_STREAM_SHUT_WR) {
      from++;
      continue;
    }
    if (length < 0) {
      return (int)length;
    }
    if (one != NULL && taken >= 0) {
      one->sent += (size_t)taken;
      one->is_fin_sent = one->sent == one->size;
    }
    if (length == 0) {
      break;
    }
    put(&way.path, packet, (size_t)length, info.ecn);
    sent += (size_t)length;
  }
  ngtcp2_conn_update_pkt_tx_time(it->quic, at);
  return 0;
}

static void work(struct connection *it) {
  int code = 0;
  if (ngtcp2_conn_get_expiry(it->quic) <= now()) {
    code = ngtcp2_conn_handle_expiry(it->quic, now());
  }
  if (is_client && code == 0) {
    open_streams(it);
    if (has_key_update && !it->has_updated && it->confirmed) {
      it->has_updated = ngtcp2_conn_initiate_key_update(it->quic, now()) == 0;
    }
  }
  code = code == 0 ? send_packets(it) : code;
  if (code != 0) {
    ended(it, code);
  }
}

static bool is_done(const struct connection *it) {
  bool is_complete = it->count == files;
  for (size_t at = 0; at < it->count; at++) {
    is_complete &= it->streams[at].is_complete;
  }
  return is_complete;
}

static int finish(struct connection *it) {
  uint8_t packet[MOST_BYTES];
  ngtcp2_connection_close_error reason;
  ngtcp2_connection_close_error_default(&reason);
  ngtcp2_pkt_info info;
  ngtcp2_path_storage way;
  ngtcp2_path_storage_zero(&way);
  ngtcp2_ssize length =
    ngtcp2_conn_write_connection_close(it->quic, &way.path, &info, packet, sizeof packet, &reason, now());
  if (length > 0) {
    put(&way.path, packet, (size_t)length, info.ecn);
  }
  return 0;
}

/* Receive a datagram with its sender and its ECN field; -1 if there is none. */
static ssize_t take_datagram(int by, uint8_t *data, size_t size, struct sockaddr_in6 *peer, uint32_t *ecn) {
  uint8_t control[CMSG_SPACE(sizeof(int)) * 2];
  struct iovec part = {data, size};
  struct msghdr message = {
    .msg_name = peer, .msg_namelen = sizeof *peer, .msg_iov = &part, .msg_iovlen = 1,
    .msg_control = control, .msg_controllen = sizeof control,
  };
  ssize_t length = recvmsg(udp[by], &message, MSG_DONTWAIT);
  *ecn = NGTCP2_ECN_NOT_ECT;
  for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); length > 0 && one != NULL; one = CMSG_NXTHDR(&message, one)) {
    bool is_ipv4 = one->cmsg_level == IPPROTO_IP && one->cmsg_type == IP_TOS;
    if (is_ipv4 || (one->cmsg_level == IPPROTO_IPV6 && one->cmsg_type == IPV6_TCLASS)) {
      *ecn = *CMSG_DATA(one) & NGTCP2_ECN_MASK;
    }
  }
  return length;
}

static int run(void) {
  for (;;) {
    uint64_t due = now() + NGTCP2_SECONDS;
    for (size_t at = 0; at < CONNECTIONS; at++) {
      if (connections[at] != NULL) {
        work(connections[at]);
      }
      if (connections[at] != NULL) {
        uint64_t own = ngtcp2_conn_get_expiry(connections[at]->quic);
        due = own < due ? own : due;
      }
    }
    if (is_client && is_done(connections[0])) {
      return finish(connections[0]);
    }
    uint64_t at = now(), left = due > at ? due - at : 0;
    struct timespec wait = {(time_t)(left / NGTCP2_SECONDS), (long)(left % NGTCP2_SECONDS)};
    struct pollfd readable[SOCKETS] = {{.fd = udp[FIRST], .events = POLLIN}, {.fd = udp[PREFERRED], .events = POLLIN}};
    (void)ppoll(readable, SOCKETS, &wait, NULL);
    for (int by = FIRST; by < SOCKETS; by++) {
      uint8_t data[65536];
      struct sockaddr_in6 peer;
      uint32_t ecn;
      ssize_t length;
      while (udp[by] >= 0 && (length = take_datagram(by, data, sizeof data, &peer, &ecn)) > 0) {
        receive(data, (size_t)length, &peer, by, ecn);
      }
    }
  }
}

static void bind_to(int by, uint16_t port) {
  local[by].sin6_family = AF_INET6;
  local[by].sin6_port = htons(port);
  udp[by] = socket(AF_INET6, SOCK_DGRAM, 0);
  int on = 1, off = 0;
  (void)setsockopt(udp[by], IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  (void)setsockopt(udp[by], IPPROTO_IP, IP_RECVTOS, &on, sizeof on);
  (void)setsockopt(udp[by], IPPROTO_IPV6, IPV6_RECVTCLASS, &on, sizeof on);
  if (udp[by] < 0 || bind(udp[by], (struct sockaddr *)&local[by], sizeof local[by]) != 0) {
    fail("socket", strerror(errno));
  }
}

static bool take(int *count, char **words, const char *option) {
  for (int at = 0; at < *count; at++) {
    if (strcmp(words[at], option) == 0) {
      memmove(&words[at], &words[at + 1], (size_t)(*count - at) * sizeof *words);
      (*count)--;
      return true;
    }
  }
  return false;
}

int main(int count, char **words) {
  is_client = count > 1 && strcmp(words[1], "client") == 0;
  has_retry = take(&count, words, "--retry");
  has_key_update = take(&count, words, "--key-update");
  has_preferred = take(&count, words, "--preferred");
  has_chacha20_alone = take(&count, words, "--chacha20");
  if (is_client ? count < 6 : count != 6) {
    fail("usage", "hq client HOST PORT FOLDER URL... | hq server PORT FOLDER KEY CERTIFICATE");
  }
  check(gnutls_certificate_allocate_credentials(&credentials), "credentials");
  draw(secret, sizeof secret);
  if (!is_client) {
    folder = words[3];
    check(gnutls_certificate_set_x509_key_file(credentials, words[5], words[4], GNUTLS_X509_FMT_PEM), "key files");
    bind_to(FIRST, (uint16_t)atoi(words[2]));
    if (has_preferred) {
      bind_to(PREFERRED, PREFERRED_PORT);
    }
    return run();
  }
  folder = words[4];
  urls = words + 5;
  files = (size_t)(count - 5);
  if (files > STREAMS) {
    fail("usage", "too many files");
  }
  bind_to(FIRST, 0);
  return begin(resolved(words[2], words[3]), words[2], NULL, NULL) == NULL ? 1 : run();
}
