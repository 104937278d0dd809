package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"github.com/pfar/pfar/policies/egress"
)

// everything is what the world answers on, and no bridge reaches unless it is told.
var everything = []string{
	"tcp " + declared + ":80", "tcp " + declared + ":53", "tcp [" + declared6 + "]:80", "tcp " + other + ":443", "tcp " + private + ":443", "tcp " + metadata + ":80",
	"tcp 127.0.0.1:443", "tcp 127.0.0.1:53", "udp 127.0.0.1:53", "udp " + other + ":53", "udp " + private + ":53", "udp " + declared + ":443", "udp [" + declared6 + "]:443",
}

func held(slice egress.Cgroup, bridges ...egress.Bridge) egress.Hold {
	return egress.Hold{Slice: slice, Bridges: bridges, DNS: []netip.AddrPort{netip.MustParseAddrPort(stub)}}
}

func apply(t testing.TB, h egress.Hold) {
	t.Helper()
	if err := Apply(h, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func TestBridgesReachWhatTheyAreAllowedAlone(t *testing.T) {
	if !runs(t) {
		return
	}
	w := newWorld(t)
	notion, db := w.start(slice, "pfar-egress@notion.service"), w.start(slice, "pfar-egress@db.service")
	unknown, outside := w.start(slice, "pfar-egress@unknown.service"), w.start("sshd.service")
	first, above := notion.bridge("notion", declared+":443", "["+declared6+"]:443")
	second, _ := db.bridge("db", private+":443", "127.0.0.1:80")
	apply(t, held(above, first, second))

	notion.wants("refused", everything...)
	notion.wants("refused", "tcp 127.0.0.1:80")
	notion.wants("ok", "tcp "+declared+":443", "tcp ["+declared6+"]:443", "udp "+stub, "tcp "+stub)
	db.wants("refused", "tcp "+declared+":443", "tcp ["+declared6+"]:443", "tcp "+private+":80", "tcp "+metadata+":80", "udp 127.0.0.1:53")
	db.wants("ok", "tcp "+private+":443", "tcp 127.0.0.1:80", "udp "+stub)
	unknown.wants("refused", everything...)
	unknown.wants("refused", "tcp "+declared+":443", "udp "+stub, "tcp "+stub)
	outside.wants("ok", everything...)
	outside.wants("ok", "tcp "+declared+":443", "udp "+stub)
}

// A bridge that has been taken over might wait for somebody to fetch what it has.
func TestBridgesServeNobody(t *testing.T) {
	if !runs(t) {
		return
	}
	w := newWorld(t)
	notion, outside := w.start(slice, "pfar-egress@notion.service"), w.start("sshd.service")
	b, above := notion.bridge("notion")
	notion.wants("ok", "listen "+declared+":8080", "listen [::]:8081")
	outside.wants("ok", "tcp "+declared+":8080", "tcp "+other+":8081", "tcp ["+declared6+"]:8081", "keep "+declared+":8080", "kept")
	apply(t, held(above, b))
	notion.wants("ok", "listen "+declared+":8082")
	outside.wants("refused", "tcp "+declared+":8080", "tcp "+other+":8081", "tcp ["+declared6+"]:8081", "tcp "+declared+":8082")
	outside.wants("ok", "listen "+other+":8080", "tcp "+other+":8080", "tcp "+declared+":443")
	if err := Remove(); err != nil {
		t.Fatal(err)
	}
	outside.wants("ok", "tcp "+declared+":8082")
}

func TestBridgesAreHeldInAContainer(t *testing.T) {
	if !runsInContainer(t) {
		return
	}
	w := newWorld(t)
	notion, outside := w.start(slice, "pfar-egress@notion.service"), w.start("sshd.service")
	b, above := notion.bridge("notion", declared+":443")
	if above.Level != 2 {
		t.Errorf("the slice's level is %d: this is no container", above.Level)
	}
	apply(t, held(above, b))
	notion.wants("refused", everything...)
	notion.wants("ok", "tcp "+declared+":443", "udp "+stub)
	outside.wants("ok", everything...)
}

func TestABridgeThatIsStartedAgainIsHeldThroughout(t *testing.T) {
	if !runs(t) {
		return
	}
	w := newWorld(t)
	notion := w.start(slice, "pfar-egress@notion.service")
	b, above := notion.bridge("notion", declared+":443")
	h := held(above, b)
	apply(t, h)
	for range 3 {
		before := h.Bridges[0].Cgroup
		w.stop(notion)
		notion = w.start(slice, "pfar-egress@notion.service")
		notion.wants("refused", everything...)
		notion.wants("refused", "tcp "+declared+":443", "udp "+stub) // it has not said who it is
		h.Bridges[0], h.Slice = notion.bridge("notion", declared+":443")
		if h.Bridges[0].Cgroup.ID == before.ID || h.Slice != above {
			t.Fatalf("its cgroup is %v, and was %v; the slice's is %v, and was %v", h.Bridges[0].Cgroup, before, h.Slice, above)
		}
		apply(t, h)
		notion.wants("refused", everything...)
		notion.wants("ok", "tcp "+declared+":443", "udp "+stub)
	}
}

// What is under way does not break when the table is replaced, its time is over, or it is allowed no more.
func TestConnectionsOutliveTheirLeave(t *testing.T) {
	if !runs(t) {
		return
	}
	w := newWorld(t)
	notion := w.start(slice, "pfar-egress@notion.service")
	b, above := notion.bridge("notion", declared+":443")
	b.Allowed[0].Until = time.Now().Add(time.Hour)
	apply(t, egress.Hold{Slice: above, Bridges: []egress.Bridge{b}})
	notion.wants("ok", "keep "+declared+":443")
	b.Allowed[0].Until = time.Now().Add(time.Second)
	apply(t, egress.Hold{Slice: above, Bridges: []egress.Bridge{b}})
	time.Sleep(time.Until(b.Allowed[0].Until) + 100*time.Millisecond)
	notion.wants("refused", "tcp "+declared+":443")
	notion.wants("ok", "kept")
	apply(t, egress.Hold{Slice: above})
	notion.wants("refused", "tcp "+declared+":443", "udp "+stub)
	notion.wants("ok", "kept")
}

func TestNoPacketSeesHalfATable(t *testing.T) {
	if !runs(t) {
		return
	}
	w := newWorld(t)
	notion := w.start(slice, "pfar-egress@notion.service")
	b, above := notion.bridge("notion", declared+":443")
	h := egress.Hold{Slice: above, Bridges: []egress.Bridge{b}}
	for i := range 50 {
		h.Bridges = append(h.Bridges, egress.Bridge{Server: fmt.Sprint("b", i), Cgroup: egress.Cgroup{ID: uint64(1<<40 + i), Level: b.Cgroup.Level}, Allowed: b.Allowed})
	}
	apply(t, h)
	stop, ended := make(chan struct{}), make(chan struct{})
	var replaced atomic.Int64
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := Apply(h, time.Now()); err != nil {
				t.Error(err)
			}
			replaced.Add(1)
		}
	}()
	tries := 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && (tries < 1000 || replaced.Load() < 50); tries++ {
		notion.wants("ok", "tcp "+declared+":443")
		notion.wants("refused", "tcp "+metadata+":80", "udp "+other+":53")
	}
	close(stop)
	<-ended
	n := replaced.Load()
	t.Logf("%d times three packets while the table was replaced %d times", tries, n)
	if n < 50 || tries < 1000 {
		t.Errorf("%d tries while the table was replaced %d times show nothing", tries, n)
	}
}

