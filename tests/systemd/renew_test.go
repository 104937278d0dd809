package systemd

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/image"
	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// outdated wants needrestart to leave servers alone that run under the launcher of the version before.
func outdated(t *testing.T, m *bed.Machine) {
	t.Helper()
	if testing.Short() {
		t.Log("NOT RUN in short: needrestart, which another image has")
		return
	}
	list := func() string { return m.Run(t, "needrestart", "-b", "-l") }
	if out := list(); strings.Contains(out, "pfar") || !strings.Contains(out, "NEEDRESTART-VER") {
		t.Errorf("after an upgrade needrestart lists\n%s", out)
	}
	const conf = "/etc/needrestart/conf.d/pfar.conf"
	m.Run(t, "mv", conf, "/root/pfar.conf")
	if out := list(); !strings.Contains(out, "pfar-mcp@hello.service") {
		t.Errorf("needrestart does not see the launcher of the version before:\n%s", out)
	}
	m.Run(t, "mv", "/root/pfar.conf", conf)
}

// gone is a socket of the version before, as dpkg knows it, that the next one does not have.
const gone = `cd /usr/lib/systemd/system
printf '[Unit]\nPartOf=pfar-base.service\n[Socket]\nListenStream=/run/pfar/gone.sock\nRemoveOnStop=yes\n' >pfar-gone.socket
printf '[Service]\nExecStart=/bin/true\n' >pfar-gone.service
printf '%s\n' "$PWD/pfar-gone.socket" "$PWD/pfar-gone.service" >>/var/lib/dpkg/info/pfar.list
systemctl daemon-reload; systemctl start pfar-gone.socket`

// was is what the version before said of sockets.
const was = `cd /usr/lib/systemd
sed -i s/^ListenStream=127.0.0.1:7417/ListenStream=127.0.0.1:7418/ system/pfar-gateway-http.socket
sed -i s/^SocketMode=.*/SocketMode=0777/ system/pfard-attach.socket system/pfard-control.socket
sed -i s:/run/pfar/gateway.sock:/run/pfar/clients.sock: system/pfar-gateway.socket
sed -i s/^SocketMode=.*/SocketMode=0660/ user/pfar-operator.socket user/pfar-egress-monitor@.socket
`

