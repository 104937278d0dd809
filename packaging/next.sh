#!/bin/sh
# Prints the steps that are left after make install. A package does them itself.
set -eu

lacks() { ! command -v "$1" >/dev/null; }

if lacks bwrap; then
	echo "missing: bubblewrap, 0.8.0 with --bind-fd or later. Without it no server starts."
fi
if lacks nft; then
	echo "missing: nftables. You need it only to look at the rules: nft list table inet pfar"
fi
if ! getent passwd pfar pfar-launcher pfar-console >/dev/null || ! getent group pfar-admin >/dev/null; then
	echo "next: systemd-sysusers, for the users and groups of pfar"
fi
if [ ! -d /var/lib/pfar/vault ]; then
	echo "next: systemd-tmpfiles --create, for the directories below /var/lib/pfar and /run/pfar"
fi
if [ -d /run/pfar-upgrade ] && systemctl --quiet is-active pfar.target; then
	echo "next: /usr/lib/pfar/upgrade, since pfar runs"
elif [ -d /run/systemd/system ]; then
	echo "next: systemctl daemon-reload && systemctl enable --now pfar.target"
else
	echo "systemd is not running here. The service needs it; pfar up works without."
fi