const foreign = `table inet filter {
	counter hits { }
	chain output {
		type filter hook output priority filter; policy accept;
		ip daddr 93.184.216.34 counter name hits
		ip daddr 203.0.113.0/24 drop
	}
}
table ip pfar {
	chain c { }
}
`

// uncounted is a listing without the values of counters: a connection's last packets may come late.
func uncounted(listing string) string {
	return regexp.MustCompile(`packets \d+ bytes \d+`).ReplaceAllString(listing, "")
}

func TestOtherTablesAreUntouched(t *testing.T) {
	if !runs(t) {
		return
	}
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "foreign.nft")
	if err := os.WriteFile(file, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "nft", "-f", file)
	outside, notion := w.start("sshd.service"), w.start(slice, "pfar-egress@notion.service")
	outside.wants("ok", "tcp "+declared+":443")
	before := uncounted(run(t, "nft", "-a", "list", "ruleset"))
	if err := Remove(); err != nil { // there is none
		t.Fatal(err)
	}
	b, above := notion.bridge("notion")
	for range 3 {
		apply(t, egress.Hold{Slice: above, Bridges: []egress.Bridge{b}})
		if n := strings.Count(run(t, "nft", "list", "tables"), "table inet pfar\n"); n != 1 {
			t.Errorf("there are %d tables of ours", n)
		}
		if a, b := run(t, "nft", "-a", "list", "table", "inet", "filter"), run(t, "nft", "-a", "list", "table", "ip", "pfar"); uncounted(a+b) != before {
			t.Errorf("the others' tables are\n%s\nand were\n%s", a+b, before)
		}
	}
	notion.wants("refused", "tcp "+other+":443")
	for range 2 {
		if err := Remove(); err != nil {
			t.Fatal(err)
		}
		if after := uncounted(run(t, "nft", "-a", "list", "ruleset")); after != before {
			t.Errorf("after the removal there is\n%s\nand was\n%s", after, before)
		}
	}
	notion.wants("ok", everything[3:]...)
}

