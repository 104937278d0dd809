package operator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/grant"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/operator"
)

// bench is a desk behind a real socket.
type bench struct {
	*Desk
	t      testing.TB
	server *http.Server
	client *http.Client
	mu     sync.Mutex
	acts   []Act
	broken error // of the record
	shelf  shelf
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "pfar") // t.TempDir is too long for a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	db, err := state.Open(filepath.Join(dir, "state"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	sessions, err := label.Open(db)
	if err != nil {
		t.Fatal(err)
	}
	sessions.Declare([]string{"laptop"})
	limits := approval.DefaultLimits()
	limits.Wait = 0
	approvals, err := approval.Open(db, sessions, limits)
	if err != nil {
		t.Fatal(err)
	}
	grants, err := grant.Open(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := pins.Open(filepath.Join(dir, "pins"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, shelf: shelf{Sessions: sessions}}
	b.Desk = &Desk{
		Undo:      &b.shelf,
		Approvals: approvals, Grants: grants, Sessions: sessions, Pins: store, Log: slog.New(slog.DiscardHandler),
		Mask: func(text []byte) ([]byte, []string) {
			return []byte(strings.ReplaceAll(string(text), "hunter2", "[redacted: token]")), []string{"token"}
		},
		Record: func(a Act) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.acts = append(b.acts, a)
			return b.broken
		},
	}
	l, err := net.Listen("unix", filepath.Join(dir, "operator.sock"))
	if err != nil {
		t.Fatal(err)
	}
	b.server = b.HTTP()
	go b.server.Serve(l)
	t.Cleanup(func() { b.server.Close() })
	b.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}}}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

