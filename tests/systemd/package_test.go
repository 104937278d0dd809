package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/tests/packaged"
	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// Where machines of the tests of packages find them, and which versions: each is the next one's past.
const (
	packages   = "/root/packages"
	oldVersion = "0.1.0~test"
	newVersion = "0.1.0"
	fromNPM    = programs + "/npm"                   // the servers of README's example, which no other user may write
	asReleased = "pfar_" + newVersion + "_amd64.deb" // as README names it
	made       = packages + "/made"                  // what make install has written
)

// bare boots a machine that has the packages and not pfar.
func bare(t testing.TB) *bed.Machine {
	t.Helper()
	b, err := withPackages()
	if err != nil {
		t.Fatal(err)
	}
	return b.Boot(t)
}

var withPackages = sync.OnceValues(func() (*bed.Bed, error) {
	var more []string
	if !testing.Short() { // they take another root file system, with perl
		more = []string{"needrestart", "apparmor"}
	}
	return bed.Open(context.Background(), cache+"-bare", func(ctx context.Context, dir string) error {
		own := append(slices.Clone(goBuild), "-o", filepath.Join(dir, programs)+"/", "./tests/echo", "./tests/hostile")
		if err := command(ctx, []string{"CGO_ENABLED=0"}, "go", own...); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(dir, packages), 0o755); err != nil {
			return err
		}
		errs := []error{bringServers(ctx, dir, fromNPM), madeByMake(ctx, dir+made)}
		if !testing.Short() {
			errs = append(errs, packageBefore(ctx, dir+packages))
		}
		formats := []string{"deb"}
		for _, pm := range managers() {
			formats = append(formats, pm.format)
			errs = append(errs, pm.bring(ctx, dir))
		}
		for _, format := range formats {
			errs = append(errs, packed(ctx, format, oldVersion, dir+packages), packed(ctx, format, newVersion, dir+packages))
		}
		return errors.Join(append(errs, os.Link(filepath.Join(dir, packages, newVersion+".deb"), filepath.Join(dir, packages, asReleased)))...)
	}, more...)
})

// packed makes the package of a version, with options for make.
func packed(ctx context.Context, format, version, to string, options ...string) error {
	p := packaged.Package{Format: format, Arch: runtime.GOARCH, Version: version, Options: options}
	return packaged.Make(ctx, root, p, filepath.Join(to, version+"."+format))
}

// madeByMake has make install write into a directory, with the programs of the packages.
func madeByMake(ctx context.Context, to string) error {
	return packaged.In(root, newVersion, func(dir string) error {
		return command(ctx, nil, "make", "--no-print-directory", "-C", root, "install", "DESTDIR="+to, "VERSION="+newVersion,
			packaged.NoVCS, "BIN="+dir+"/packages.work/"+runtime.GOARCH)
	})
}

// traces lists what a package could leave on a machine, a line each.
const traces = `set +e; find /etc /usr /var /opt /srv /home /root \( -path /root/packages -o -path ` + programs + ` -o -path /var/log -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/tmp \) -prune -o -printf '%y %m %u:%g %p %l\n'
find /run \( -path /run/systemd -o -path /run/udev -o -path /run/user -o -path /run/log -o -path /run/credentials \) -prune -o -printf '%y %m %u:%g %p\n'
find /run -name '*pfar*' -printf '%y %m %u:%g %p\n'; getent passwd; getent group
nft list tables; find /sys/fs/cgroup -type d -name '*pfar*'; grep -o '[^ ]*pfar[^ ]*$' /proc/net/unix; grep -o '0100007F:[0-9A-F]* 00000000:0000 0A' /proc/net/tcp
systemctl list-unit-files --no-legend 'pfar*'; systemctl list-units --all --plain --no-legend 'pfar*'; pgrep -l '^pfar'; true`

// own are files that change whatever is installed: copies, locks and stamps of systemd's, rpm's and the shadow suite's,
// and directories that a distribution has for everybody.
var own = regexp.MustCompile(` /etc/(passwd-|group-|shadow-|gshadow-|subuid-|subgid-|\.pwd\.lock)|` +
	` /var/lib/(systemd/(timers|catalog|random-seed|linger|coredump|rfkill|backlight|credential.secret|deb-systemd-[a-z-]*)|rpm|pacman|apk|apt|private|dbus)\b|/__pycache__|ldconfig|` +
	` /run/needrestart\b| /etc/credstore\.encrypted $| /run/private$| /root/\.rpmdb| /usr/(lib/modules-load\.d|share/(man/man[1578]|licenses)) $`)

