#!/bin/sh
# What "make run" does once all is built: brings the examples up, makes calls, stays up until Ctrl-C.
# demo.sh BIN SERVERS; ONCE=1 ends after the calls.
set -eu

bin=$(cd "$1" && pwd)
servers=$(cd "$2" && pwd)
pfar=$bin/pfar
build=$(dirname "$bin")

# Memory, never a disk, and reachable for the servers' own users, also where the clone is not.
PFAR_RUN_DIR=$(mktemp -d /dev/shm/pfar-run.XXXXXX)
PFAR_STATE_DIR=$build/state
export PFAR_RUN_DIR PFAR_STATE_DIR
trap 'rm -rf "$PFAR_RUN_DIR"' EXIT
trap : INT # Ctrl-C is for pfar
chmod 711 "$PFAR_RUN_DIR"
failed=$PFAR_RUN_DIR/demo-failed

declarations=$build/declarations
rm -rf "$declarations"
mkdir -p "$declarations"
cp examples/*.hcl examples/*.toml "$declarations/" 2>/dev/null || cp examples/*.hcl "$declarations/"
command -v Xtigervnc >/dev/null || rm "$declarations/browser-headed.hcl" # its display
# A server that attacks its sandbox, to show what becomes of it.
cat >"$declarations/intruder.hcl" <<END
description     = "tests/hostile: a server that tries what it must not"
allowed_domains = ["api.example.com"]
server { command = "$bin/hostile" }
END

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
title() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

# run shows a command as its reader would type it, and what it prints; want is the exit code that is right.
run() {
	want=$1
	shift
	printf '\n$ pfar'
	for word in "$@"; do
		case $word in *[!A-Za-z0-9._:/=-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
	done
	echo
	code=0
	"$pfar" "$@" || code=$?
	if [ "$code" != "$want" ]; then
		echo "demo: exit code $code, not $want" >&2
		touch "$failed"
	fi
}

settled() {
	status=$("$pfar" status --json 2>/dev/null) || return 1
	case $status in *'"starting"'*) return 1 ;; *'"running"'*) return 0 ;; esac
	return 1
}

calls() {
	tries=0
	until settled; do
		tries=$((tries + 1))
		if [ $tries -gt 3000 ]; then
			echo "demo: the servers did not start" >&2
			touch "$failed"
			break
		fi
		sleep 0.1
	done
	title "The tools of all servers"
	run 0 tools
	title "A call"
	run 0 call everything.echo --message "hello from a sandbox"
	title "Calls that make a server try what it did not declare"
	run 3 call everything.gzip-file-as-resource --data https://example.com/
	run 0 call intruder.attack --name proxy-connect --target example.com:443
	run 0 call intruder.attack --name read --target /etc/shadow
	run 0 status intruder
	if [ "${ONCE:-}" = 1 ]; then
		kill -INT "$(cat "$PFAR_RUN_DIR/demo-pid")"
		return
	fi
	title "Up until Ctrl-C"
	echo "From another terminal: PFAR_RUN_DIR=$PFAR_RUN_DIR $pfar status"
}

calls &
code=0
sh -c 'echo $$ >"$PFAR_RUN_DIR/demo-pid"; exec "$@"' sh "$pfar" up "$declarations" --servers "$servers" --listen "${LISTEN:-127.0.0.1:7417}" || code=$?
wait
[ ! -e "$failed" ] || code=1
exit "$code"
