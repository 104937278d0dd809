package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

func TestParseAsker(t *testing.T) {
	for name, want := range map[string]string{
		"@e4d3b7fdbf18c592/unit/pfar-mcp@notion.service/secrets": "pfar-mcp@notion.service secrets",
		"@e4d3b7fdbf18c592/unit/other.service/x":                 "other.service x",
		"":                                                       "",
		"@":                                                      "",
		"/run/x/unit/pfar-mcp@a.service/secrets":                 "",
		"@e4d3/unit/pfar-mcp@a.service":                          "",
		"@e4d3/unit//secrets":                                    "",
		"@e4d3/unit/pfar-mcp@a.service/":                         "",
		"@e4d3/unit/pfar-mcp@a.service/secrets/more":             "",
		"@e4d3/user/pfar-mcp@a.service/secrets":                  "",
	} {
		unit, id, err := parseAsker(name)
		if got := strings.TrimSpace(unit + " " + id); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestCredentials asks as systemd does, from a name in the abstract namespace.
func TestCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	said := &loud{}
	var in atomic.Value // the unit that the kernel says
	c := &credentials{
		log: slog.New(slog.NewTextHandler(said, nil)),
		unit: func(_ *net.UnixConn, pid int) (string, error) {
			if u := in.Load().(string); pid == os.Getpid() && u != "none" {
				return u, nil
			}
			return "", errors.New("it is in no unit")
		},
		give: func(plan.Plan, units.Secrets, error) error { return nil },
		plan: func(instance string) (plan.Plan, error) {
			if instance == "nobody" {
				return plan.Plan{}, errors.New("no such server")
			}
			return plan.Plan{Name: instance}, nil
		},
		secrets: func(p plan.Plan) (units.Secrets, error) {
			switch p.Name {
			case "waits":
				return units.Secrets{Missing: []string{"B: pfar vault set b"}}, nil
			case "broken":
				return units.Secrets{}, errors.New("the vault cannot be read")
			}
			return units.Secrets{Values: map[string][]byte{"TOKEN": []byte("hunter2")}}, nil
		},
		model: func(name string) (units.Secrets, error) {
			if name == "nobody" {
				return units.Secrets{}, errors.New("no such inspector")
			}
			return units.Secrets{Values: map[string][]byte{"llm": []byte("hunter3")}}, nil
		},
		user: func(unit string) (int, error) {
			if unit == "pfar-mcp@nobody.service" {
				return 0, errors.New("no such server")
			}
			return 60706, nil
		},
	}
	served := make(chan struct{})
	go func() { defer close(served); c.serve(l) }()
	defer func() { l.Close(); <-served }()
	for i, tt := range []struct{ unit, id, want, in string }{
		{"pfar-mcp@notion.service", "secrets", `{"values":{"TOKEN":"aHVudGVyMg=="}}`, ""},
		{"pfar-mcp@notion_abcdefgh.service", "secrets", `{"values":{"TOKEN":"aHVudGVyMg=="}}`, ""},
		{"pfar-mcp@waits.service", "secrets", `{"missing":["B: pfar vault set b"]}`, ""},
		{"pfar-mcp@broken.service", "secrets", `{"missing":["the vault cannot be read"]}`, ""},
		{"pfar-mcp@nobody.service", "secrets", "", ""},
		{"pfar-model@llm.service", "secrets", `{"values":{"llm":"aHVudGVyMw=="}}`, ""},
		{"pfar-model@nobody.service", "secrets", "", ""},
		{"pfar-model@llm.service", "plan", "", ""},
		{"pfar-model@llm.service", "secrets", "", "pfar-inspect@llm.service"},
		{"pfar-inspect@llm.service", "secrets", "", ""},
		{"pfar-inspect@llm.service", "user", "60706", ""},
		{"pfar-mcp@notion.service", "user", "60706", ""},
		{"pfar-mcp@nobody.service", "user", "", ""},
		{"pfar-mcp@notion.service", "user", "", "pfar-inspect@llm.service"},
		{"pfar-model@llm.service", "user", "", ""},
		{"pfar-egress@notion.service", "user", "", ""},
		{"pfar-mcp@notion.service", "plan", "", ""},
		{"pfar-egress@notion.service", "secrets", "", ""},
		{"evil.service", "secrets", "", ""},
		{"pfar-mcp@notion.scope", "secrets", "", ""},
		{"pfar-mcp@notion.service", "secrets", "", "other.service"},
		{"pfar-mcp@notion.service", "secrets", "", "pfar-mcp@waits.service"},
		{"pfar-mcp@notion.service", "secrets", "", "none"},
	} {
		in.Store(cmp.Or(tt.in, tt.unit))
		from := &net.UnixAddr{Name: fmt.Sprintf("@%s%d/unit/%s/%s", strings.ReplaceAll(t.Name(), "/", ""), i, tt.unit, tt.id), Net: "unix"}
		conn, err := net.DialUnix("unix", from, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || string(got) != tt.want {
			t.Errorf("%s asks for %s: %q, %v, want %q", tt.unit, tt.id, got, err, tt.want)
		}
		if s := (units.Secrets{}); tt.want != "" && tt.id == units.CredentialSecrets && json.Unmarshal(got, &s) != nil {
			t.Errorf("%q is not what a launcher reads", got)
		}
	}
	conn, err := net.Dial("unix", path) // from nowhere
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, err := io.ReadAll(conn); err != nil || len(got) != 0 {
		t.Errorf("whoever has no name gets %q, %v", got, err)
	}
	if n := strings.Count(said.String(), "msg=vault operation=deliver outcome=refused"); n != 14 {
		t.Errorf("%d records of refusals: %s", n, said)
	}
}

func TestListens(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	for rows, want := range map[string]bool{
		"": false,
		"   0: 0100007F:2694 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n":  true,
		"   0: 0100007F:2695 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n":  false,
		"   0: 00000000:2694 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n":  false,
		"   0: 0100007F:2694 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 1\n":  false,
		"   0: 0100007F:1F90 0100007F:2694 0A 00000000:00000000 00:00000000 00000000     0        0 1\nx": false,
	} {
		if got := listens(bufio.NewScanner(strings.NewReader(head+rows)), egress.ProxyPort); got != want {
			t.Errorf("%q: %t", rows, got)
		}
	}
}

// TestCredentialsUnderWay: who has asked before pfard ends is answered.
func TestCredentialsUnderWay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "credentials.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	asked, readable := make(chan struct{}), make(chan struct{})
	c := &credentials{
		log:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		unit: func(*net.UnixConn, int) (string, error) { return "pfar-mcp@notion.service", nil },
		give: func(plan.Plan, units.Secrets, error) error { return nil },
		plan: func(instance string) (plan.Plan, error) { return plan.Plan{Name: instance}, nil },
		secrets: func(plan.Plan) (units.Secrets, error) {
			close(asked)
			<-readable
			return units.Secrets{Values: map[string][]byte{"TOKEN": []byte("hunter2")}}, nil
		},
	}
	served := make(chan struct{})
	go func() { defer close(served); c.serve(l) }()
	from := &net.UnixAddr{Name: fmt.Sprintf("@%s%d", t.Name(), os.Getpid()) + "/unit/pfar-mcp@notion.service/secrets", Net: "unix"}
	conn, err := net.DialUnix("unix", from, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-asked
	l.Close()
	select {
	case <-served:
		t.Error("it ends before the answer")
	case <-time.After(50 * time.Millisecond):
	}
	close(readable)
	<-served
	if got, err := io.ReadAll(conn); err != nil || string(got) != `{"values":{"TOKEN":"aHVudGVyMg=="}}` {
		t.Errorf("the answer is %q, %v", got, err)
	}
}
