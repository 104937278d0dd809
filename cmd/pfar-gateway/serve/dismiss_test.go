package serve

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// TestDismissedWhileTheyWait: a call that waits for an approval is denied at once when its client may not make it any
// more, and no yes that comes later has it run.
func TestDismissedWhileTheyWait(t *testing.T) {
	desk := func(edit func(*access.Client)) []access.Client {
		c := declared("desk", deskToken, "one")
		c.Profile = "strict"
		edit(&c)
		return []access.Client{c, declared("lab", labToken+"2", "one")}
	}
	same := desk(func(*access.Client) {})
	for name, learn := range map[string]func(*gateway, string){
		"removed":  func(g *gateway, _ string) { g.srv.Learn(same[1:]) },
		"disabled": func(g *gateway, _ string) { g.srv.Learn(desk(func(c *access.Client) { c.Enabled = false })) },
		"another token": func(g *gateway, _ string) {
			g.srv.Learn(desk(func(c *access.Client) { c.Tokens[0] = access.DigestOf([]byte(labToken)) }))
		},
		"no servers": func(g *gateway, _ string) { g.srv.Learn(desk(func(c *access.Client) { c.Servers = nil })) },
		"a hidden tool": func(g *gateway, _ string) {
			g.srv.Learn(desk(func(c *access.Client) { c.Hide = []string{"one.echo"} }))
		},
		"another profile":       func(g *gateway, _ string) { g.srv.Learn(desk(func(c *access.Client) { c.Profile = "clean-room" })) },
		"an end of its session": func(g *gateway, handle string) { g.end(t, handle) },
	} {
		for _, modern := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", modern"}[modern], func(t *testing.T) {
				g := start(t, DefaultLimits())
				g.srv.Learn(same)
				s := g.Launch(t, handover.Server{Name: "one", Declared: untold}, everything())
				s.Ready(t)
				for len(s.Lines) > 0 {
					<-s.Lines
				}
				handle := label.Handle()
				if err := g.srv.calls.Gate.Sessions.New("desk", handle); err != nil {
					t.Fatal(err)
				}
				raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
				if _, _, err := g.srv.calls.Gate.Sessions.Raise("desk", handle, raw, label.Source{Server: "notes"}); err != nil {
					t.Fatal(err)
				}
				path := "/mcp/desk/" + handle
				send := func() <-chan string {
					answer := make(chan string, 1)
					if modern {
						go func() {
							answer <- g.as(deskToken).modern(t, path, "tools/call", "one__echo", `"name":"one__echo","arguments":{"message":"m"}`, `{}`)
						}()
						return answer
					}
					c := g.as(deskToken).session(t, path)
					go func() { answer <- c.call(t, "tools/call", `{"name":"one__echo","arguments":{"message":"m"}}`) }()
					return answer
				}
				answer := send()
				open := g.pending(t)
				learn(g, handle)
				select {
				case got := <-answer:
					if strings.Contains(got, `"content":[{"type":"text","text":"m"`) || !strings.Contains(got, "has not run") && !strings.Contains(got, `"error"`) {
						t.Errorf("got %s", got)
					}
				case <-time.After(registrytest.Patience):
					t.Fatal("it waits on")
				}
				for _, left := range g.srv.calls.Gate.Approvals.List() {
					t.Errorf("%s is left, %s", left.ID, left.State)
				}
				if err := g.srv.calls.Gate.Approvals.Answer(open.ID, approval.Answer{Approve: true, Digest: open.Digest}, approval.Approver{}); err == nil {
					t.Error("it is approved")
				}
				g.srv.Learn(same)
				if name != "an end of its session" { // it is asked anew
					again := send()
					if now := g.pending(t); now.ID == open.ID {
						t.Error("the old question stands again")
					} else {
						g.answer(t, now, false)
					}
					<-again
				}
				for len(s.Lines) > 0 {
					if line := <-s.Lines; strings.Contains(line, "tools/call") {
						t.Errorf("the server was sent %s", line)
					}
				}
			})
		}
	}
}

// end ends a session as the operator does.
func (g *gateway) end(t *testing.T, handle string) {
	t.Helper()
	g.srv.calls.Gate.Approvals.Forget("desk", handle)
	if err := g.srv.calls.Gate.Sessions.End("desk", handle); err != nil {
		t.Fatal(err)
	}
	g.srv.Unmint()
}

