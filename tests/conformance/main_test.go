// Package conformance judges pfar by MCP's own conformance suite: what passes without pfar in between has to pass with
// it.
package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

const (
	installedVariable = "PFAR_TEST_CONFORMANCE"      // directory in which make has installed the suites and their fixtures
	programsVariable  = "PFAR_TEST_CONFORMANCE_BIN"  // directory of pfar's programs and of the shim, if they are built already
	roleVariable      = "PFAR_TEST_CONFORMANCE_ROLE" // what this program is to be, if not the test
)

func TestMain(m *testing.M) {
	roles := map[string]func(string) error{
		roleClient: playClient, roleRemoteClient: playRemoteClient, roleSignIn: playSignIn,
	}
	if play := roles[os.Getenv(roleVariable)]; play != nil {
		if err := play(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	os.RemoveAll(scratch())
	os.Exit(code)
}

// scratch is a directory that every user may enter, for what all tests share.
var scratch = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "pfar-conformance-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		panic(err)
	}
	return dir
})

// programs returns the directory of pfar's programs and of the shim, built once, without the race detector: it changes
// their time and the system calls that they make.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(programsVariable); dir != "" {
		return dir, nil
	}
	dir := filepath.Join(scratch(), "bin")
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", dir+"/",
		"./cmd/pfar", "./cmd/pfard", "./cmd/pfar-sandbox", "./cmd/pfar-egress", "./cmd/pfar-gateway",
		"./cmd/pfar-setup", "./cmd/pfar-console", "./cmd/pfar-adapter", "./tests/conformance/shim")
	c.Dir, c.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w\n%s", err, out)
	}
	return dir, nil
})

// installed returns the directory that holds the suites (node_modules) and their fixtures (bin).
var installed = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(installedVariable); dir != "" {
		return dir, nil
	}
	c := exec.Command("make", "build/conformance/.installed")
	c.Dir = filepath.Join("..", "..")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("installing the suites: %w\n%s", err, out)
	}
	return filepath.Abs(filepath.Join("..", "..", "build", "conformance"))
})

// both returns the two directories, or ends the test.
func both(t testing.TB) (bin, suites string) {
	t.Helper()
	bin, err1 := programs()
	suites, err2 := installed()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return bin, suites
}

// spawn starts a process that ends with this one. The channel closes when it has ended.
func spawn(c *exec.Cmd) (ended chan struct{}, err error) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	ended = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // PDEATHSIG is sent when this thread ends (prctl(2)), which it does with the goroutine
		err := c.Start()
		started <- err
		if err == nil {
			c.Wait()
			close(ended)
		}
	}()
	return ended, <-started
}
