#!/bin/sh
# Installs the Debian packages of the commands that are named and missing: setup.sh COMMAND...
# "postgres" is PostgreSQL's server, without a cluster of its own, and "requests" the library of Debian's python3.
set -eu

# have reports whether a command, or what goes by that word, is there.
have() {
	case $1 in
	chromium) [ -x /usr/lib/chromium/chromium ] ;;
	postgres) ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 ;;
	nspawn) command -v systemd-nspawn >/dev/null ;;
	venv) /usr/bin/python3 -c "import ensurepip" >/dev/null 2>&1 ;;
	requests) /usr/bin/python3 -c 'import requests' >/dev/null 2>&1 ;;
	# An ordinary user's PATH lacks the directories of nft and ip on Debian.
	*) PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ;;
	esac
}

exec 9<"$0" # apt-get does not wait for another
flock 9

packages=
for command in "$@"; do
	case $command in
	bwrap) package=bubblewrap ;;
	ip) package=iproute2 ;;
	nft) package=nftables ;;
	gcc) package="gcc libc6-dev" ;;
	node) package=nodejs ;;
	nspawn) package=systemd-container ;;
	postgres) package=postgresql ;;
	qemu-aarch64-static) package=qemu-user-static ;;
	qemu-system-x86_64) package=qemu-system-x86 ;;
	man) package=man-db ;;
	mke2fs) package=e2fsprogs ;;
	mkfs.btrfs) package=btrfs-progs ;;
	dpkg-deb) package=dpkg ;;
	pacman) package=pacman-package-manager ;;
	requests) package=python3-requests ;;
	venv) package=python3-venv ;;
	Xtigervnc) package=tigervnc-standalone-server ;;
	*) package=$command ;;
	esac
	if ! have "$command"; then
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
case $packages in
*postgresql*) # the package would make a cluster and start it
	$as_root mkdir -p /etc/postgresql-common
	[ -e /etc/postgresql-common/createcluster.conf ] ||
		echo "create_main_cluster = false" | $as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
	;;
esac
case $packages in
*nginx*) # the package would start it, now and at each boot
	$as_root mkdir -p /etc/systemd/system
	[ -e /etc/systemd/system/nginx.service ] || $as_root ln -s /dev/null /etc/systemd/system/nginx.service
	if ! [ -e /usr/sbin/policy-rc.d ]; then
		trap '$as_root rm -f /usr/sbin/policy-rc.d' EXIT
		printf '#!/bin/sh\nexit 101\n' | $as_root tee /usr/sbin/policy-rc.d >/dev/null
		$as_root chmod 755 /usr/sbin/policy-rc.d
	fi
	;;
esac
$as_root apt-get update -qq
# shellcheck disable=SC2086 # a list of words
$as_root apt-get install -qq -y --no-install-recommends -o Dpkg::Options::=--force-confold $packages
