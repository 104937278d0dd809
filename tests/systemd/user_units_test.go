package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/tests/systemd/bed"
)

// TestUserUnitsVerify has a user's systemd find fault with the units as they are installed.
func TestUserUnitsVerify(t *testing.T) {
	t.Parallel()
	o := settle(t, machines.Boot(t), "user", 1000)
	r := o.Try("systemd-analyze", append([]string{"--user", "verify", "--man=no"}, instances(t, "user")...)...)
	if r.Code != 0 || r.Stdout+r.Stderr != "" {
		t.Error(r)
	}
	o.m.Shell(t, "cd /usr/lib/systemd/user; sed -i s/PrivateUsers=/PrivateUser=/ pfar-egress@.service; sed -i /Listen/d pfar-gateway.socket")
	for _, unit := range []string{"pfar-egress@notion.service", "pfar-gateway.socket"} {
		if r := o.Try("systemd-analyze", "--user", "verify", "--man=no", unit); r.Stderr == "" {
			t.Errorf("systemd finds no fault in a broken %s: %s", unit, r)
		}
	}
}

// failsOpen are settings that systemd ignores in a user's units, with a line in the log at most, unless there is also
// PrivateUsers=yes, and some even then.
var failsOpen = []string{"DynamicUser", "User", "PrivateNetwork", "JoinsNamespaceOf", "IPAddressDeny", "OOMScoreAdjust", "DevicePolicy"}

// TestUserUnitsPromiseNothing that they do not keep, and are otherwise those of the machine.
func TestUserUnitsPromiseNothing(t *testing.T) {
	t.Parallel()
	for _, path := range unitFiles(t, "user") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		namespaced := strings.Contains(string(text), "\nPrivateUsers=yes\n")
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(line, "=")
			mounts := strings.HasPrefix(name, "Protect") || strings.HasPrefix(name, "Private") || name == "ProcSubset" || name == "InaccessiblePaths" || name == "TemporaryFileSystem" || strings.HasPrefix(name, "Bind") && strings.HasSuffix(name, "Paths") || name == "CapabilityBoundingSet"
			if slices.Contains(failsOpen, name) || mounts && !namespaced {
				t.Errorf("%s promises %s", filepath.Base(path), line)
			}
			if strings.Contains(line, "/run/pfar") || strings.Contains(line, "/var/lib") {
				t.Errorf("%s speaks of the machine's files: %s", filepath.Base(path), line)
			}
		}
	}
	machine := instances(t, "system")
	for _, unit := range instances(t, "user") {
		if !slices.Contains(machine, unit) && unit != "pfar-notify.service" {
			t.Errorf("the machine has no %s", unit)
		}
	}
}