// otherSockets wants an upgrade to open the sockets anew that it changes, and no others. Servers run on, but for those
// whose own sockets change.
func otherSockets(t *testing.T, m *bed.Machine, o owner, install func()) {
	t.Helper()
	m.Shell(t, was+`systemctl daemon-reload
systemctl restart pfar-gateway-http.socket pfard-attach.socket pfard-control.socket pfar-gateway.socket`)
	o.Run(t, "systemctl", "--user", "daemon-reload")
	o.Run(t, "systemctl", "--user", "restart", "pfar-operator.socket", "pfar-egress-monitor@mine.socket")
	becomes(t, m, "hello", control.Running)
	becomes(t, o, "mine", control.Running)
	opened := func() string {
		return m.Run(t, "systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "pfar-operator.socket", "pfard-credentials.socket")
	}
	server, mine, others := pid(t, m, "pfar-mcp@hello"), o.pid(t, "pfar-mcp@mine"), opened()
	install()
	becomes(t, m, "hello", control.Running)
	becomes(t, o, "mine", control.Running)
	if now := pid(t, m, "pfar-mcp@hello"); now != server {
		t.Errorf("other sockets: the server's process was %s and is %s", server, now)
	}
	if o.pid(t, "pfar-mcp@mine") == mine {
		t.Error("the socket of a server's bridge has another mode, and the server was not started again")
	}
	if now := opened(); now != others {
		t.Errorf("sockets that did not change were opened at %s, and now at %s", others, now)
	}
	m.Shell(t, `pfar call hello.echo --message "through the socket" | grep -q "through the socket"; test ! -e /run/pfar-upgrade`)
	const modes = `stat -c '%a %n' /run/pfar/attach.sock /run/pfar/control.sock /run/pfar/gateway.sock /run/user/1000/pfar/operator.sock /run/user/1000/pfar/egress/mine.sock
grep -o ' 0100007F:1CF[9A] 00000000:0000 0A' /proc/net/tcp`
	want := `666 /run/pfar/attach.sock
660 /run/pfar/control.sock
600 /run/pfar/gateway.sock
600 /run/user/1000/pfar/operator.sock
600 /run/user/1000/pfar/egress/mine.sock
 0100007F:1CF9 00000000:0000 0A
`
	if got := m.Shell(t, modes); got != want {
		t.Errorf("after an upgrade that changes sockets, they are\n%swant\n%s", got, want)
	}
}

// job is what systemd says of a server's unit, and which server that is.
var job = regexp.MustCompile(`(?m)^(Stopped|Started) .*MCP server ([a-z]+)\.$`)

// otherLauncher wants an upgrade to a launcher with an urgent fix to start the running servers again, one after the
// other.
func otherLauncher(t *testing.T, m *bed.Machine, o owner, install func()) {
	t.Helper()
	m.Put(t, "/etc/pfar/mcp.d/other.hcl", echo(""), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/lazy.hcl", echo("autostart = false\n"), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/poor.hcl", echo("auth = { TOKEN = \"vault:nothing\" }\n"), 0o644)
	becomes(t, m, "other", control.Running)
	becomes(t, m, "lazy", control.Sleeping)
	becomes(t, m, "poor", control.Waiting)
	m.Run(t, "sed", "-i", "s/^launcher=.*/launcher=0/", "/usr/lib/pfar/upgrade")
	mine := o.pid(t, "pfar-mcp@mine")
	journal := func() string { return m.Journal(t, "pfar-mcp@*", "_PID=1") }
	before := journal()
	install()
	becomes(t, m, "poor", control.Waiting)
	becomes(t, o, "mine", control.Running)
	for _, name := range []string{"hello", "other"} {
		if s := becomes(t, m, name, control.Running); strings.Contains(s.Detail, "pfar restart") {
			t.Errorf("%s was to get the new launcher: %s", name, s.Detail)
		}
	}
	if o.pid(t, "pfar-mcp@mine") == mine {
		t.Error("the user's server runs on under the launcher of the version before")
	}
	var got []string
	for _, j := range job.FindAllStringSubmatch(strings.TrimPrefix(journal(), before), -1) {
		got = append(got, j[1]+" "+j[2])
	}
	want := []string{"Stopped hello", "Started hello", "Stopped other", "Started other", "Stopped poor", "Started poor"}
	if !slices.Equal(got, want) {
		t.Errorf("an urgent fix of the launcher does %q, want %q", got, want)
	}
	m.Run(t, "rm", "/etc/pfar/mcp.d/other.hcl", "/etc/pfar/mcp.d/lazy.hcl", "/etc/pfar/mcp.d/poor.hcl")
}

// TestAppArmor has AppArmor's own parser read the profiles that the package has as an example. Debian 12's is older
// than they are.
func TestAppArmor(t *testing.T) {
	t.Parallel()
	suite, err := image.Suite()
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() || suite == "bookworm" {
		t.Skip("NOT RUN in short, nor on Debian 12: apparmor_parser, which another image has")
	}
	m := bare(t)
	m.Run(t, "dpkg-deb", "-x", packages+"/"+newVersion+".deb", "/root/unpacked")
	const file = "/root/unpacked/usr/share/doc/pfar/apparmor"
	if names := m.Run(t, "apparmor_parser", "--names", file); names != "/usr/bin/bwrap\n/usr/lib/pfar/pfar-sandbox\n" {
		t.Errorf("the profiles are\n%s", names)
	}
	parse := []string{"--skip-kernel-load", "--skip-cache", file}
	noKernel := "Cache read/write disabled: interface file missing. (Kernel needs AppArmor 2.4 compatibility patch.)\n"
	if r := m.Try("apparmor_parser", parse...); r.Code != 0 || r.Stdout+strings.TrimPrefix(r.Stderr, noKernel) != "" {
		t.Errorf("AppArmor finds fault with its profiles: %s", r)
	}
	m.Run(t, "sed", "-i", "s/userns,/users,/", file)
	if r := m.Try("apparmor_parser", parse...); r.Code == 0 {
		t.Error("AppArmor finds no fault with broken profiles")
	}
}