func trace(t *testing.T, m *bed.Machine) []string {
	t.Helper()
	lines := strings.Split(m.Shell(t, traces), "\n")
	return slices.DeleteFunc(lines, own.MatchString)
}

// remains are the lines that are new; whatever is gone is an error.
func remains(t *testing.T, when string, before, now []string) (list []string) {
	t.Helper()
	for _, line := range before {
		if !slices.Contains(now, line) {
			t.Errorf("%s, this is gone: %s", when, line)
		}
	}
	for _, line := range now {
		if !slices.Contains(before, line) {
			list = append(list, line)
		}
	}
	return list
}

// stays is what a package leaves when it is removed and not purged: conffiles, what pfar knows, who it is, and which
// units are enabled: links that lead nowhere.
var stays = regexp.MustCompile(` /etc/(pfar|needrestart|credstore\.encrypted)\b| /etc/systemd/[^ ]*(pfar|sockets\.target\.wants $)|not-found inactive dead| /var/lib/pfar\b|^pfar(-launcher|-console|-admin)?:x:`)

// calls has a client call a server until the file /var/tmp/enough is there. Each answer is its own question's.
const calls = `while [ ! -e /var/tmp/enough ]; do n=$((n + 1)); out=$(pfar call hello.echo --message "question-$n-" 2>&1) && case $out in
*question-$n-*) echo right >>/var/tmp/answers ;; *) echo "WRONG, to $n: $out" >>/var/tmp/answers ;; esac || echo "broken: $out" >>/var/tmp/answers; done`

// TestPackage takes a machine through the life of the .deb: installation, upgrade and downgrade with calls in flight,
// removal with a bridge open, installation once more, purge.
func TestPackage(t *testing.T) {
	t.Parallel()
	m := bare(t)
	o := settle(t, m, "user", 1000)
	m.Run(t, "systemctl", "start", "user@1000")
	before := trace(t, m)
	dpkg := func(args ...string) string {
		t.Helper()
		out := m.Shell(t, "exec 2>&1; export DEBIAN_FRONTEND=noninteractive; dpkg "+strings.Join(args, " "))
		t.Logf("dpkg %q:\n%s", args, out)
		return out
	}
	old, next := packages+"/"+oldVersion+".deb", packages+"/"+newVersion+".deb"

	dpkg("-i", old)
	if v := m.Run(t, "pfar", "version"); !strings.Contains(v, oldVersion+",") {
		t.Errorf("the version is %s", v)
	}
	m.Run(t, "systemctl", "is-active", "pfar.target", "pfard.service", "pfar-gateway-http.socket")
	m.Run(t, "systemctl", "is-enabled", "pfar.target", "pfard.service")
	for _, socket := range []string{"pfar-gateway-metrics.socket", "pfar-console.socket"} {
		if r := m.Try("systemctl", "is-enabled", socket); r.Stdout != "disabled\n" {
			t.Errorf("%s, which nobody has enabled: %s", socket, r)
		}
	}
	o.Run(t, "systemctl", "--user", "daemon-reload")
	if r := o.Try("systemctl", "--user", "is-enabled", "pfar.target"); r.Stdout != "disabled\n" {
		t.Errorf("a user's pfar.target: %s", r)
	}
	m.Run(t, "systemd-run", "--quiet", "--unit=far", "systemd-socket-activate", "-l", "127.0.0.1:7777", "-a", "--inetd", "cat")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo("allowed_domains = [\"127.0.0.1:7777\"]\n"), 0o644)
	becomes(t, m, "hello", control.Running)
	o.Run(t, "systemctl", "--user", "enable", "--now", "--quiet", "pfar.target")
	o.declare(t, "mine.hcl", echo(""))
	becomes(t, o, "mine", control.Running)
	if r := m.Feed("secret", "pfar", "vault", "set", "token"); r.Code != 0 {
		t.Fatalf("pfar vault set: %s", r)
	}

	upgraded(t, m, o, func() {
		if out := dpkg("-i", next); strings.Count(out, "pfar status names them") != 1 {
			t.Error("the package does not say once that servers keep their launchers")
		}
	}, newVersion)
	outdated(t, m)
	upgraded(t, m, o, func() { dpkg("-i", "--force-downgrade", old) }, oldVersion)
	m.Shell(t, gone)
	otherSockets(t, m, o, func() {
		dpkg("--unpack", next)
		m.Run(t, "systemctl", "daemon-reload") // for another package
		dpkg("--configure", "pfar")
	})
	if r := m.Try("systemctl", "is-active", "pfar-gone.socket"); r.Stdout != "inactive\n" {
		t.Errorf("a socket that the new version does not have: %s", r)
	}

	m.Run(t, "systemctl", "disable", "--quiet", "pfar.target")
	m.Run(t, "systemctl", "mask", "--quiet", "pfar-gateway-http.socket")
	otherLauncher(t, m, o, func() { dpkg("-i", next) })
	if r := m.Try("systemctl", "is-enabled", "pfar.target", "pfar-gateway-http.socket"); r.Stdout != "disabled\nmasked\n" {
		t.Errorf("an upgrade enables what an administrator had disabled and masked: %s", r)
	}
	m.Run(t, "systemctl", "unmask", "--quiet", "pfar-gateway-http.socket")
	m.Run(t, "systemctl", "enable", "--quiet", "pfar.target")
	removed(t, m, before, dpkg)

	dpkg("-i", next)
	becomes(t, m, "hello", control.Running)
	if r := m.Try("pfar", "vault", "list"); !strings.Contains(r.Stdout, "token") {
		t.Errorf("installed again, the vault has: %s", r)
	}
	m.Run(t, "systemctl", "stop", "far")
	out := dpkg("--purge", "pfar")
	o.Run(t, "sh", "-euc", "test -s ~/.config/pfar/mcp.d/mine.hcl; test -d ~/.local/state/pfar/vault") // theirs
	o.Run(t, "sh", "-c", "rm -r ~/.config ~/.local ~/.cache || :")
	if said := strings.Index(out, "pfar vault export"); said < 0 || said > strings.Index(out, "Purging") {
		t.Errorf("the purge does not say first that the vault is lost:\n%s", out)
	}
	if list := remains(t, "purged", before, trace(t, m)); len(list) != 0 {
		t.Errorf("purged, the package leaves\n%s", strings.Join(list, "\n"))
	}
}

