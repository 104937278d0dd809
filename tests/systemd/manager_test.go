package systemd

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// manager is a package manager other than dpkg, which has no purge. A machine has a copy of the host's program.
type manager struct {
	format, program            string
	config                     string // of the machine, before the program runs first
	run                        string // the program with its libraries, beside which it lies
	install, downgrade, remove string // arguments
	installed                  string // how rollback(1) asks for the version
}

// managers are those of which make test has rpm(8) alone: all of them have the scripts of the rpm.
func managers() []manager {
	rpm := manager{
		format: "rpm", program: "rpm", run: "RPM_CONFIGDIR=$PWD/config exec ./ld-linux* --library-path $PWD ./rpm",
		install: "-U --nodeps", downgrade: "-U --nodeps --oldpackage",
		remove: "-e --nodeps pfar", installed: "--query pfar",
	}
	if testing.Short() {
		return []manager{rpm}
	}
	return []manager{rpm, {
		// Arch's sh is bash, and pacman's functions want it.
		format: "archlinux", program: "pacman", run: "exec ./ld-linux* --library-path $PWD ./pacman",
		config: `ln -sf bash /bin/sh; mkdir -p /var/lib/pacman /var/cache/pacman/pkg
printf '[options]\nArchitecture = auto\n' >/etc/pacman.conf`,
		install: "-U -dd --noconfirm", downgrade: "-U -dd --noconfirm",
		remove: "-R -dd --noconfirm pfar", installed: "--query pfar",
	}, {
		format: "apk", program: "apk", run: "exec sh ./apk.sh",
		install: "add", downgrade: "add", remove: "del pfar", installed: "list --installed pfar",
	}}
}

func (pm manager) dir() string { return "/usr/local/lib/pfar-" + pm.program }

// bring copies the program, the libraries that it loads and what it is configured by. Debian's package of rpm would take
// perl and a compiler's tools along.
func (pm manager) bring(ctx context.Context, dir string) error {
	const script = `mkdir -p "$1" && here=$PWD && cd "$1"
case $2 in
apk) exec cp "$here/testdata/apk.sh" . ;;
rpm) mkdir -p config && cp /usr/lib/rpm/rpmrc /usr/lib/rpm/macros config ;;
esac
cp "$(command -v $2)" .
ldd $2 | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[ \t]*\(\/[^ ]*\) (.*/\1/p' | xargs cp -L -t .`
	return command(ctx, nil, "sh", "-euc", script, "sh", filepath.Join(dir, pm.dir()), pm.program)
}

// settle puts the program in its place, and has it make its database.
func (pm manager) settle(t *testing.T, m *bed.Machine) {
	t.Helper()
	m.Put(t, "/usr/local/bin/"+pm.program, "#!/bin/sh\ncd "+pm.dir()+"\n"+pm.run+` "$@"`+"\n", 0o755)
	m.Shell(t, ": >/usr/share/doc/.keep; : >/usr/share/man/.keep") // of other packages, which the image has not
	m.Shell(t, pm.config+"\n"+pm.program+" "+pm.installed+" >&2 || :")
}

// TestRPM takes machines through the life of the packages that are not for dpkg. Each has the scripts of the rpm.
func TestRPM(t *testing.T) {
	t.Parallel()
	for _, pm := range managers() {
		t.Run(pm.program, func(t *testing.T) {
			t.Parallel()
			pm.life(t)
		})
	}
}

func (pm manager) life(t *testing.T) {
	m := bare(t)
	o := settle(t, m, "user", 1000)
	pm.settle(t, m)
	manage := func(args ...string) string {
		t.Helper()
		out := m.Shell(t, "exec 2>&1; exec "+pm.program+" "+strings.Join(args, " "))
		t.Logf("%s %q:\n%s", pm.program, args, out)
		return out
	}
	before := trace(t, m)
	old, next := packages+"/"+oldVersion+"."+pm.format, packages+"/"+newVersion+"."+pm.format
	manage(pm.install, old)
	m.Run(t, "systemctl", "is-active", "pfar.target", "pfard.service", "pfar-gateway-http.socket")
	m.Run(t, "systemctl", "is-enabled", "pfar.target", "pfard.service")
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	becomes(t, m, "hello", control.Running)
	o.Run(t, "systemctl", "--user", "daemon-reload")
	o.Run(t, "systemctl", "--user", "enable", "--now", "--quiet", "pfar.target")
	o.declare(t, "mine.hcl", echo(""))
	becomes(t, o, "mine", control.Running)
	upgraded(t, m, o, func() {
		if out := manage(pm.install, next); strings.Contains(out, "downgrading") {
			t.Errorf("%s sorts the version before behind its release", pm.program)
		}
	}, newVersion)
	upgraded(t, m, o, func() { manage(pm.downgrade, old) }, oldVersion)
	for status, want := range map[string]string{"": "restored", "echo another >/usr/lib/pfar-previous/version": ""} {
		said := m.Shell(t, "/usr/lib/pfar/rollback keep\n"+status+"\n/usr/lib/pfar/rollback restore; ls /usr/lib")
		if strings.Contains(said, "restored") != (want != "") || strings.Contains(said, "pfar-previous") {
			t.Errorf("an upgrade that was interrupted, %q: %s", status, said)
		}
	}
	if pm.program == "pacman" {
		between(t, m)
	}
	otherSockets(t, m, o, func() { manage(pm.install, next) })
	otherLauncher(t, m, o, func() { manage(pm.downgrade, old) })
	manage(pm.remove)
	list := slices.DeleteFunc(remains(t, "removed", before, trace(t, m)), func(line string) bool {
		enabled := strings.Contains(line, " /etc/systemd/") || strings.Contains(line, "not-found")
		return stays.MatchString(line) && !enabled || strings.Contains(line, " /home/user/")
	})
	if len(list) != 0 {
		t.Errorf("removed, the package leaves\n%s", strings.Join(list, "\n"))
	}
}

// between has systemd read its units when pacman has deleted those of one version and not yet written the next.
func between(t *testing.T, m *bed.Machine) {
	t.Helper()
	m.PutFile(t, "/root/preinst", root+"/packaging/preinst", 0o755)
	left := m.Shell(t, `/root/preinst 2
cd /usr/lib/systemd
for scope in system user; do mkdir -p /root/away/$scope; mv $scope/pfar* /root/away/$scope; done
systemctl daemon-reload
for scope in system user; do mv /root/away/$scope/* $scope; done
rm -r /root/away /root/preinst
/usr/lib/pfar/upgrade >&2
systemctl is-active --quiet pfard.service pfar-gateway.service
pfar call hello.echo --message again | grep -q again
find /run/systemd/system /run/systemd/user -maxdepth 1 -type f -name 'pfar*'`)
	if left != "" {
		t.Errorf("an upgrade leaves\n%s", left)
	}
}
