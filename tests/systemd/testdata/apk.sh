#!/bin/sh
# Does what apk(8) does with one package: runs its scripts, unpacks it, deletes what the next version lacks. Debian has no apk.
#   apk add FILE | apk del pfar | apk list --installed pfar
set -eu

db=/var/lib/apk
unpack() { tar --warning=no-unknown-keyword -xzf "$1" -C "$2" "$3" "$4"; }
script() { [ ! -e "$1/.$2" ] || "$1/.$2"; }

case $1 in
list)
	[ ! -e $db/.PKGINFO ] || sed -n 's/^pkgver = \(.*\)/pfar-\1 x86_64 {pfar} (Apache-2.0) [installed]/p' $db/.PKGINFO
	;;
add)
	when=install
	[ ! -e $db/.PKGINFO ] || when=upgrade
	mkdir -p $db $db.new/root
	unpack "$2" $db.new --wildcards '.[Pp]*'
	unpack "$2" $db.new/root --exclude '.[Pp]*'
	tar --warning=no-unknown-keyword -tzf "$2" | sed -n 's/^[^.]/\/&/p' >$db.new/files
	script $db.new pre-$when
	cd $db.new/root
	find . -type d | sed 's/^\.//' | xargs mkdir -p
	find . ! -type d | while read -r file; do mv -fT "$file" "/$file"; done
	rm -r $db.new/root
	[ $when = install ] || grep -Fvx -f $db.new/files $db/files | grep -v '/$' | xargs -r rm -f
	rm -rf $db
	mv $db.new $db
	script $db post-$when
	;;
del)
	script $db pre-deinstall
	grep -v '/$' $db/files | xargs rm -f
	grep '/$' $db/files | sort -r | xargs rmdir --ignore-fail-on-non-empty 2>/dev/null || :
	script $db post-deinstall
	rm -rf $db
	;;
*)
	echo "apk: want add, del or list, not '$1'" >&2
	exit 1
	;;
esac
