#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The step of action.yml, which sets the variables: installs a package if one is named, checks, writes summary and outputs.
set -euo pipefail

one_line() { # text: for a workflow command, which ends with its line
  local text=${1//'%'/%25}
  text=${text//$'\r'/%0D}
  printf '%s' "${text//$'\n'/%0A}"
}

die() { # message hint
  printf '::error::%s; %s\n' "$(one_line "$1")" "$2"
  exit 2
}

install_package() {
  local file sudo=()
  file=$(mktemp --suffix=.deb)
  case $PACKAGE in
    https://*) curl -fsSL --proto '=https' --retry 3 -o "$file" "$PACKAGE" || die "$PACKAGE cannot be fetched" "is it a release's file?" ;;
    *) cp -- "$PACKAGE" "$file" || die "there is no package $PACKAGE" "input package: a path, or an https:// URL" ;;
  esac
  if [ -n "$PACKAGE_SHA256" ] && ! sha256sum --status -c <<<"$PACKAGE_SHA256  $file"; then
    die "$PACKAGE has another SHA-256" "compare the input package-sha256 with SHA256SUMS of the release"
  fi
  chmod a+r "$file"
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  "${sudo[@]}" apt-get -q update
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install "$file"
  rm -f "$file"
}

case $OUT in
  *[[:cntrl:]]*) die "input out has control characters" "name a folder, such as satellite" ;;
esac

satlab=$(dirname "${BASH_SOURCE[0]}")/../../satlab
if [ -n "$PACKAGE" ]; then
  install_package
  satlab=satlab
fi

mkdir -p -- "$OUT"
rm -f -- "$OUT/check.md" # of an earlier check: its heading would be the summary of one that does not end
words=(check --suite "$SUITE" --json --out "$OUT/runs" --junit "$OUT/check.xml" --markdown "$OUT/check.md")
[ -z "$RUNS" ] || words+=(--runs "$RUNS")
[ -z "$CASES" ] || words+=(--cases "$CASES")
[ -z "$VIRTUAL_CLIENT" ] || words+=(--virtual-client "$VIRTUAL_CLIENT")
[ -z "$VIRTUAL_SERVER" ] || words+=(--virtual-server "$VIRTUAL_SERVER")
[ -z "$CLIENT_CMD" ] || words+=(--client-cmd "$CLIENT_CMD")
[ -z "$SERVER_CMD" ] || words+=(--server-cmd "$SERVER_CMD")
if [ -f "$BASELINE" ]; then
  words+=(--baseline "$BASELINE")
elif [ -n "$BASELINE" ]; then
  printf '::notice::%s is missing: this build is not compared with another\n' "$(one_line "$BASELINE")"
fi

# What programs under test say is no command of the workflow.
token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
status=0
printf '::stop-commands::%s\n' "$token"
"$satlab" "${words[@]}" >"$OUT/check.json" || status=$?
printf '::%s::\n' "$token"
summary="satlab check ended with status $status"
if [ -f "$OUT/check.md" ]; then
  cat "$OUT/check.md" >>"$GITHUB_STEP_SUMMARY"
  summary=$(sed -n '1s/^### //p' "$OUT/check.md" | tr -d '[:cntrl:]') # its heading says what became slower, and why
fi
kind=error
[ "$status" -ne 0 ] || kind=notice
printf '::%s::%s\n' "$kind" "$(one_line "$summary")"
printf '%s\n' "summary=$summary" "status=$status" "json=$OUT/check.json" "junit=$OUT/check.xml" "markdown=$OUT/check.md" >>"$GITHUB_OUTPUT"
exit "$status"
