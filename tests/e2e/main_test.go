// Package e2e runs pfar as its users do, the real programs with real and hostile servers, and looks at what comes of
// it.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	code := m.Run()
	for _, end := range atEnd {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(scratch())
	os.Exit(code)
}

const (
	binVariable      = "PFAR_TEST_BIN"      // directory of the programs, if they are built already
	serversVariable  = "PFAR_TEST_SERVERS"  // directory of the npm servers, if they are installed already
	clientsVariable  = "PFAR_TEST_CLIENTS"  // directory of the npm clients, if they are installed already
	examplesVariable = "PFAR_TEST_EXAMPLES" // directory of the examples, if it is not in the repository
)

// scratch is a directory that every user may enter, for what all tests share.
var scratch = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", directoryPattern)
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		panic(err)
	}
	return dir
})

// programs returns the directory of pfar's programs and of the tests' servers, built once. They are built without the
// race detector: it changes their memory, their time and the system calls that they make.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv(binVariable); dir != "" {
		return dir, nil
	}
	dir := filepath.Join(scratch(), "bin")
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-w", "-o", dir+"/",
		"./cmd/pfar", "./cmd/pfard", "./cmd/pfar-sandbox", "./cmd/pfar-egress", "./cmd/pfar-gateway", "./cmd/pfar-setup",
		"./cmd/pfar-console", "./cmd/pfar-chat",
		"./cmd/pfar-adapter", "./tests/echo", "./tests/hostile", "./tests/clients",
		"./tests/corpus", "./tests/tracker", "./tests/standin")
	c.Dir, c.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building: %w\n%s", err, out)
	}
	return dir, nil
})

// npmServers returns the directory in which packaging/servers is installed.
var npmServers = sync.OnceValues(func() (string, error) { return installed("servers", serversVariable) })

// npmClients returns the directory in which tests/clients/mcp is installed.
var npmClients = sync.OnceValues(func() (string, error) { return installed("clients", clientsVariable) })

// installed returns the directory that a variable names, or has the Makefile install one of that name.
func installed(name, variable string) (string, error) {
	if dir := os.Getenv(variable); dir != "" {
		return dir, nil
	}
	c := exec.Command("make", "build/"+name+"/.installed")
	c.Dir = filepath.Join("..", "..")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("installing the npm %s: %w\n%s", name, err, out)
	}
	return filepath.Abs(filepath.Join("..", "..", "build", name))
}

// program returns the path of one of them.
func program(t testing.TB, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// npm returns the path of a file of an npm server.
func npm(t testing.TB, path string) string {
	t.Helper()
	dir, err := npmServers()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules", path)
}

// npmClient returns the path of a file of a package that tests/clients/mcp installs.
func npmClient(t testing.TB, path string) string {
	t.Helper()
	dir, err := npmClients()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules", path)
}