// TestDismissedWhileParked: the record of a call that waits for its client to come back is closed as soon as that may
// not.
func TestDismissedWhileParked(t *testing.T) {
	one := []access.Client{declared("desk", deskToken, "one")}
	for name, then := range map[string][]access.Client{
		"removed": nil, "another token": {declared("desk", labToken, "one")}, "no servers": {declared("desk", deskToken)},
	} {
		t.Run(name, func(t *testing.T) {
			g := start(t, DefaultLimits())
			trail := &ending{Trail: g.srv.calls.Gate.Trail, outcomes: make(chan string, 8)}
			g.srv.calls.Gate.Trail = trail
			cancelled := make(chan struct{}, 1)
			g.Launch(t, handover.Server{Name: "one", Declared: untold, Capabilities: everyCapability}, registrytest.Script{On: func(s *registrytest.Server, m jsonrpc.Message) bool {
				switch m.Method {
				case "tools/call":
					s.Say(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Name?","requestedSchema":{}}}`)
				case "notifications/cancelled":
					cancelled <- struct{}{}
				default:
					return false
				}
				return true
			}}).Ready(t)
			g.srv.Learn(one)
			if got := g.as(deskToken).modern(t, "/mcp/one", "tools/call", "echo", `"name":"echo","arguments":{"message":"m"}`, `{"elicitation":{}}`); !strings.Contains(got, "pfar-call-") {
				t.Fatal(got)
			}
			g.srv.Learn(then)
			select {
			case got := <-trail.outcomes:
				if got != "denied" {
					t.Errorf("its record says %s", got)
				}
			case <-time.After(registrytest.Patience):
				t.Fatal("its record is not closed")
			}
			<-cancelled
			if n, places := g.srv.calls.Parking.Len(); n != 0 || places != 0 {
				t.Errorf("%d wait, in %d places", n, places)
			}
		})
	}
}

// TestEndedSession: what is open under a session that the operator ends is over at once, and nobody goes on with it.
func TestEndedSession(t *testing.T) {
	g := start(t, DefaultLimits())
	hung := make(chan struct{}, 2)
	slow := kinds("one")
	slow.On = hang(hung)
	g.Launch(t, handover.Server{Name: "one"}, slow).Ready(t)
	g.srv.Learn([]access.Client{declared("desk", deskToken, "one")})
	handle := label.Handle()
	if err := g.srv.calls.Gate.Sessions.New("desk", handle); err != nil {
		t.Fatal(err)
	}
	d := g.as(deskToken)
	kept, c := d.session(t, "/mcp"), d.session(t, "/mcp/desk/"+handle)
	stream := c.stream(t, c.request(t, "GET", c.path, "", c.with))
	inFlight := make(chan string, 2)
	go func() { inFlight <- c.call(t, "tools/call", `{"name":"one__one-read"}`) }()
	go func() { inFlight <- d.modern(t, c.path, "tools/call", "one__one-read", `"name":"one__one-read"`, `{}`) }()
	<-hung
	<-hung
	g.end(t, handle)
	closed(t, stream)
	for range 2 {
		select {
		case got := <-inFlight:
			if !strings.Contains(got, `"error"`) {
				t.Errorf("a call in flight: %s", got)
			}
		case <-time.After(registrytest.Patience):
			t.Fatal("a call goes on")
		}
	}
	if resp := c.request(t, "POST", c.path, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, c.with); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the session goes on: %d", resp.StatusCode)
	}
	if body := kept.call(t, "ping", "{}"); body != result("{}") {
		t.Errorf("another session of the client: %s", body)
	}
}

// TestOthersWaitOn: what changes for others, or nothing that counts for a call, leaves the call that waits for an
// approval as it is, however its client has shown who it is.
func TestOthersWaitOn(t *testing.T) {
	for name, edit := range map[string]func(*access.Client){
		"sticky": func(*access.Client) {}, "of a connection": func(c *access.Client) { c.Sessions = access.Connection },
	} {
		for who, path := range map[string]string{"token": "/mcp", "unix": "/mcp", "acting": "/mcp/desk/default"} {
			t.Run(name+", "+who, func(t *testing.T) {
				g := start(t, DefaultLimits())
				desk := declared("desk", deskToken, "one")
				desk.Profile = "strict"
				edit(&desk)
				in, client := g.as(deskToken), "desk"
				switch who {
				case "unix":
					in, client = g.onUnix(t), access.Default
					desk.Name, desk.Tokens = client, nil
				case "acting":
					in = g.onUnix(t)
				}
				g.srv.Learn([]access.Client{desk, declared("lab", labToken, "one")})
				g.Launch(t, handover.Server{Name: "one", Declared: untold}, everything()).Ready(t)
				c := in.session(t, path)
				raw := gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Raw}
				for _, s := range g.srv.sessions.All() {
					who, _ := g.srv.IdentityOf(s.Bound(), s.Label)
					if _, _, err := g.srv.calls.Gate.Sessions.Raise(client, who.Handle, raw, label.Source{Server: "notes"}); err != nil {
						t.Fatal(err)
					}
				}
				answer := make(chan string, 1)
				go func() { answer <- c.call(t, "tools/call", `{"name":"one__echo","arguments":{"message":"m"}}`) }()
				open := g.pending(t)
				desk.Relax, desk.Servers = "a test", []string{"one", "two"}
				g.srv.Learn([]access.Client{desk})
				g.srv.Unmint()
				if now := g.pending(t); now.ID != open.ID {
					t.Fatalf("another call waits: %s", now.ID)
				}
				g.answer(t, open, true)
				if got := <-answer; !strings.Contains(got, `"text":"`) || strings.Contains(got, "has not run") {
					t.Errorf("got %s", got)
				}
			})
		}
	}
}
