package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/passkeytest"
	"github.com/pfar/pfar/units/control"
)

// signed sends an act to a gateway's passkey socket, with the signature of an operator.
func (p *process) signed(t *testing.T, o string, key *passkeytest.Authenticator, target, body string) (int, string) {
	t.Helper()
	var given struct{ Nonce string }
	status, got := p.ask(t, "passkey", "POST", "/challenge", "")
	if err := json.Unmarshal([]byte(got), &given); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s, %v", status, got, err)
	}
	a := passkey.Act{Nonce: given.Nonce, Method: http.MethodPost, Target: target, Body: []byte(body)}
	proof, err := json.Marshal(passkey.Proof{Operator: o, Nonce: a.Nonce, Response: key.Sign(a.Challenge())})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), a.Method, "http://localhost"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Pfar-Proof", base64.RawURLEncoding.EncodeToString(proof))
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.dir, "passkey"))
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dial}}
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

// TestPasskeySocket: whoever may connect may read there, and a gateway without pfard has nobody who may act.
func TestPasskeySocket(t *testing.T) {
	p := start(t, "127.0.0.1:0", "http:unix:servers:operator:passkey", token+"\n")
	p.await(t, "READY=1")
	for _, path := range []string{"/pins", "/approvals", "/grants"} {
		if status, body := p.ask(t, "passkey", "GET", path, ""); status != http.StatusOK || body != "[]\n" {
			t.Errorf("GET %s: %d %s", path, status, body)
		}
	}
	const path, body = "/sessions", `{"client":"default"}`
	if status, got := p.ask(t, "passkey", "POST", path, body); status != http.StatusUnauthorized {
		t.Errorf("unsigned: %d %s", status, got)
	}
	stranger := passkeytest.New(t, "https://pfar.example.com:7443")
	if status, got := p.signed(t, "alice", stranger, path, body); status != http.StatusUnauthorized {
		t.Errorf("of nobody: %d %s", status, got)
	}
	if status, got := p.ask(t, "operator", "POST", path, body); status != http.StatusOK {
		t.Errorf("on the operator's socket: %d %s", status, got)
	}
	if status, _ := p.ask(t, "operator", "POST", "/challenge", ""); status != http.StatusNotFound {
		t.Errorf("a challenge on the operator's socket: %d", status)
	}
	stop(t, p)
}

// TestOperatorsAreFollowed: the operators are those that pfard last told, also while it is away.
func TestOperatorsAreFollowed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	feed, served := make(chan control.Response), make(chan error, 1)
	ctx, away := context.WithCancel(t.Context())
	defer away()
	answer := func(ctx context.Context, _ control.Peer, q control.Request, send func(control.Response) error) error {
		for {
			if q.Verb != control.Clients {
				<-ctx.Done()
				return nil
			}
			select {
			case r := <-feed:
				if err := send(r); err != nil {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
	go func() { served <- control.Serve(ctx, l, answer) }()
	p := start(t, "127.0.0.1:0", "unix:servers:operator:passkey", token, "--control", socket)
	p.await(t, "READY=1")
	own := passkeytest.New(t, "https://pfar.example.com:7443")
	alice := passkey.Operator{Name: "alice", Role: passkey.Approve, Keys: []passkey.Key{own.Key()}}
	look := alice
	look.Role = passkey.Look
	becomes := func(what string, want int, all ...passkey.Operator) {
		t.Helper()
		feed <- control.Response{Declarations: control.Declarations{Operators: all}}
		for end := time.Now().Add(2 * time.Minute); ; {
			status, got := p.signed(t, "alice", own, "/sessions", `{"client":"nobody"}`)
			if status == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %d %s\n%s", what, status, got, p.log)
			}
		}
	}
	const unrecorded = http.StatusInternalServerError // this pfard opens no audit, so what is allowed is not done
	becomes("who may look", http.StatusForbidden, look)
	becomes("who may approve", unrecorded, alice)
	becomes("nobody", http.StatusUnauthorized)
	becomes("who may approve again", unrecorded, alice)
	away()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if status, got := p.signed(t, "alice", own, "/sessions", `{"client":"nobody"}`); status != unrecorded {
		t.Errorf("while pfard is away: %d %s", status, got)
	}
	stop(t, p)
}
