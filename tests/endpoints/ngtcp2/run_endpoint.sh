#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Endpoint of the QUIC interop runner around ngtcp2's programs as Debian packs them (gtlsserver, gtlsclient).
# They speak HTTP/3 in every test case. With /hq (make endpoint) those of HTTP/0.9 are HTTP/0.9, as other endpoints expect it, and
# a session is not resumed; multiconnect, chacha20, ecn and connectionmigration need /hq.
set -u
/setup.sh

legacy() {
  case $ROLE-$TESTCASE in
    *-http3 | *-second-download) return ;;
    server-handshake | server-transfer | server-multiconnect | server-ecn)
      exec /hq server 443 /www /certs/priv.key /certs/cert.pem
      ;;
    server-retry) exec /hq server 443 /www /certs/priv.key /certs/cert.pem --retry ;;
    server-connectionmigration) exec /hq server 443 /www /certs/priv.key /certs/cert.pem --preferred ;;
    server-chacha20) exec /hq server 443 /www /certs/priv.key /certs/cert.pem --chacha20 ;;
    # shellcheck disable=SC2086 # REQUESTS are words
    client-handshake | client-transfer | client-retry | client-ecn) exec /hq client "$host" 443 /downloads $REQUESTS ;;
    # shellcheck disable=SC2086
    client-keyupdate) exec /hq client "$host" 443 /downloads $REQUESTS --key-update ;;
    # shellcheck disable=SC2086
    client-chacha20) exec /hq client "$host" 443 /downloads $REQUESTS --chacha20 ;;
    client-multiconnect)
      for url in $REQUESTS; do
        /hq client "$host" 443 /downloads "$url" || exit 1
      done
      exit 0
      ;;
    *) exit 127 ;;
  esac
}

server() {
  local options=(--quiet --no-quic-dump --no-http-dump --htdocs=/www --qlog-dir="$QLOGDIR")
  case $TESTCASE in
    handshake | transfer | http3 | resumption | zerortt | second-download) ;;
    retry) options+=(--validate-addr) ;;
    *) exit 127 ;;
  esac
  # shellcheck disable=SC2086 # SERVER_PARAMS are words
  exec /usr/sbin/gtlsserver "${options[@]}" $SERVER_PARAMS 0.0.0.0 443 /certs/priv.key /certs/cert.pem
}

client() {
  local -a urls
  read -ra urls <<<"$REQUESTS"
  local options=(--quiet --no-quic-dump --no-http-dump --download=/downloads --exit-on-all-streams-close)
  options+=(--qlog-dir="$QLOGDIR" --handshake-timeout=30s)
  local session=(--session-file=/tmp/session --tp-file=/tmp/parameters)
  case $TESTCASE in
    handshake | transfer | http3 | retry) get "${urls[@]}" ;;
    keyupdate) options+=(--key-update=1s) && get "${urls[@]}" ;;
    resumption)
      options+=("${session[@]}" --disable-early-data)
      get "${urls[0]}" && get "${urls[@]:1}"
      ;;
    zerortt)
      options+=("${session[@]}")
      get "${urls[0]}" && get "${urls[@]:1}"
      ;;
    second-download) # satlab's own: the client is started twice, and $STATEDIR stays
      options+=(--session-file="$STATEDIR/session" --tp-file="$STATEDIR/parameters")
      get "${urls[@]}"
      ;;
    *) exit 127 ;;
  esac
}

get() {
  # shellcheck disable=SC2086 # CLIENT_PARAMS are words
  /usr/bin/gtlsclient "${options[@]}" $CLIENT_PARAMS "$host" 443 "$@"
}

host=${REQUESTS#*://}
host=${host%%[:/]*}
if [ "$ROLE" = client ]; then
  /wait-for-it.sh sim:57832 -s -t 30
  [ ! -x /hq ] || legacy
  client
else
  [ ! -x /hq ] || legacy
  server
fi
