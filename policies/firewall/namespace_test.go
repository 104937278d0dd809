package firewall

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside is set to a test's name in the process that runs it in its namespaces.
const inside = "PFAR_FIREWALL_TEST"

// namespace is how a test's process enters fresh namespaces.
type namespace struct {
	uid          int       // in the user namespace
	capabilities []uintptr // ambient
	files        []*os.File
	meanwhile    func() // runs outside while the test runs inside
}

// likeAServer is how cmd/pfar-sandbox makes a server's namespaces: as root and as an ordinary user alike.
func likeAServer() namespace {
	return namespace{uid: os.Getuid(), capabilities: []uintptr{unix.CAP_NET_ADMIN}}
}

// runs reports whether this is the process in the namespaces. Otherwise it has the calling test run in one.
func (n namespace) runs(t testing.TB, flags ...string) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{"-test.run=^" + regexp.QuoteMeta(t.Name()) + "$", "-test.v", "-test.timeout=5m"}, flags...)...)
	cmd.Env = append(os.Environ(), inside+"="+t.Name(), "GORACE=atexit_sleep_ms=0") // which is a second
	cmd.ExtraFiles = n.files
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: n.uid, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: n.uid, HostID: os.Getgid(), Size: 1}},
		AmbientCaps: n.capabilities,
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("making a namespace: %v", err)
	}
	if n.meanwhile != nil {
		n.meanwhile()
	}
	err := cmd.Wait()
	t.Logf("in the namespace:\n%s", out.String())
	if _, bench := t.(*testing.B); bench {
		reportOf(t.(*testing.B), out.String())
	} else if !strings.Contains(out.String(), "--- PASS: "+t.Name()) {
		t.Error("the test did not run to its end")
	}
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// nft runs nft(8), which make test installs (tests/setup.sh).
func nft(t testing.TB, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		path = "/usr/sbin/nft" // not in an ordinary user's PATH on Debian
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %q: %v\n%s", args, err, out)
	}
	return string(out)
}