var (
	expires = regexp.MustCompile(` expires [0-9dhms]+`)
	counted = regexp.MustCompile(`counter packets \d+ bytes \d+`)
	path    = regexp.MustCompile(`(level \d+) (\d+|"[^"]*")`)

	elements = regexp.MustCompile(`(?s)elements = \{ (.*?) \}`)
	comma    = regexp.MustCompile(`,\s+`)
)

// plain leaves out what changes by itself, and what nft(8) makes of a number of a cgroup that happens to exist.
func plain(listing string) string {
	listing = expires.ReplaceAllString(listing, "")
	listing = counted.ReplaceAllString(listing, "counter packets 0 bytes 0")
	return path.ReplaceAllString(listing, "$1 cgroup")
}

// sorted puts a set's members in one order: the kernel has its own.
func sorted(listing string) string {
	return elements.ReplaceAllStringFunc(listing, func(s string) string {
		list := comma.Split(elements.FindStringSubmatch(s)[1], -1)
		slices.Sort(list)
		return "elements = " + strings.Join(list, ", ")
	})
}

// The kernel has what the goldens of policies/egress say, as nft(8) reads it.
func TestTheKernelHasTheGoldens(t *testing.T) {
	if !runs(t) {
		return
	}
	files, err := filepath.Glob("../../egress/testdata/hold/*.txtar")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		golden := txtar.Parse(b)
		var h egress.Hold
		if err := json.Unmarshal(bytes.TrimSpace(golden.Files[1].Data), &h); err != nil {
			t.Fatal(err)
		}
		if err := Apply(h, noon); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if got, want := sorted(plain(run(t, "nft", "list", "table", "inet", "pfar"))), sorted(plain(string(golden.Files[2].Data))); got != want {
			t.Errorf("%s: the kernel has\n%s\nwant\n%s", file, got, want)
		}
	}
}

