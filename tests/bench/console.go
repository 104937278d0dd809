package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/page"
)

// limitPage is how long the operator's page may take while as many calls wait as the gateway lets wait: waitingCalls,
// of one client callsOfOne.
const (
	limitPage    = 100 * time.Millisecond
	waitingCalls = 128
	callsOfOne   = 32
)

// consolePages measures the page of waiting calls of a pfar-console whose gateway is this process.
func consolePages(ctx context.Context, dir, bin string, rounds int) (took []time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	socket := filepath.Join(dir, "operator.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	gateway := &http.Server{Handler: flooded()}
	go gateway.Serve(l)
	defer gateway.Close()
	ours, theirs, err := attach.Pair("theirs")
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	c := exec.CommandContext(ctx, filepath.Join(bin, "pfar-console"), "--operator", socket)
	c.ExtraFiles, c.Stderr = []*os.File{theirs}, os.Stderr
	c.Env = []string{"LISTEN_FDS=1", "LISTEN_FDNAMES=" + units.FDPage}
	err = c.Start()
	theirs.Close()
	if err != nil {
		return nil, err
	}
	defer c.Wait()
	defer cancel()
	link, err := invited(ours)
	if err != nil {
		return nil, err
	}
	home, cookie, err := signedIn(link)
	if err != nil {
		return nil, err
	}
	for range rounds {
		start := time.Now()
		resp, err := get(home, cookie)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		took = append(took, time.Since(start))
		if err != nil {
			return nil, err
		}
		if n := strings.Count(string(text), "<h2>Client "); n != waitingCalls/callsOfOne {
			return nil, fmt.Errorf("the page of waiting calls has %d clients", n)
		}
	}
	return took, nil
}

// flooded is a gateway in which no more calls could wait.
func flooded() http.Handler {
	var calls []operator.Shown
	for i := range waitingCalls {
		s := operator.Shown{ID: operator.NewID(), Digest: strings.Repeat("ab", 32), State: operator.Pending, Left: 240}
		s.Client, s.Session, s.Server, s.Name = fmt.Sprint("client", i/callsOfOne), "default", "mail", "send_mail"
		s.Method, s.Decision.Reason, s.Decision.Rule = "tools/call", "private data could leave", "sink"
		s.Arguments, _ = json.Marshal(map[string]string{"to": "x@y.test", "body": strings.Repeat("word ", 400)})
		s.Decision.Data = gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
		s.Sources = []operator.Source{{Server: "web", Tool: "fetch", Call: "abc", Label: s.Decision.Data}}
		calls = append(calls, s)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/approvals" {
			_ = json.NewEncoder(w).Encode(calls)
		} else {
			_ = json.NewEncoder(w).Encode([]operator.Past{})
		}
	})
}

// invited is what pfard does until it has a link.
func invited(conn *attach.Conn) (string, error) {
	if _, _, err := conn.Receive(); err != nil {
		return "", err
	}
	if err := conn.Send(attach.Message{Welcome: &attach.Welcome{}}); err != nil {
		return "", err
	}
	nonce := page.NewNonce()
	if err := conn.Send(attach.Message{PageTalk: attach.PageTalk{Invite: &attach.Invite{Nonce: nonce}}}); err != nil {
		return "", err
	}
	m, _, err := conn.Receive()
	if err == nil && m.Listens == nil {
		err = fmt.Errorf("the console does not listen")
	}
	if err != nil {
		return "", err
	}
	return page.Link(nonce, m.Listens.Port), nil
}

// signedIn uses a link, and returns the address of the first page and the cookie.
func signedIn(link string) (home, cookie string, err error) {
	resp, err := get(link, "")
	if err != nil {
		return "", "", err
	}
	resp.Body.Close()
	at, err := resp.Location()
	if err != nil {
		return "", "", err
	}
	cookie, _, _ = strings.Cut(resp.Header.Get("Set-Cookie"), ";")
	return at.String(), cookie, nil
}

// get asks for a page and follows no redirection.
func get(at, cookie string) (*http.Response, error) {
	r, err := http.NewRequest(http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	return http.DefaultTransport.RoundTrip(r)
}
