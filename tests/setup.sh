#!/bin/sh
# Installs the Debian packages of the commands that are named and missing: setup.sh COMMAND...
set -eu

packages=
for command in "$@"; do
	case $command in
	bwrap) package=bubblewrap ;;
	ip) package=iproute2 ;;
	nft) package=nftables ;;
	gcc) package="gcc libc6-dev" ;;
	node) package=nodejs ;;
	*) package=$command ;;
	esac
	# An ordinary user's PATH lacks the directories of nft and ip on Debian.
	if ! PATH=$PATH:/usr/sbin:/sbin command -v "$command" >/dev/null; then
		packages="$packages $package"
	elif [ "$command" = node ] && [ "$(node -p 'parseInt(process.versions.node)')" -lt 18 ]; then
		packages="$packages $package"
	fi
done
[ -n "$packages" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "setup.sh: please install what these Debian packages hold:$packages" >&2
	exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "setup.sh: as root, please: apt-get install$packages" >&2
		exit 1
	fi
	as_root=sudo
fi
echo "installing$packages"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$as_root apt-get install -qq -y --no-install-recommends $packages
