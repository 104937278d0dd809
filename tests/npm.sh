#!/bin/sh
# Installs npm packages: npm.sh DIRECTORY PACKAGE.JSON [PACKAGE-LOCK.JSON]. Install scripts are not run: none of them needs any.
# Each version is installed once for all clones of this repository, which have hard links to its files.
set -eu
directory=$1 package=$2 lock=${3-}
"$(dirname "$0")/setup.sh" node npm

cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/pfar-test/npm
version=$cache/$(cat "$package" ${lock:+"$lock"} | sha256sum | cut -c 1-16)
mkdir -p "$cache" "$(dirname "$directory")"
exec 9>"$version.lock" # another clone may be installing it
flock 9
if [ ! -d "$version" ]; then
	rm -rf "$version".new.*
	new=$(mktemp -d "$version.new.XXXXXX")
	chmod 755 "$new"
	cp "$package" "$new/package.json"
	how=install
	[ -z "$lock" ] || { how=ci && cp "$lock" "$new/package-lock.json"; }
	(cd "$new" && npm "$how" --ignore-scripts --no-audit --no-fund --loglevel=error)
	mv "$new" "$version"
fi
touch "$version"
rm -rf "$directory"
# On another file system there are copies.
cp -al "$version" "$directory" 2>/dev/null || { rm -rf "$directory" && cp -a "$version" "$directory"; }
# Other clones keep their links to what nobody has asked for in a week.
find "$cache" -mindepth 1 -maxdepth 1 -mtime +7 -exec rm -rf {} +
