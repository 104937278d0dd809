package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/loopback/loopbacktest"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/processes"
)

// bridged returns connections at whose other ends serve speaks as a bridge.
func bridged(t *testing.T, serve func(net.Conn)) func() *os.File {
	return func() *os.File {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Error(err)
			return nil
		}
		ours := os.NewFile(uintptr(pair[0]), "bridge")
		defer ours.Close()
		conn, err := net.FileConn(ours)
		if err != nil {
			t.Error(err)
			return nil
		}
		go serve(conn)
		return os.NewFile(uintptr(pair[1]), "bridge")
	}
}

// tells writes messages of a bridge, and hangs up.
func tells(messages ...monitor.Message) func(net.Conn) {
	return func(c net.Conn) {
		e := json.NewEncoder(c)
		for _, m := range messages {
			_ = e.Encode(m) // who has enough hangs up
		}
		c.Close()
	}
}

// costs has pfard say what the server notes costs, and where its bridges are.
func costs(used time.Duration, at time.Time, bridges ...string) attach.Usage {
	return attach.Usage{
		At: at, Cost: &processes.Cost{Memory: 84 << 20, Used: used, Count: 3}, Bridges: bridges,
	}
}

// TestUsage: the page of a server that is up shows what it costs and its open connections, and no others. A server
// that stands still has none of that, and pfard is not asked.
func TestUsage(t *testing.T) {
	o := openServers(t)
	up := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	now := reported()
	now.Servers[1].Since = up
	o.site.runs.set(now)
	table := monitor.NewTable("")
	begun := up.Add(time.Minute)
	table.Begin(monitor.Connection{
		Path: monitor.Redirect, Protocol: "tls", Host: "api.notes.example:443", Address: "192.0.2.7:443", Verdict: "allow",
		Time: begun,
	}, func() (int64, int64) { return 2048, 30 << 10 })
	table.Begin(monitor.Connection{Host: "over.example:443"}, nil).End(nil)
	table.Refuse(monitor.Connection{Host: "refused.example:443", Verdict: "deny"})
	serve := bridged(t, func(c net.Conn) { _ = table.Serve(t.Context(), c) })
	look := func(used time.Duration, at time.Time) string {
		o.views(map[string]any{"usage notes": costs(used, at, "notes"), "bridge notes": serve})
		return html.UnescapeString(o.page("server/notes"))
	}
	if page := look(time.Second, up.Add(minApart/2)); !strings.Contains(page, ">not measured yet<") {
		t.Errorf("just after the start: %s", page)
	}
	page := look(30*time.Second, up.Add(100*time.Second))
	for _, want := range []string{
		">84 MiB<", ">30% of one processor, on average since it is up<", ">processes<", ">3<", ">api.notes.example:443<",
		"since " + moment(begun) + ", sent 2.0 KiB, received 30 KiB, redirect tls to 192.0.2.7:443", `data-reload="yes"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, page)
		}
	}
	for _, not := range []string{"over.example", "refused.example", "Not all are listed", "does not answer"} {
		if strings.Contains(page, not) {
			t.Errorf("it has %q: %s", not, page)
		}
	}
	if page := look(32*time.Second, up.Add(104*time.Second)); !strings.Contains(page, ">50% of one processor<") {
		t.Errorf("the second time: %s", page)
	}

	page = html.UnescapeString(o.page("server/mail"))
	o.views(map[string]any{"usage notes": attach.Usage{}})
	page += html.UnescapeString(o.page("server/notes"))
	if strings.Contains(page, "Open connections") || strings.Contains(page, "Not everything is shown") {
		t.Errorf("servers that stand still: %s", page)
	}
}

// TestUsageOfMany: a page shows the newest connections of all bridges, a bounded number of them, and says that there
// are others. A bridge that does not answer is named, and so is one that does not stop.
func TestUsageOfMany(t *testing.T) {
	o := openServers(t)
	open := func(n int) (list []monitor.Message) {
		for i := range n {
			c := monitor.Connection{Open: true, Host: fmt.Sprintf("h%d.example:443", i)}
			list = append(list, monitor.Message{Connection: &c})
		}
		return list
	}
	many := append(open(3*(maxFlows+maxOlder)), monitor.Message{Synced: true})
	use := costs(0, time.Now(), "notes", "notes_k7", "notes_k8", "notes_k9")
	o.views(map[string]any{
		"usage notes": use, "bridge notes": bridged(t, tells(many...)), "bridge notes_k7": errors.New("it is <b>gone</b>"),
		"bridge notes_k8": bridged(t, tells()), "bridge notes_k9": bridged(t, tells(open(maxTold+1)...)),
	})
	page := html.UnescapeString(o.page("server/notes"))
	if n := strings.Count(page, ".example:443<"); n != maxFlows+maxOlder ||
		!strings.Contains(page, "Not all are listed. Run pfar egress notes") {
		t.Errorf("%d connections: %s", n, page)
	}
	for instance, silent := range map[string]bool{"notes": false, "notes_k7": true, "notes_k8": true, "notes_k9": true} {
		if strings.Contains(page, ">"+instance+"</span> does not answer") != silent {
			t.Errorf("%s: %s", instance, page)
		}
	}
	var kept flows
	for range 3 * (maxFlows + maxOlder) {
		kept.add(monitor.Connection{Open: true})
	}
	if n := len(kept.newest); n > maxFlows+maxOlder {
		t.Errorf("%d connections are kept for a page", n)
	}
	long := monitor.Connection{Open: true, Host: strings.Repeat("x", 60<<10)}
	use.Bridges = []string{"notes"}
	serve := bridged(t, tells(monitor.Message{Connection: &long}, monitor.Message{Synced: true}))
	o.views(map[string]any{"usage notes": use, "bridge notes": serve})
	if page := o.page("server/notes"); len(page) > 32<<10 || !strings.Contains(page, "xxx...") {
		t.Errorf("a host of %d bytes makes a page of %d", len(long.Host), len(page))
	}
}

// TestShare: the share of processors is of the time since an earlier measurement that is neither too close nor too old,
// however often a page asks.
func TestShare(t *testing.T) {
	r := newRunning()
	r.set(&control.Report{Servers: []control.Server{{Name: "notes"}}})
	start := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		at, used time.Duration // since the start
		share    float64
		known    bool
	}{
		{0, 10 * time.Second, 0, false}, {100 * time.Millisecond, 10 * time.Second, 0, false},
		{5 * time.Second, 11 * time.Second, 0.2, true},
		{5100 * time.Millisecond, 11*time.Second + 20*time.Millisecond, 0.2, true},
		{10 * time.Second, 11 * time.Second, 0, true}, {15 * time.Second, time.Second, 0, false}, // it was started again
		{2 * time.Minute, 2 * time.Second, 0, false},
	} {
		share, known := r.share("notes", spent{start.Add(tt.at), tt.used})
		if known != tt.known || known && (share < tt.share-1e-9 || share > tt.share+1e-9) {
			t.Errorf("after %v: %v, %v, want %v, %v", tt.at, share, known, tt.share, tt.known)
		}
	}
	r.set(&control.Report{})
	if len(r.samples) > 0 {
		t.Error("what a server cost that is gone stays")
	}
}

// TestLookOfUsage: a page is out of date when a connection opens or closes and when the cost changes much, and not
// whenever a byte passes.
func TestLookOfUsage(t *testing.T) {
	o := openServers(t)
	look := func(memory uint64, bytes int64, hosts ...string) string {
		use := costs(0, time.Time{}, "notes")
		use.Cost.Memory = memory
		messages := []monitor.Message{}
		for _, host := range hosts {
			messages = append(messages, monitor.Message{Connection: &monitor.Connection{Open: true, Host: host, Sent: bytes}})
		}
		serve := bridged(t, tells(append(messages, monitor.Message{Synced: true})...))
		o.views(map[string]any{"usage notes": use, "bridge notes": serve})
		c, err := o.site.serverPage(t.Context(), o.site.sessions[0], "notes")
		if err != nil {
			t.Fatal(err)
		}
		return c.fingerprint()
	}
	first := look(84<<20, 7, "a.example:443")
	if look(84<<20+5, 8, "a.example:443") != first {
		t.Error("a byte makes another page")
	}
	for name, other := range map[string]string{
		"a connection": look(84<<20, 7, "a.example:443", "b.example:443"), "none": look(84<<20, 7),
		"more memory": look(184<<20, 7, "a.example:443"),
	} {
		if other == first {
			t.Errorf("%s makes no other page", name)
		}
	}
}

// TestHostileUsage is TestHostileTexts for connections: a server asks for what it likes, and a bridge may be taken
// over.
func TestHostileUsage(t *testing.T) {
	o := openServers(t)
	look := func(text string) []string {
		c := monitor.Connection{
			Open: true, Host: text, Address: text, Path: monitor.Path(text), Protocol: text, Reason: text, Sent: -1 << 62,
		}
		serve := bridged(t, tells(monitor.Message{Connection: &c}, monitor.Message{Synced: true}))
		use := costs(-1<<62, time.Time{}, "notes", text)
		use.Cost.Memory = 1 << 63
		o.views(map[string]any{"usage notes": use, "bridge notes": serve})
		a := o.do("GET", o.home+"server/notes", "")
		guarded(t, a.h)
		plainText(t, fmt.Sprintf("%.60q", text), a.text)
		return shape(t, a.text)
	}
	want := look("plain")
	for _, text := range loopbacktest.PayloadsOf("usage", loopbacktest.Many) {
		text = text[:min(len(text), 1<<10)] // a message has a bound
		if got := look(text); !slices.Equal(got, want) {
			t.Errorf("%.60q: the page is %q", text, got)
		}
	}
}
