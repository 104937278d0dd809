#!/bin/sh
# Builds the homeserver from tests/matrix, and runs a command that uses it: run.sh DIRECTORY COMMAND...
set -eu
mkdir -p "$1"
PFAR_TEST_MATRIX=$(cd "$1" && pwd)
export PFAR_TEST_MATRIX
shift
for program in dendrite generate-keys; do
	(cd tests/matrix && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$PFAR_TEST_MATRIX/" "github.com/element-hq/dendrite/cmd/$program")
done
exec "$@"
