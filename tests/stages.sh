#!/usr/bin/env bash
# Runs the tests in stages, side by side: what waits leaves the processors to what computes.
#   stages.sh all TARGET...         has make make the targets, each a stage, and sums up how they ended
#   stages.sh run NAME COMMAND...   is one stage: its output goes to build/log/NAME.log
set -uo pipefail
logs=build/log

# run prints what go test says about packages; the rest is in the log.
run() {
	local name=$1 status wall user system
	shift
	mkdir -p "$logs"
	TIMEFORMAT='%R %U %S'
	{ time "$@" >&3 2>&3; } 3>&1 2>"$logs/$name.time" | tee "$logs/$name.log" |
		grep --line-buffered -E '^(ok|FAIL|--- FAIL|panic:|NOT RUN|image |installing)' | grep --line-buffered -v '^FAIL$'
	status=${PIPESTATUS[0]}
	read -r wall user system < <(tail -n 1 "$logs/$name.time")
	rm -f "$logs/$name.time"
	printf '%s %s %.0f %.0f\n' "$name" "$status" "$wall" "$(awk "BEGIN {print $user + $system}")" >"$logs/$name.result"
	[ -n "${PFAR_STAGES-}" ] || summary "$name"
	return "$status"
}

# summary says how each stage ended, and shows the last lines of those that failed. It fails if one did.
summary() {
	local name status wall cpu failed=()
	echo
	for name in "$@"; do
		if read -r name status wall cpu 2>/dev/null <"$logs/$name.result"; then
			printf '%-14s %-6s %4d s, %4d s of processor\n' "$name" "$([ "$status" = 0 ] && echo ok || echo FAILED)" "$wall" "$cpu"
			[ "$status" = 0 ] || failed+=("$name")
		else
			printf '%-14s FAILED before it began; see above\n' "$name"
			failed+=("$name")
		fi
	done
	for name in ${failed[@]+"${failed[@]}"}; do
		[ -e "$logs/$name.result" ] || continue
		printf '\n==> %s: the end of %s <==\n' "$name" "$logs/$name.log"
		sed -n '/^panic: test timed out/,/^$/p' "$logs/$name.log" | head -n 20 # which test hung: its stack is long
		# What each failed test said first, since the programs' logs follow and fill the end.
		grep -E -A 5 '^ *--- FAIL' "$logs/$name.log" | cut -c 1-300 | head -n 60
		printf '...\n'
		grep -vE '^(ok|\?) ' "$logs/$name.log" | tail -n 30 | cut -c 1-300
	done
	[ ${#failed[@]} = 0 ]
}

# all lets every stage end, whatever becomes of the others.
all() {
	local begin=$SECONDS status=0
	rm -rf "$logs"
	PFAR_STAGES=1 MAKEFLAGS='' MFLAGS='' MAKELEVEL='' make --no-print-directory --keep-going --jobs=$(($(nproc) + 1)) "$@" || status=$?
	summary "${@#test-}" || status=1
	printf '%-14s %-6s %4d s\n' "all stages" "$([ "$status" = 0 ] && echo ok || echo FAILED)" $((SECONDS - begin))
	return "$status"
}

"$@"
