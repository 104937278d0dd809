package systemd

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/packaged"
	"github.com/pfar/pfar/tests/systemd/bed"
	"github.com/pfar/pfar/units/control"
)

// beforeVersion sorts before those of the other packages, whatever the version is that was released.
const beforeVersion = "0.0.0~before"

// packageBefore makes the .deb of the version before this one.
func packageBefore(ctx context.Context, to string) error {
	p := packaged.Package{Format: "deb", Arch: runtime.GOARCH, Version: beforeVersion}
	return packaged.Before(ctx, root, "testdata/before.txt", p, filepath.Join(to, beforeVersion+".deb"))
}

// TestTheVersionBefore upgrades from the programs of the version before, and back. Servers that one version started go on
// under the pfard and the gateway of the other, which serve, show, log, rotate, stop and restart them.
func TestTheVersionBefore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("NOT RUN in short: programs of the version before are built of its sources")
	}
	m := bare(t)
	o := settle(t, m, "user", 1000)
	secure(t, m)
	dpkg := func(version string) {
		t.Helper()
		t.Logf("dpkg, %s:\n%s", version, m.Shell(t, "exec 2>&1; dpkg -i --force-downgrade "+packages+"/"+version+".deb"))
	}
	dpkg(beforeVersion)
	o.Run(t, "systemctl", "--user", "daemon-reload")
	o.Run(t, "systemctl", "--user", "enable", "--now", "--quiet", "pfar.target")
	o.declare(t, "mine.hcl", echo(""))
	m.Put(t, "/etc/pfar/mcp.d/hello.hcl", echo(""), 0o644)
	m.Put(t, "/etc/pfar/mcp.d/brokered.hcl", fmt.Sprintf(`label = "internal"
allowed_domains = ["api.allowed.example"]
auth = { TOKEN = { secret = "vault:planted", deliver = "broker" } }
server {
  command = %q
}
`, programs+"/hostile"), 0o644)
	becomes(t, m, "brokered", control.Waiting)
	if r := m.Feed("ghp_"+rand.Text()+"\n", "pfar", "vault", "set", "planted"); r.Code != 0 {
		t.Fatalf("storing the secret: %s", r)
	}
	names := []string{"hello", "brokered"}
	for _, version := range []string{newVersion, beforeVersion} {
		for _, name := range names {
			becomes(t, m, name, control.Running)
		}
		becomes(t, o, "mine", control.Running)
		brokered(t, m, "before "+version)
		open := connected(t, m, "brokered", "api.allowed.example:443")
		upgraded(t, m, o, func() { dpkg(version) }, version)
		if err := open.Process.Kill(); err != nil { // it went on until now
			t.Errorf("%s: the connection through the bridge: %v", version, err)
		}
		_ = open.Wait()
		under(t, m, version)
		for _, name := range names {
			m.Run(t, "pfar", "restart", name)
			if s := becomes(t, m, name, control.Running); strings.Contains(s.Detail, "pfar restart") {
				t.Errorf("%s: %s was to get the launcher of this version: %s", version, name, s.Detail)
			}
		}
		o.Run(t, "systemctl", "--user", "restart", "pfar-mcp@mine")
		brokered(t, m, "restarted by "+version)
	}
}

// under has pfard and the gateway of a version do with servers of the other all that they do with their own.
func under(t *testing.T, m *bed.Machine, version string) {
	t.Helper()
	servers := func() string { return pid(t, m, "pfar-mcp@hello") + " " + pid(t, m, "pfar-mcp@brokered") }
	before := servers()
	brokered(t, m, "under "+version)
	if r := m.Feed("ghp_"+rand.Text()+"\n", "pfar", "vault", "rotate", "planted"); r.Code != 0 {
		t.Errorf("%s: rotating the secret: %s", version, r)
	}
	brokered(t, m, "rotated by "+version)
	if out := m.Run(t, "pfar", "egress", "brokered"); !strings.Contains(out, "api.allowed.example") {
		t.Errorf("%s: pfar egress shows %q", version, out)
	}
	if now := servers(); now != before {
		t.Errorf("%s: the processes of servers were %s and are %s", version, before, now)
	}
	if out := m.Run(t, "pfar", "logs", "hello"); out == "" {
		t.Errorf("%s: no logs", version)
	}
	m.Run(t, "pfar", "stop", "hello")
	becomes(t, m, "hello", control.Stopped)
	m.Run(t, "pfar", "start", "hello")
	becomes(t, m, "hello", control.Running)
	m.Shell(t, `pfar call hello.echo --message "started again" | grep -q "started again"`)
}

// brokered has a server use a secret that its bridge puts into the request.
func brokered(t *testing.T, m *bed.Machine, when string) {
	t.Helper()
	const fetch = `{"method": "GET", "url": "https://api.allowed.example/", "headers": {"Authorization": "Bearer $TOKEN"}}`
	r := m.Feed(fetch, "pfar", "call", "brokered.fetch", "--json", "-")
	if !strings.Contains(r.Stdout, "hello from api.allowed.example") {
		t.Errorf("%s, a brokered call: %s", when, r)
	}
}