// written is what bash says of a program that pacman is writing: it does not rename new files into place.
const written = "broken: sh: line 1: /usr/bin/pfar: Text file busy\n"

// upgraded wants the processes of servers to go on and no answer to be wrong, while another version is installed.
func upgraded(t *testing.T, m *bed.Machine, o owner, install func(), version string) {
	t.Helper()
	server, mine := pid(t, m, "pfar-mcp@hello"), o.pid(t, "pfar-mcp@mine")
	daemon, theirs := pid(t, m, "pfard"), o.pid(t, "pfard")
	m.Shell(t, "rm -f /var/tmp/enough /var/tmp/answers; : >/var/tmp/answers")
	client := m.Command(t.Context(), "sh", "-c", calls)
	m.Go(t, client)
	some := func() {
		t.Helper()
		had := m.Read(t, "/var/tmp/answers")
		bed.Eventually(t, soon, func() error {
			if n := strings.Count(strings.TrimPrefix(m.Read(t, "/var/tmp/answers"), had), "right"); n < 2 {
				return fmt.Errorf("%d answers", n)
			}
			return nil
		})
	}
	some()
	clients := talk(t, m)
	install()
	some()
	clients.more(t)
	clients.hold(t, version)
	m.Shell(t, ": >/var/tmp/enough")
	_ = client.Wait()
	answers := strings.ReplaceAll(m.Read(t, "/var/tmp/answers"), written, "")
	if strings.Contains(answers, "WRONG") || strings.Count(answers, "broken") > 1 {
		t.Errorf("%s, while calls went on:\n%s", version, answers)
	}
	if v := m.Run(t, "pfar", "version"); !strings.Contains(v, version+",") {
		t.Errorf("the version is %s, want %s", v, version)
	}
	if now := pid(t, m, "pfar-mcp@hello"); now != server {
		t.Errorf("%s: the server's process was %s and is %s", version, server, now)
	}
	if now := o.pid(t, "pfar-mcp@mine"); now != mine {
		t.Errorf("%s: the process of the user's server was %s and is %s", version, mine, now)
	}
	if pid(t, m, "pfard") == daemon || o.pid(t, "pfard") == theirs {
		t.Errorf("%s: pfard of the version before runs on", version)
	}
	if text := m.Run(t, "pfar", "status", "--json"); !strings.Contains(text, `"`+version+`"`) {
		t.Errorf("pfard does not say that it is %s: %s", version, text)
	}
	becomes(t, o, "mine", control.Running)
	if s := becomes(t, m, "hello", control.Running); !strings.Contains(s.Detail, "pfar is "+version+": pfar restart hello") {
		t.Errorf("pfar status does not say that the launcher is older: %q", s.Detail)
	}
}