func (b *bench) do(method, path, body string) (int, string) {
	b.t.Helper()
	r, err := http.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// waiting is a call that waits.
func (b *bench) waiting(arguments string) approval.Shown {
	b.t.Helper()
	r := approval.Request{
		Client: "laptop", Session: "default", Server: "mail", Name: "send", Method: "tools/call", Arguments: []byte(arguments), Pin: "pin", Policy: "policy",
		Facts:    gate.Facts{Audience: gate.Public},
		Unshown:  operator.Unshown{Plain: gate.Facts{Audience: gate.Public}},
		Decision: gate.Decision{Verdict: gate.Ask, Rule: "rule", Profile: "strict", Data: gate.Start},
	}
	o, err := b.Approvals.Ask(b.t.Context(), r, func() (approval.Request, error) { return r, nil }, nil)
	if err != nil || o.State != approval.Pending {
		b.t.Fatalf("%+v, %v", o, err)
	}
	shown, err := b.Approvals.Show(o.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return shown
}

// TestStrangers: whom the kernel does not name, or the desk does not allow, is told nothing and changes nothing.
func TestStrangers(t *testing.T) {
	b := newBench(t)
	shown := b.waiting(`{}`)
	requests := [][3]string{
		{"GET", "/approvals", ""}, {"GET", "/approvals/" + shown.ID, ""}, {"POST", "/approvals/" + shown.ID + "/approve", `{"digest":"` + shown.Digest + `"}`},
		{"POST", "/approvals/" + shown.ID + "/deny", "{}"}, {"GET", "/approvals/watch", ""}, {"GET", "/grants", ""}, {"GET", "/sessions", ""},
		{"POST", "/sessions", `{"client":"laptop"}`}, {"POST", "/sessions/laptop/default/reset", ""}, {"GET", "/stains", ""}, {"GET", "/pins", ""}, {"POST", "/pins/x/accept", "{}"}, {"GET", "/", ""},
	}
	h := b.handler(t.Context())
	for _, q := range requests { // not through a Unix socket
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(q[0], q[1], strings.NewReader(q[2])))
		if w.Code != http.StatusForbidden {
			t.Errorf("%q: %d %s", q, w.Code, w.Body)
		}
	}
	if now, err := b.Approvals.Show(shown.ID); err != nil || now.State != approval.Pending || len(b.acts) != 0 {
		t.Errorf("%+v, %v, %+v", now, err, b.acts)
	}
}

// TestRefuses: what is not meant is not done.
func TestRefuses(t *testing.T) {
	b := newBench(t)
	shown := b.waiting(`{}`)
	at := "/approvals/" + shown.ID
	for _, c := range []struct {
		method, path, body string
		status             int
		text               string
	}{
		{"POST", at + "/approve", ``, 409, "another call"},
		{"POST", at + "/approve", `{}`, 409, "another call"},
		{"POST", at + "/approve", `{"digest":""}`, 409, "another call"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest[:63] + `0x"}`, 409, "another call"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `","all":true}`, 400, "unknown field"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `"}{}`, 400, "behind it"},
		{"POST", at + "/approve", `[]`, 400, "not understood"},
		{"POST", at + "/approve", `{"digest":"` + strings.Repeat("x", maxBody) + `"}`, 400, "too large"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `","grant":{"seconds":59}}`, 409, "for 60 to 28800 seconds"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `","grant":{"seconds":-9223372036854775807}}`, 409, "for 60 to 28800 seconds"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `","grant":{"seconds":99999999999}}`, 409, "for 60 to 28800 seconds"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `","grant":{"calls":-1}}`, 409, "1 to 200 calls"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `","grant":{"bytes":1048576}}`, 409, "1 to 65536 bytes"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `","grant":{"tool":"send"}}`, 400, "unknown field"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest + `","grant":{"public":true}}`, 409, "not known to only read"},
		{"POST", at + "/approve", `{"digest":"` + shown.Digest[1:] + `0","grant":{}}`, 409, "another call"},
		{"POST", at + "/deny", `{"reason":"` + strings.Repeat("x", maxReason+1) + `"}`, 400, "at most"},
		{"POST", at + "/deny", `{"approve":true}`, 400, "unknown field"},
		{"GET", at + "/approve", ``, 405, ""},
		{"GET", at + "/deny", ``, 405, ""},
		{"DELETE", at, ``, 405, ""},
		{"POST", "/approvals", `{}`, 405, ""},
		{"POST", "/approvals/approve", `{}`, 405, ""},
		{"POST", "/approvals/" + shown.ID[:6] + "/approve", `{"digest":"` + shown.Digest + `"}`, 404, "no call of this id"},
		{"GET", "/approvals/" + shown.ID[:6], ``, 404, "no call of this id"},
		{"POST", "/grants/" + shown.ID + "/revoke", ``, 404, "no grant has this id"},
		{"POST", "/sessions", `{"client":"nobody"}`, 404, "not declared"},
		{"POST", "/sessions", `{"client":"laptop","label":"public"}`, 400, "unknown field"},
		{"POST", "/sessions/nobody/default/reset", ``, 404, "no such session"},
		{"GET", "/sessions/laptop/x", ``, 404, "no such session"},
		{"GET", "/sessions/laptop/default/reset", ``, 405, ""},
		{"POST", "/stains/mail/clear", ``, 404, "no stain"},
		{"GET", "/nothing", ``, 404, ""},
	} {
		if status, body := b.do(c.method, c.path, c.body); status != c.status || !strings.Contains(body, c.text) {
			t.Errorf("%s %s %.80s: %d %s, want %d %s", c.method, c.path, c.body, status, body, c.status, c.text)
		}
	}
	if now, err := b.Approvals.Show(shown.ID); err != nil || now.State != approval.Pending || len(b.Grants.List()) != 0 {
		t.Errorf("%+v, %v", now, err)
	}
	if len(b.acts)%2 != 0 {
		t.Errorf("%+v", b.acts)
	}
	for i, a := range b.acts { // before, and that it failed
		if (a.Failed == "") != (i%2 == 0) {
			t.Errorf("%+v", a)
		}
	}
}

// TestActs: what is done is told with who did it, as the kernel says.
func TestActs(t *testing.T) {
	b := newBench(t)
	yes, no := b.waiting(`{"password":"hunter2"}`), b.waiting(`{"n":2}`)
	for _, path := range []string{"/approvals", "/approvals/" + yes.ID} {
		if status, body := b.do("GET", path, ""); status != 200 || strings.Contains(body, "hunter2") || !strings.Contains(body, `"masked":["token"]`) {
			t.Errorf("%d %s", status, body)
		}
	}
	raw := gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}
	if err := b.Sessions.Stain("notion", raw, label.Source{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ path, body string }{
		{"/approvals/" + yes.ID + "/approve", `{"digest":"` + yes.Digest + `","grant":{"seconds":60,"calls":3}}`}, {"/approvals/" + no.ID + "/deny", `{"reason":"no"}`},
		{"/sessions", `{"client":"laptop"}`}, {"/sessions/laptop/default/reset", ""}, {"/sessions/laptop/default/thaw", ""}, {"/stains/notion/clear", ""},
	} {
		if status, body := b.do("POST", c.path, c.body); status != 200 {
			t.Errorf("%s: %d %s", c.path, status, body)
		}
	}
	list, err := b.Approvals.History(9)
	if err != nil || len(list) != 2 || list[1].By == nil || list[1].By.UID != os.Getuid() || list[1].By.Channel != channel {
		t.Errorf("%+v, %v", list, err)
	}
	b.revokes(t)
	var verbs []string
	for _, a := range b.acts {
		verbs = append(verbs, a.Verb)
		if a.By.UID != os.Getuid() || a.By.Name == "" || a.Failed != "" || a.Subject == "" {
			t.Errorf("%+v", a)
		}
		if client, handle, _ := strings.Cut(a.Subject, "/"); strings.HasSuffix(a.Verb, "-session") && !b.Sessions.Known(client, handle) {
			t.Errorf("%s of %q, which is no session", a.Verb, a.Subject)
		}
	}
	if got := strings.Join(verbs, " "); got != "approve deny new-session reset-session thaw-session clear-stain revoke-grant revoke-grant" {
		t.Error(got)
	}
}

// revokes has a grant of the default session, and one more, shown and revoked.
func (b *bench) revokes(t *testing.T) {
	t.Helper()
	if list := b.Grants.List(); len(list) != 0 {
		t.Errorf("the session was reset, and there is %+v", list)
	}
	again := b.waiting(`{"n":3}`)
	draft, err := b.Grants.Draft(&again.Request, operator.GrantTerms{}, approval.Approver{UID: os.Getuid()})
	if err != nil || b.Grants.Add(draft) != nil {
		t.Fatal(err)
	}
	if _, body := b.do("GET", "/grants", ""); !strings.Contains(body, draft.ID) || !strings.Contains(body, `"calls":20,"bytes":4096,"used":0`) {
		t.Error(body)
	}
	for _, path := range []string{"/grants/" + draft.ID + "/revoke", "/grants/revoke"} {
		if status, body := b.do("POST", path, ""); status != 200 || len(b.Grants.List()) != 0 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// shelf tells what there is to be restored, and notes what the stain is when that is done.
type shelf struct {
	*label.Sessions
	stained gate.Label
}

func (s *shelf) Undo(_ context.Context, server string, q handover.Undo) (handover.History, error) {
	if q.Restore {
		s.stained = s.Stained(server)
		_ = s.Clear(server) // as another operator, meanwhile
	}
	return handover.History{Restores: []handover.Change{{Path: "/srv/a"}}, Folders: []string{"/srv"}}, nil
}

// TestStainReturns: a restore puts a stain back that was cleared, before it is done and after, and says so. Where it
// cannot, nothing is restored.
func TestStainReturns(t *testing.T) {
	b := newBench(t)
	s := &b.shelf
	if _, body := b.do("POST", "/undo/files", `{"path":"/srv/a"}`); strings.Contains(body, "stain") || s.stained.Known() {
		t.Errorf("of a server without a stain: %s, %s", s.stained, body)
	}
	raw := gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}
	if err := b.Sessions.Stain("files", raw, label.Source{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Sessions.Clear("files"); err != nil {
		t.Fatal(err)
	}
	if _, body := b.do("GET", "/undo/files?path=/srv/a", ""); !strings.Contains(body, `"stain":"`+raw.String()) {
		t.Error(body)
	}
	if b.Sessions.Stained("files").Known() {
		t.Error("whoever looks puts it back")
	}
	var acts []Act
	b.Record = func(a Act) error {
		acts = append(acts, a)
		return nil
	}
	_, body := b.do("POST", "/undo/files", `{"path":"/srv/a"}`)
	if want := `"/srv/a", the stain ` + raw.String() + " returns"; len(acts) != 1 || acts[0].Detail != want {
		t.Errorf("%+v is recorded, not %s", acts, want)
	}
	if now := b.Sessions.Stained("files"); s.stained != raw || now != raw || !strings.Contains(body, raw.String()) {
		t.Errorf("while it is restored %s, then %s, %s", s.stained, now, body)
	}
	s.stained = gate.Label{}
	b.Record = func(Act) error { return errors.New("the disk is full") }
	if status, body := b.do("POST", "/undo/files", `{"path":"/srv/a"}`); status == 200 || s.stained.Known() {
		t.Errorf("%d, %s", status, body)
	}
}

// TestUnrecorded: what cannot be recorded is not done, but for what makes things stricter.
func TestUnrecorded(t *testing.T) {
	b := newBench(t)
	yes, no := b.waiting(`{"n":1}`), b.waiting(`{"n":2}`)
	raw := gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}
	if err := b.Sessions.Stain("notion", raw, label.Source{}); err != nil {
		t.Fatal(err)
	}
	b.broken = errors.New("no space left")
	for _, c := range []struct{ path, body string }{
		{"/approvals/" + yes.ID + "/approve", `{"digest":"` + yes.Digest + `"}`}, {"/sessions", `{"client":"laptop"}`},
		{"/sessions/laptop/default/reset", ""}, {"/sessions/laptop/default/thaw", ""}, {"/stains/notion/clear", ""}, {"/approvals/" + no.ID + "/deny", ""},
	} {
		if status, body := b.do("POST", c.path, c.body); status == 200 || !strings.Contains(body, "no space left") {
			t.Errorf("%s: %d %s", c.path, status, body)
		}
	}
	list, err := b.Sessions.List()
	if err != nil || len(list) != 1 || b.Sessions.Stained("notion") != raw {
		t.Errorf("%+v, %v", list, err)
	}
	if now, err := b.Approvals.Show(yes.ID); err != nil || now.State != approval.Pending {
		t.Errorf("%+v, %v", now, err)
	}
	if now, err := b.Approvals.Show(no.ID); err == nil {
		t.Errorf("it waits yet: %+v", now)
	}
}

// TestWatch is a stream of what is open and what changes, without secrets; it ends with the server.
func TestWatch(t *testing.T) {
	b := newBench(t)
	first := b.waiting(`{"password":"hunter2"}`)
	resp, err := b.client.Get("http://localhost/approvals/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func(kind, id string) {
		t.Helper()
		var e struct{ Kind string }
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &e) != nil || e.Kind != kind || !strings.Contains(lines.Text(), id) || strings.Contains(lines.Text(), "hunter2") {
			t.Fatalf("%s, want %s of %s", lines.Text(), kind, id)
		}
	}
	next("pending", first.ID)
	second := b.waiting(`{"n":1}`)
	next("pending", second.ID)
	b.do("POST", "/approvals/"+second.ID+"/deny", "")
	next("denied", second.ID)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := b.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if lines.Scan() {
		t.Errorf("after the end: %s", lines.Text())
	}
}

// TestEnd: whoever has something open under a session hears that it has ended, also if that cannot be written down.
func TestEnd(t *testing.T) {
	b := newBench(t)
	ended := 0
	b.Ended = func() { ended++ }
	var made struct{ Handle string }
	_, body := b.do("POST", "/sessions", `{"client":"laptop"}`)
	if err := json.Unmarshal([]byte(body), &made); err != nil || !b.Sessions.Known("laptop", made.Handle) {
		t.Fatal(body, err)
	}
	b.broken = errors.New("the disk is full")
	if status, body := b.do("POST", "/sessions/laptop/"+made.Handle+"/end", ""); status < 500 || ended != 0 || !b.Sessions.Known("laptop", made.Handle) {
		t.Errorf("without a record: %d %s, %d", status, body, ended)
	}
	b.broken = nil
	if status, body := b.do("POST", "/sessions/laptop/"+made.Handle+"/end", ""); status != 200 || ended != 1 || b.Sessions.Known("laptop", made.Handle) {
		t.Errorf("%d %s, %d", status, body, ended)
	}
}
