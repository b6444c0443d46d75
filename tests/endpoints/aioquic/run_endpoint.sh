#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Endpoint of the QUIC interop runner around the example programs of aioquic (make -C tests/endpoints/aioquic OUT=FOLDER). Test cases
# and options are those of aioquic's own endpoint; HTTP/0.9 is its --legacy-http.
set -u
/setup.sh
export PYTHONPATH=/site-packages STATIC_ROOT=/www
common=(--secrets-log "$SSLKEYLOGFILE" --quic-log "$QLOGDIR")
legacy=(--legacy-http)
server=()
case $TESTCASE in
  handshake | multiconnect) ;;
  transfer) legacy+=(--max-data 262144 --max-stream-data 262144) ;;
  chacha20) legacy+=(--cipher-suites CHACHA20_POLY1305_SHA256) ;;
  retry) server+=(--retry) ;;
  resumption) legacy+=(--session-ticket /tmp/ticket) ;;
  zerortt) legacy+=(--session-ticket /tmp/ticket --zero-rtt) ;;
  v2) legacy+=(--negotiate-v2) ;;
  http3) legacy=() ;;
  *) exit 127 ;;
esac

get() {
  /usr/bin/python3 /examples/http3_client.py --insecure --output-dir /downloads "${common[@]}" "${legacy[@]}" "$@"
}

if [ "$ROLE" = server ]; then
  cd /
  exec /usr/bin/python3 /examples/http3_server.py --certificate /certs/cert.pem --private-key /certs/priv.key --port 443 \
    "${common[@]}" "${server[@]}"
fi
/wait-for-it.sh sim:57832 -s -t 30
read -ra urls <<<"$REQUESTS"
case $TESTCASE in
  multiconnect)
    for url in "${urls[@]}"; do
      get "$url" || exit 1
    done
    ;;
  resumption | zerortt) get "${urls[0]}" && get "${urls[@]:1}" ;;
  *) get "${urls[@]}" ;;
esac