// removed removes the package while a server has a connection open through its bridge.
func removed(t *testing.T, m *bed.Machine, before []string, dpkg func(...string) string) {
	t.Helper()
	open := connected(t, m, "hello", "127.0.0.1:7777")
	dpkg("--remove", "pfar")
	_ = open.Wait()
	list := slices.DeleteFunc(remains(t, "removed", before, trace(t, m)), func(line string) bool {
		return stays.MatchString(line) || strings.Contains(line, " /home/user/") || strings.Contains(line, "0100007F:1E61 ")
	})
	if len(list) != 0 {
		t.Errorf("removed, the package leaves\n%s", strings.Join(list, "\n"))
	}
}

// TestRollback interrupts an upgrade. Where dpkg has replaced only some files, the next boot restores the version before;
// where it has replaced all, it keeps the next one. tests/vm has the same with a power cut.
func TestRollback(t *testing.T) {
	t.Parallel()
	m := bare(t)
	m.Run(t, "dpkg", "-i", packages+"/"+oldVersion+".deb")
	interrupt := func(status, files string) string {
		t.Helper()
		return m.Shell(t, `cd /root; /usr/lib/pfar/rollback keep
dpkg-deb --fsys-tarfile `+packages+"/"+newVersion+`.deb | tar -x -C / `+files+`
: >/usr/lib/systemd/system/pfar-later.service
: >/usr/lib/pfar/pfard.dpkg-new
sed -i '/^Package: pfar$/,/^$/s/^Status: .*/Status: install `+status+`/' /var/lib/dpkg/status
/usr/bin/pfar version
systemctl start pfar-rollback.service
journalctl --sync
journalctl --quiet --boot --output=cat --unit=pfar-rollback.service`)
	}
	// What differs from the package's files, and what is not in the package.
	const files = `cd /; grep -h ' usr/' /var/lib/dpkg/info/pfar.md5sums | md5sum --check --quiet 2>&1
find /usr -xdev -name '*pfar-kept' -o -name '*.dpkg-new' -o -name pfar-later.service -o -name 'pfar-previous*'`
	said := interrupt("reinstreq half-installed", "./usr/bin ./usr/lib/pfar")
	if !strings.HasPrefix(said, "pfar "+newVersion+",") || !strings.Contains(said, "restored the version before it") {
		t.Errorf("half installed: %s", said)
	}
	r := m.Try("sh", "-c", files)
	if v := m.Run(t, "pfar", "version"); r.Stdout != "" || !strings.HasPrefix(v, "pfar "+oldVersion+",") {
		t.Errorf("restored, the version is %s, and files differ from the package's:\n%s", v, r)
	}
	m.Run(t, "dpkg", "-i", packages+"/"+oldVersion+".deb")
	said = interrupt("ok unpacked", ".")
	v := m.Run(t, "pfar", "version")
	if !strings.HasPrefix(v, "pfar "+newVersion+",") || strings.Count(said, "restored") != 1 { // by the boot before
		t.Errorf("unpacked, the version is %s: %s", v, said)
	}
	m.Run(t, "dpkg", "-i", packages+"/"+newVersion+".deb")
	m.Run(t, "systemctl", "is-active", "pfard.service")
}

// TestPackageWithoutSystemd installs, removes and purges where systemd does not run, as in a chroot or while an image
// is made.
func TestPackageWithoutSystemd(t *testing.T) {
	t.Parallel()
	m := bare(t)
	out := m.Shell(t, `exec 2>&1; mkdir /mnt/root; cp -a /bin /etc /lib* /sbin /usr /var /mnt/root; mkdir -p /mnt/root/dev /mnt/root/proc /mnt/root/run /mnt/root/tmp /mnt/root/root
cp /root/packages/`+newVersion+`.deb /mnt/root/root/p.deb
for do in "-i /root/p.deb" "-i /root/p.deb" "--remove pfar" "-i /root/p.deb" "--purge pfar"; do chroot /mnt/root dpkg $do; done`)
	if !strings.Contains(out, "starts with the next boot") {
		t.Errorf("nobody says that pfar does not run:\n%s", out)
	}
	if r := m.Try("sh", "-c", "find /mnt/root -name '*pfar*' ! -path '*/var/log/*' ! -path '*/usr/local/*'; grep pfar /mnt/root/etc/passwd /mnt/root/etc/group"); r.Stdout != "" {
		t.Errorf("in the chroot is left:\n%s", r.Stdout)
	}
}