// userProbes are what a user's units may do and what not, as probes are for the machine's.
var userProbes = []struct {
	unit    string
	allowed bool
	script  string
}{
	{"pfard.service", false, socket("AF_INET")},
	{"pfard.service", false, socket("AF_INET6")},
	{"pfard.service", false, "unshare --user true"},
	{"pfard.service", false, writeAndExecute},
	{"pfard.service", true, "touch $PFAR_STATE_DIR/probe $XDG_RUNTIME_DIR/pfar/probe ~/.config/file"},
	{"pfard.service", true, "busctl --user list; systemctl --user daemon-reload"},

	{"pfar-gateway.service", false, socket("AF_NETLINK")},
	{"pfar-gateway.service", false, "unshare --user true"},
	{"pfar-gateway.service", false, writeAndExecute},
	{"pfar-gateway.service", true, "touch ~/.local/state/pfar/pins/probe"},
	{"pfar-gateway.service", true, connect},

	{"pfar-egress@notion.service", false, "ls ~"},
	{"pfar-egress@notion.service", false, "cat ~/.config/file"},
	{"pfar-egress@notion.service", false, "cat $XDG_RUNTIME_DIR/pfar/plan/notion.json"},
	{"pfar-egress@notion.service", false, "cat $XDG_RUNTIME_DIR/credentials/other.service/token"},
	{"pfar-egress@notion.service", false, "systemctl --user list-units || busctl --user list"},
	{"pfar-egress@notion.service", false, "touch $XDG_RUNTIME_DIR/probe"},
	{"pfar-egress@notion.service", false, "unshare --user true"},
	{"pfar-egress@notion.service", false, writeAndExecute},
	{"pfar-egress@notion.service", true, `echo >"${RUNTIME_DIRECTORY:-/tmp}/probe"`},
	{"pfar-egress@notion.service", true, connect},

	{"pfar-refresh@notion.service", false, "ls ~"},
	{"pfar-refresh@notion.service", false, "cat ~/.config/file"},
	{"pfar-refresh@notion.service", false, "cat $XDG_RUNTIME_DIR/pfar/plan/notion.json"},
	{"pfar-refresh@notion.service", false, "cat $XDG_RUNTIME_DIR/credentials/other.service/token"},
	{"pfar-refresh@notion.service", false, "systemctl --user list-units || busctl --user list"},
	{"pfar-refresh@notion.service", false, "touch $XDG_RUNTIME_DIR/probe"},
	{"pfar-refresh@notion.service", false, "unshare --user true"},
	{"pfar-refresh@notion.service", false, writeAndExecute},
	{"pfar-refresh@notion.service", true, connect},

	{"pfar-login@notion.service", false, "ls ~"},
	{"pfar-login@notion.service", false, "cat ~/.config/file"},
	{"pfar-login@notion.service", false, "cat $XDG_RUNTIME_DIR/pfar/plan/notion.json"},
	{"pfar-login@notion.service", false, "cat $XDG_RUNTIME_DIR/credentials/other.service/token"},
	{"pfar-login@notion.service", false, "systemctl --user list-units || busctl --user list"},
	{"pfar-login@notion.service", false, "touch $XDG_RUNTIME_DIR/probe"},
	{"pfar-login@notion.service", false, "unshare --user true"},
	{"pfar-login@notion.service", false, writeAndExecute},
	{"pfar-login@notion.service", true, connect},

	{"pfar-model@notion.service", false, "ls ~"},
	{"pfar-model@notion.service", false, "cat ~/.config/file"},
	{"pfar-model@notion.service", false, "cat $XDG_RUNTIME_DIR/pfar/inspect/notion.json"},
	{"pfar-model@notion.service", false, "cat $XDG_RUNTIME_DIR/credentials/other.service/token"},
	{"pfar-model@notion.service", false, "systemctl --user list-units || busctl --user list"},
	{"pfar-model@notion.service", false, "touch $XDG_RUNTIME_DIR/probe"},
	{"pfar-model@notion.service", false, socket("AF_NETLINK")},
	{"pfar-model@notion.service", false, "unshare --user true"},
	{"pfar-model@notion.service", false, writeAndExecute},
	{"pfar-model@notion.service", true, connect},

	{"pfar-inspect@notion.service", false, "unshare --user --map-root-user --net " + socket("AF_PACKET")},
	{"pfar-inspect@notion.service", true, "bwrap --unshare-all --die-with-parent --new-session --unshare-user --disable-userns --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp node -e ''"},

	{"pfar-mcp@notion.service", false, "unshare --user --map-root-user --net " + socket("AF_PACKET")},
	{"pfar-mcp@notion.service", true, `echo >"${RUNTIME_DIRECTORY:-/tmp}/probe"`},
	{"pfar-mcp@notion.service", true, "bwrap --unshare-all --die-with-parent --new-session --unshare-user --disable-userns --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp node -e ''"},
}

// userReach is which of pfar's sockets a user's units may connect to. They are the user's, and so are the units:
// nothing else keeps one from approving what it likes. Launchers are no less than their user; what a server reaches is
// up to its sandbox. pfard is first: others want it.
var userReach = []struct{ unit, sockets string }{
	{"pfard.service", "all"}, {"pfar-gateway.service", "all"}, {"pfar-failed@notion.service", "all"}, {"pfar-mcp@notion.service", "all"}, {"pfar-inspect@notion.service", "all"},
	{"pfar-egress@notion.service", "attach/attach.sock"}, {"pfar-refresh@notion.service", "attach/attach.sock"},
	{"pfar-login@notion.service", "attach/attach.sock"},
	{"pfar-model@notion.service", "attach/attach.sock"},
}

