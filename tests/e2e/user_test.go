package e2e

import (
	"cmp"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ordinary is a uid that no account has: between the ranges that systemd and Debian give out.
const ordinary = 60999

// byUser are the tests that go another way for a user without any privilege: sandboxes, credentials, limits, and what
// ends with what.
var byUser = []string{"TestHostile", "TestMemoryLimit", "TestPlantedLinks", "TestSwappedSource", "TestDescriptorsStay", "TestNoSandboxNoServer",
	"TestCredentialAsAFile", "TestPlaceholder", "TestSecretsAreGiven", "TestEverything", "TestExamples", "TestDescriptorsRunOut",
	"TestStopSequence", "TestNothingOutlivesPfard", "TestEndLeavesNothing", "TestGatewayIsReplaced", "TestSessions", "TestPfarDemo",
	"TestConsole", "TestConsoleSessions", "TestConsoleServers", "TestConsoleWants", "TestConsoleAdds",
	"TestConsoleImports", "TestConsoleLearns", "TestConsoleIsKilled", "TestConsoleElsewhere", "TestOrdersFromElsewhere",
	"TestConsoleLinks", "TestConsoleVerifies", "TestConsoleConfigs",
	"TestConsoleOpensBrowser", "TestMatrix"}

// notByUser are those for which the user makes no difference, as the gate decides the same for everybody, and those
// that need the repository, go, npm with root's settings or a namespace of root's.
var notByUser = []string{"TestHeists", "TestHeistsAround", "TestTraces",
	"TestAdapterReference", "TestAdapterMCPGo", "TestAllow", "TestExamplesTyped", "TestReviewedDefinitions",
	"TestImportPrograms", "TestGlobalPackage"}

// byUserVariable names tests that TestAsOrdinaryUser runs instead, with | between them.
const byUserVariable = "PFAR_TEST_BY_USER"

// TestAsOrdinaryUser runs these tests once more, as a user without any privilege: with -short those of byUser.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		return // this is that user
	}
	binary := filepath.Join(scratch(), "e2e.test")
	self, err := os.Executable()
	check(t, err)
	copyFile(t, self, binary)
	bin, err := programs()
	check(t, err)
	servers, err := npmServers()
	check(t, err)
	reachable := filepath.Join(scratch(), "servers")
	linkTree(t, servers, reachable)
	copies := filepath.Join(scratch(), "examples")
	check(t, os.Mkdir(copies, 0o755))
	for _, path := range exampleFiles(t) {
		copyFile(t, path, filepath.Join(copies, filepath.Base(path)))
	}
	check(t, os.Mkdir(filepath.Join(copies, "inspectors"), 0o755))
	copyFile(t, filepath.Join("..", "..", "examples", "inspectors", "words"), filepath.Join(copies, "inspectors", "words"))
	clients := reachableClients(t)
	node, err := exec.LookPath("node")
	check(t, err)
	home := filepath.Join(scratch(), "home")
	check(t, os.Mkdir(home, 0o700))
	check(t, os.Chown(home, ordinary, ordinary))
	check(t, os.Chmod(reachable, 0o755))

	left := 25 * time.Minute
	if end, ok := t.Deadline(); ok {
		left = time.Until(end) - time.Minute // so that this can say what was under way
	}
	skip := "^(" + strings.Join(notByUser, "|") + ")$"
	args := []string{"-test.timeout=" + left.String(), "-test.skip=" + skip}
	if testing.Short() {
		chosen := cmp.Or(os.Getenv(byUserVariable), strings.Join(byUser, "|"))
		args = append(args, "-test.short", "-test.run=^("+chosen+")$")
	}
	c := exec.Command(binary, append(args, "-test.parallel="+flag.Lookup("test.parallel").Value.String())...)
	c.Dir = home
	c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:" + filepath.Dir(node), "HOME=" + home,
		"XDG_CONFIG_HOME=" + home + "/.config", "XDG_STATE_HOME=" + home + "/.local/state", "TMPDIR=/tmp",
		binVariable + "=" + bin, serversVariable + "=" + reachable, examplesVariable + "=" + copies,
		clientsVariable + "=" + clients}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	out := &output{}
	c.Stdout, c.Stderr = out, out
	check(t, c.Start())
	t.Parallel() // only now: they run beside all others, from the beginning
	if err := c.Wait(); err != nil {
		t.Errorf("as uid %d: %v\n%s", ordinary, err, out)
		return
	}
	t.Logf("as uid %d: %s", ordinary, strings.TrimSpace(out.String()))
}

// reachableClients copies the npm clients to where every user gets, and the scripts that use them to where clientScript
// finds them from that user's home.
func reachableClients(t *testing.T) (dir string) {
	t.Helper()
	from, err := npmClients()
	check(t, err)
	dir, scripts := filepath.Join(scratch(), "npm-clients"), filepath.Join(scratch(), "clients")
	check(t, os.Mkdir(scripts, 0o755))
	ours := filepath.Join("..", "clients", "mcp")
	linkTree(t, from, dir)
	linkTree(t, ours, filepath.Join(scripts, "mcp"))
	check(t, os.Chmod(dir, 0o755))
	return dir
}

// linkTree makes a folder with the files of another one, which nobody writes: they are links, or on another file system
// copies.
func linkTree(t *testing.T, from, to string) {
	t.Helper()
	if exec.Command("cp", "-al", from, to).Run() == nil {
		return
	}
	check(t, os.RemoveAll(to))
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	check(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	check(t, err)
	_, err = io.Copy(out, in)
	check(t, err)
	check(t, out.Close())
}
