package serve

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry/registrytest"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/quota"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// counting counts records, and has those of questions that were refused.
type counting struct {
	enforce.Trail
	all     atomic.Int64
	refused chan audit.Record
}

func (c *counting) Open(r *audit.Record) error {
	c.all.Add(1)
	if strings.Contains(r.Reason, "no call is about") || r.Left > 0 {
		c.refused <- *r
	}
	return c.Trail.Open(r)
}

func (c *counting) Close(r *audit.Record) error { c.all.Add(1); return c.Trail.Close(r) }

// TestUnbiddenQuestions: a server that asks its client without end, when no call is about it, fills no audit: what is
// too much is refused, and recorded once, with how many it was. Another server's questions are its own.
func TestUnbiddenQuestions(t *testing.T) {
	const many = 500
	answers := make(chan string, many)
	g, o := ownGateway(t, handover.Sessions{Own: true, Max: 2}, registrytest.Script{On: func(_ *registrytest.Server, m jsonrpc.Message) bool {
		if m.Method == "" {
			answers <- string(m.Error)
		}
		return m.Method == ""
	}})
	trail := &counting{Trail: g.srv.calls.Gate.Trail, refused: make(chan audit.Record, 8)}
	g.srv.calls.Gate.Trail = trail
	c := g.sessionThat(t, "/mcp/s", `{"sampling":{}}`)
	c.call(t, "tools/call", `{"name":"echo","arguments":{"message":"m"}}`)
	before := trail.all.Load()
	o.mu.Lock()
	var server *registrytest.Launched
	for _, server = range o.opened {
	}
	o.mu.Unlock()
	refused, asked, begun := 0, 0, time.Now()
	for i := range many { // the client is not capable of it: each is answered at once
		server.Say(`{"jsonrpc":"2.0","id":"q%d","method":"roots/list"}`, i)
		if got := <-answers; strings.Contains(got, fmt.Sprint(-32011)) {
			refused++
		} else {
			asked++
		}
	}
	if asked < quota.AtOnce || asked > quota.AtOnce+int(time.Since(begun)/unbiddenEvery)+1 || refused != many-asked {
		t.Errorf("%d questions of %d were refused", refused, many)
	}
	if n := trail.all.Load() - before; n != int64(2*asked) {
		t.Errorf("%d records of %d questions that were put", n, asked)
	}
	g.srv.unbidden.Flush() // as after a minute, or when the gateway stops
	g.srv.unbidden.Flush()
	if r := <-trail.refused; r.Server != "s" || r.Outcome != "denied" || r.Left != int64(refused-1) || len(trail.refused) != 0 {
		t.Errorf("%+v, and %d more", r, len(trail.refused))
	}
	if !g.srv.unbidden.Allow("other") || g.srv.unbidden.Allow("s") {
		t.Error("one server's questions are another's")
	}
}

// TestMissedRequests: a client that asks without end for what there is not fills no audit: beyond some, how many it
// were is recorded, and another client's are its own. Each is answered as before.
func TestMissedRequests(t *testing.T) {
	const many = 500
	g := start(t, DefaultLimits())
	g.srv.Learn([]access.Client{declared("desk", deskToken, "*"), declared("lab", labToken, "*")})
	trail := &counting{Trail: g.srv.calls.Gate.Trail, refused: make(chan audit.Record, 8)}
	g.srv.calls.Gate.Trail = trail
	desk, lab := g.as(deskToken), g.as(labToken)
	c := desk.session(t, "/mcp")
	name, begun := strings.Repeat("x", 10<<10), time.Now()
	for i := range many {
		if got := c.call(t, "tools/call", fmt.Sprintf(`{"name":"%s%d","arguments":{}}`, name, i)); !strings.Contains(got, `"error"`) {
			t.Fatal(got)
		}
	}
	recorded := trail.all.Load()
	if recorded < quota.AtOnce || recorded > quota.AtOnce+int64(time.Since(begun)/missedEvery)+1 {
		t.Errorf("%d records of %d requests for nothing", recorded, many)
	}
	g.srv.calls.Misses.Flush() // as after a minute, or when the gateway stops
	g.srv.calls.Misses.Flush()
	if r := <-trail.refused; r.Client != "desk" || r.Outcome != "denied" || r.Left != many-recorded-1 || len(trail.refused) != 0 {
		t.Errorf("%+v, and %d more", r, len(trail.refused))
	}
	lab.session(t, "/mcp").call(t, "tools/call", `{"name":"nothing"}`)
	if n := trail.all.Load(); n != recorded+2 {
		t.Errorf("%d records after another client's request", n)
	}
}

// TestDrainLogsWhatWasLeftOut: how many calls have no entry in the log is in it, though the gateway stops before the
// minute is over.
func TestDrainLogsWhatWasLeftOut(t *testing.T) {
	g := start(t, DefaultLimits())
	more := make(map[string]int64)
	entries := g.srv.calls.Log.Entries
	entries.Every, entries.Record = time.Hour, func(kind string, n int64) { more[kind] += n }
	for range quota.AtOnce + 3 {
		entries.Allow("tools/call")
	}
	g.srv.Drain(t.Context())
	if len(more) != 1 || more["tools/call"] != 3 {
		t.Errorf("%v, want 3 calls", more)
	}
}
