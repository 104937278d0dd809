package generator

import (
	"fmt"
	"net"
	"os"
	"reflect"
	"sort"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/plan"
)

// What the gateway is told of a server fits into one packet, or is an error of the declaration and not of its start.
func TestHelloFits(t *testing.T) {
	declare := func(tools int) (plan.Plan, hcl.Diagnostics) {
		text := "description = \"" + strings.Repeat("<", 1024) + "\"\n" + plain
		for i := range tools {
			text += fmt.Sprintf("tool \"%0120d\" { alias = [\"a%d\"] }\n", i, i)
		}
		return Compile(parsed(t, text), testHost(t, ""))
	}
	fits := sort.Search(2000, func(n int) bool { _, diags := declare(n); return diags.HasErrors() }) - 1
	if fits < 100 {
		t.Fatalf("room for %d tools", fits)
	}
	p, _ := declare(fits)
	p.Gateway.Session = strings.Repeat("s", 64)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends []*handover.Conn
	for _, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ends = append(ends, handover.Accepted(c.(*net.UnixConn)))
	}
	if err := ends[0].Send(handover.Message{Expect: &p.Gateway}); err != nil {
		t.Fatal(err)
	}
	m, _, err := ends[1].Receive()
	if err != nil || !reflect.DeepEqual(m.Expect, &p.Gateway) {
		t.Errorf("received something else: %v", err)
	}
	_, diags := declare(fits + 1)
	if len(diags) != 1 || diags[0].Summary != "Too many tools" || diags[0].Subject.Start.Line != 6 {
		t.Errorf("one tool more: %v", diags)
	}
}

// The digest of the program is of what was declared, and no two declarations run into each other.
func TestProgramDigest(t *testing.T) {
	digest := func(command string, args ...string) string {
		return program(declaration.Server{Program: declaration.Program{Command: command, Args: args}})
	}
	if got, want := digest("node", "a"), "29bbfe8eb1e62c0e7f7cadb4b88b9ee75ebdd914e45a2d2d68150ac5c0d1110b"; got != want {
		t.Errorf("digest %s, want that of \"node\\x00a\", %s", got, want)
	}
	seen := map[string]bool{}
	for _, d := range []string{digest("node"), digest("node", ""), digest("node", "", ""), digest("node", "a b"), digest("node", "a", "b"), digest("node a", "b"), digest("nodea", "b")} {
		if seen[d] || len(d) != 64 {
			t.Errorf("digest %s is not of one declaration alone", d)
		}
		seen[d] = true
	}
}
