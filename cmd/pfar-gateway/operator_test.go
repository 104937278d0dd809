package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/operator"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// ask sends a request to one of a gateway's Unix sockets.
func (p *process) ask(t *testing.T, socket, method, path, body string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, socket))
	}}}
	r, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestClientsAreNotTheOperator: what only the operator may ask is on the operator's socket, and nowhere else.
func TestClientsAreNotTheOperator(t *testing.T) {
	p := start(t, "127.0.0.1:0", "http:unix:servers:operator", token+"\n")
	p.await(t, "READY=1")
	for _, q := range [][3]string{
		{"GET", "/pins", "[]\n"}, {"GET", "/approvals", "[]\n"}, {"GET", "/approvals/history", "[]\n"}, {"GET", "/sessions", `[{"client":"default"`}, {"GET", "/stains", "[]\n"}, {"GET", "/grants", "[]\n"}, {"GET", "/stats", `{"time":`},
		{"POST", "/pins/x/accept", ""}, {"POST", "/pins/x/forget", ""}, {"POST", "/approvals/x/approve", ""}, {"POST", "/approvals/x/deny", ""},
		{"POST", "/sessions", ""}, {"POST", "/sessions/x/default/reset", ""}, {"POST", "/stains/x/clear", ""}, {"POST", "/grants/x/revoke", ""},
	} {
		status, body := p.ask(t, "operator", q[0], q[1], "")
		if q[0] == "GET" && (status != http.StatusOK || !strings.HasPrefix(body, q[2])) || strings.Contains(body, "there is nothing here") {
			t.Errorf("the operator, %s %s: %d %s", q[0], q[1], status, body)
		}
		for _, path := range []string{q[1], "/mcp" + q[1], "/mcp/.." + q[1], "//" + q[1][1:], "/%2e" + q[1]} {
			if status, body := p.ask(t, "unix", q[0], path, ""); status < 400 || status >= 500 || !strings.Contains(body, "jsonrpc") && status != http.StatusMovedPermanently {
				t.Errorf("a client, %s %s: %d %s", q[0], path, status, body)
			}
		}
		r, err := http.NewRequest(q[0], "http://"+p.addr+q[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("a client on loopback, %s %s: %s", q[0], q[1], resp.Status)
		}
	}
	if status, body := p.ask(t, "operator", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); status != http.StatusNotFound {
		t.Errorf("MCP on the operator's socket: %d %s", status, body)
	}
}

// TestActsAreRecorded: what an act is about stands where the audit is searched for it.
func TestActsAreRecorded(t *testing.T) {
	for _, tt := range []struct {
		verb, subject string
		want          audit.Record
	}{
		{"new-session", "laptop/h", audit.Record{Kind: audit.Session, Client: "laptop", Session: "h"}},
		{"end-session", "laptop/h", audit.Record{Kind: audit.Session, Client: "laptop", Session: "h"}},
		{"reset-session", "laptop/default", audit.Record{Kind: audit.Session, Client: "laptop", Session: "default"}},
		{"clear-stain", "notion", audit.Record{Kind: audit.Session, Server: "notion"}},
		{"accept-pins", "notion", audit.Record{Kind: audit.Pin, Server: "notion"}},
		{"approve", "id", audit.Record{Kind: audit.Approval, Subject: "id"}},
		{"revoke-grant", "id", audit.Record{Kind: audit.Approval, Subject: "id"}},
	} {
		tt.want.Method, tt.want.Approver, tt.want.Channel, tt.want.User = tt.verb, "ann", "operator socket", "uid 1000"
		got := acted(operator.Act{By: approval.Approver{UID: 1000, Name: "ann", Channel: "operator socket"}, Verb: tt.verb, Subject: tt.subject})
		if !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s\ngot  %+v\nwant %+v", tt.verb, got, tt.want)
		}
	}
}

// TestWhatASessionHadSeenIsRecorded when it is made to have seen nothing.
func TestWhatASessionHadSeenIsRecorded(t *testing.T) {
	raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
	got := acted(operator.Act{Verb: "reset-session", Subject: "laptop/h", Was: &label.Session{
		Label: raw, Sources: []label.Source{{Server: "notion", Tool: "search", Call: "a"}, {Server: "mail", Call: "b"}},
	}})
	if want := (&audit.Label{Label: raw, Sources: []string{"notion.search (a)", "mail (b)"}}); !reflect.DeepEqual(got.Before, want) {
		t.Errorf("got %+v, want %+v", got.Before, want)
	}
}

// TestStateIsNeeded: without what sessions have seen nothing is served.
func TestStateIsNeeded(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "127.0.0.1:0", "unix:servers:operator", token, "--state", filepath.Join(dir, "good"))
	p.await(t, "READY=1")
	stop(t, p)
	if err := os.WriteFile(filepath.Join(dir, "good", "gateway.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for state, reason := range map[string]string{"": "--state is missing", filepath.Join(dir, "good"): "put a backup in its place"} {
		p := start(t, "127.0.0.1:0", "unix:servers:operator", token, "--state", state)
		if err := p.cmd.Wait(); err == nil || !strings.Contains(p.log.String(), reason) {
			t.Errorf("%q: %v\n%s", state, err, p.log)
		}
	}
}

func stop(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, p.log)
	}
}