// pfarSockets are those of a user's units, below $XDG_RUNTIME_DIR/pfar.
func pfarSockets(t *testing.T) (list []string) {
	t.Helper()
	for _, path := range unitFiles(t, "user") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if _, at, ok := strings.Cut(line, "=%t/pfar/"); ok && strings.HasPrefix(line, "Listen") {
				list = append(list, strings.ReplaceAll(strings.TrimSpace(at), "%i", "notion"))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// others listens in the place of all of pfar's sockets, and reach says which of them it gets to.
const (
	others = `import os, socket, sys, time
all = []
for path in sys.argv[1:]:
    path = os.environ["XDG_RUNTIME_DIR"] + "/pfar/" + path
    os.makedirs(os.path.dirname(path), exist_ok=True)
    all.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    all[-1].bind(path)
    all[-1].listen(999)
time.sleep(9999)`
	reach = `import os, socket, sys
os.chdir(os.environ["XDG_RUNTIME_DIR"])
for path in sys.argv[1:]:
    try:
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect("pfar/" + path)
        print("reaches", path)
    except OSError:
        pass`
)

func TestUserUnitsConfine(t *testing.T) {
	t.Parallel()
	o := settle(t, machines.Boot(t), "user", 1000)
	o.Run(t, "sh", "-euc", `mkdir -p ~/.config ~/.local/state/pfar/pins $XDG_RUNTIME_DIR/pfar/plan $XDG_RUNTIME_DIR/pfar/inspect $XDG_RUNTIME_DIR/credentials/other.service
touch ~/.config/file; echo {} >$XDG_RUNTIME_DIR/pfar/plan/notion.json; echo {} >$XDG_RUNTIME_DIR/pfar/inspect/notion.json; echo {} >$XDG_RUNTIME_DIR/credentials/other.service/token`)
	sockets := pfarSockets(t)
	if len(sockets) < 8 || !slices.Contains(sockets, "operator.sock") || !slices.Contains(sockets, "inspect/notion.sock") {
		t.Fatalf("pfar's sockets are %q", sockets)
	}
	o.m.Shell(t, "sed -i '/^Listen/s,%t/pfar/,%t/elsewhere/,' /usr/lib/systemd/user/pfar*.socket") // or they would start what is probed
	o.Run(t, "systemctl", "--user", "daemon-reload")
	o.m.Put(t, probesDir+"/others", others, 0o644)
	o.m.Put(t, probesDir+"/reach", reach, 0o644)
	o.Run(t, "systemd-run", append([]string{"--user", "--quiet", "--unit=others", "python3", probesDir + "/others"}, sockets...)...)
	bed.Eventually(t, soon, func() error {
		if r := o.Try("test", "-S", fmt.Sprintf("/run/user/%d/pfar/%s", o.uid, sockets[len(sockets)-1])); r.Code != 0 {
			return fmt.Errorf("nobody listens: %s", r)
		}
		return nil
	})
	o.m.Run(t, "systemd-run", "--quiet", "--unit=listen", "python3", "-c", listen)
	for i, p := range userProbes {
		o.m.Put(t, fmt.Sprintf("%s/%s/%d", probesDir, name(p.unit), i), p.script+"\n", 0o644)
	}
	o.m.Put(t, probesDir+"/all", `for f in `+probesDir+`/$1/*; do if sh -eu $f; then echo "works ${f##*/}"; else echo "fails ${f##*/}"; fi; done
python3 `+probesDir+`/reach `+strings.Join(sockets, " "), 0o644)
	for _, reach := range userReach {
		unit := reach.unit
		free := o.Try("systemd-run", "--user", "--quiet", "--wait", "--collect", "--pipe", "-pEnvironment=PFAR_STATE_DIR="+o.home()+"/.local/state/pfar", "sh", probesDir+"/all", name(unit))
		o.m.Put(t, "/etc/systemd/user/"+unit+".d/bed.conf", inPlaceOf+"SyslogIdentifier=probe-"+name(unit)+"\nExecStart=sh "+probesDir+"/all "+name(unit)+"\n", 0o644)
		o.Run(t, "systemctl", "--user", "daemon-reload")
		o.Run(t, "systemctl", "--user", "start", unit)
		o.m.Run(t, "journalctl", "--sync")
		journal := o.m.Run(t, "journalctl", "--quiet", "--no-pager", "--output=cat", "--identifier=probe-"+name(unit))
		for i, p := range userProbes {
			if p.unit != unit {
				continue
			}
			if !strings.Contains(free.Stdout, fmt.Sprintf("works %d\n", i)) {
				t.Errorf("where nothing confines it, this does not work: %s\n%s", p.script, free)
			}
			if want := map[bool]string{true: "works", false: "fails"}[p.allowed]; !strings.Contains(journal, fmt.Sprintf("%s %d\n", want, i)) {
				t.Errorf("in %s this is not so: %s %s\n%s", unit, p.script, want, journal)
			}
		}
		for _, path := range sockets {
			line := "reaches " + path + "\n"
			if !strings.Contains(free.Stdout, line) {
				t.Errorf("where nothing confines it, nobody gets to %s: %s", path, free)
			}
			if want := reach.sockets == "all" || reach.sockets == path; strings.Contains(journal, line) != want {
				t.Errorf("%s gets to %s: %t, want %t\n%s", unit, path, !want, want, journal)
			}
		}
	}
}