// The most that there can be: a hundred bridges with all that one may have.
func TestLargeTablesFit(t *testing.T) {
	if !runs(t) {
		return
	}
	apply(t, large(100, egress.MaxAllowed))
	if n := strings.Count(run(t, "nft", "list", "table", "inet", "pfar"), "goto bridge-"); n != 100 {
		t.Errorf("the table has %d bridges", n)
	}
}

func large(bridges, allowed int) egress.Hold {
	h := egress.Hold{Slice: egress.Cgroup{ID: 1 << 40, Level: 2}, DNS: []netip.AddrPort{netip.MustParseAddrPort(stub)}}
	for i := range bridges {
		b := egress.Bridge{Server: fmt.Sprint("server", i), Cgroup: egress.Cgroup{ID: uint64(1<<41 + i), Level: 3}}
		for j := range allowed {
			b.Allowed = append(b.Allowed, egress.Allowed{Addr: netip.AddrFrom4([4]byte{93, 184, byte(j >> 8), byte(j)}), Port: 443, Until: time.Now().Add(time.Hour)})
		}
		h.Bridges = append(h.Bridges, b)
	}
	return h
}

func TestRefusals(t *testing.T) {
	if !runs(t) {
		return
	}
	w := newWorld(t)
	if err := Apply(egress.Hold{}, time.Now()); err == nil {
		t.Error("a rule about everybody is loaded")
	}
	p := w.start(slice, "pfar-egress@notion.service")
	for _, c := range [][2]string{{"pfar-egress@other.service", slice}, {"pfar-egress@notion.service", "pfar.slice"}, {"", slice}} {
		if _, _, err := Cgroups(p.cmd.Process.Pid, c[0], c[1]); err == nil {
			t.Errorf("the process is taken for %q in %q", c[0], c[1])
		}
	}
	if _, _, err := Cgroups(1<<30, "pfar-egress@notion.service", slice); err == nil {
		t.Error("a process that is not there has a cgroup")
	}
	if _, err := CgroupID("/proc"); err == nil {
		t.Error("what is no cgroup has a number")
	}
	if got := p.does("apply"); got != unix.EPERM.Error() {
		t.Errorf("without the right to it, the table is loaded: %s", got)
	}
	if got := run(t, "nft", "list", "ruleset"); got != "" {
		t.Errorf("there is\n%s", got)
	}
}

// What a first connection to a new address waits for.
func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 20, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				b.Skip(err)
			}
			h := large(n, 8)
			for b.Loop() {
				apply(b, h)
				b.StopTimer()
				time.Sleep(30 * time.Millisecond) // until the kernel has cleaned up
				b.StartTimer()
			}
		})
	}
}

func TestWatch(t *testing.T) {
	if !runs(t) {
		return
	}
	run(t, "nft", "add", "table", "ip", "pfar")
	ctx, cancel := context.WithCancel(t.Context())
	lost, ended := make(chan struct{}, 100), make(chan error)
	go func() { ended <- Watch(ctx, func() { lost <- struct{}{} }) }()
	h := large(3, 3)
	for { // until it watches
		apply(t, h)
		run(t, "nft", "flush", "ruleset")
		select {
		case <-lost:
		case <-time.After(50 * time.Millisecond):
			continue
		}
		break
	}
	for _, c := range []struct {
		args string
		lost int
	}{
		{"add table inet filter", 0}, {"delete table inet filter", 0}, {"add table ip pfar", 0}, {"delete table ip pfar", 0},
		{"flush table inet pfar", 1}, {"flush chain inet pfar out", 1}, {"reset counters", 0}, {"delete table inet pfar", 1}, {"flush ruleset", 1},
	} {
		for range 3 {
			apply(t, h)
		}
		run(t, "nft", strings.Fields(c.args)...)
		for end := time.Now().Add(soon); len(lost) < c.lost && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // for more than that
		if n := len(lost); n != c.lost {
			t.Errorf("after %q the table is lost %d times, want %d", c.args, n, c.lost)
		}
		for len(lost) > 0 {
			<-lost
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
