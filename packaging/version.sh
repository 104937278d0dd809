#!/bin/sh
# Prints what this tree is: version.sh RELEASE. A tag vX.Y.Z is X.Y.Z; every other commit is a step towards RELEASE, which dpkg
# and rpm sort before it (~).
set -eu

if ! commit=$(TZ=UTC git log -1 --abbrev=7 --date=format-local:%Y%m%d --format=%cd.%h 2>/dev/null); then
	echo "$1~devel"
elif tag=$(git describe --exact-match --tags --match 'v[0-9]*' HEAD 2>/dev/null) && git diff --quiet HEAD; then
	echo "${tag#v}"
elif git diff --quiet HEAD; then
	echo "$1~git$commit"
else
	echo "$1~git$commit.dirty"
fi
