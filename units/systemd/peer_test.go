package systemd

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnitBeside(t *testing.T) {
	const system, user = "0::/pfar.slice/pfard.service\n", "0::/user.slice/user-1000.slice/user@1000.service/pfar.slice/pfard.service\n"
	const hybrid = "4:memory:/\n1:name=systemd:/pfar.slice/pfard.service\n0::/\n"
	for name, c := range map[string]struct{ own, other, want string }{
		"a server's unit":               {system, "0::/pfar.slice/pfar-mcp@a.service\n", "pfar-mcp@a.service"},
		"in another slice":              {system, "0::/system.slice/system-x.slice/pfar-mcp@a.service\n", "pfar-mcp@a.service"},
		"in a container":                {"0::/payload.service/pfar.slice/pfard.service\n", "0::/payload.service/pfar.slice/pfar-mcp@a.service\n", "pfar-mcp@a.service"},
		"of the same user":              {user, "0::/user.slice/user-1000.slice/user@1000.service/app.slice/pfar-mcp@a.service\n", "pfar-mcp@a.service"},
		"by systemd's own hierarchy":    {hybrid, "4:memory:/\n1:name=systemd:/pfar.slice/pfar-mcp@a.service\n0::/\n", "pfar-mcp@a.service"},
		"a unit of root's own manager":  {system, "0::/user.slice/user-0.slice/user@0.service/app.slice/pfar-mcp@a.service\n", ""},
		"of another user":               {user, "0::/user.slice/user-1001.slice/user@1001.service/app.slice/pfar-mcp@a.service\n", ""},
		"the system's, seen by a user":  {user, "0::/pfar.slice/pfar-mcp@a.service\n", ""},
		"a group in a delegated unit":   {system, "0::/system.slice/docker.service/pfar-mcp@a.service\n", ""},
		"a group in a scope":            {system, "0::/system.slice/docker-1.scope/pfar.slice/pfar-mcp@a.service\n", ""},
		"a group in pfard's own unit":   {system, "0::/pfar.slice/pfard.service/pfar-mcp@a.service\n", ""},
		"a group below the unit":        {system, "0::/pfar.slice/pfar-mcp@a.service/x\n", ""},
		"pfard's own unit":              {system, system, "pfard.service"},
		"the root":                      {system, "0::/\n", ""},
		"of another hierarchy":          {system, "5:cpu:/pfar.slice/pfar-mcp@a.service\n", ""},
		"nothing":                       {system, "", ""},
		"where nothing is known of own": {"", "0::/pfar.slice/pfar-mcp@a.service\n", ""},
	} {
		if got, ok := unitBeside(c.own, c.other); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %t, want %q", name, got, ok, c.want)
		}
	}
}

// TestPeerUnit looks at this process itself, and at one that is not.
func TestPeerUnit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := unitBeside(string(text), string(text))
	if got, err := PeerUnit(c, os.Getpid()); got != want || (err == nil) != (want != "") {
		t.Errorf("this process: %q, %v, want %q", got, err, want)
	}
	if got, err := PeerUnit(c, 1<<30); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a process that is not there: %q, %v", got, err)
	}
}
