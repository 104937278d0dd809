package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/firewall/host"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/attach"
)

// kernel stands in for nftables and cgroups. What they do with a table is shown in policies/firewall/host.
type kernel struct {
	mu     sync.Mutex
	tables []egress.Hold
	fails  error
	slow   chan struct{} // nil: at once
}

func (k *kernel) apply(h egress.Hold, _ time.Time) error {
	k.mu.Lock()
	slow := k.slow
	k.mu.Unlock()
	if slow != nil {
		<-slow
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails != nil {
		return k.fails
	}
	k.tables = append(k.tables, h)
	return nil
}

// cgroups has one of its own for each process, of which 1 to 99 are bridges of any unit.
func (k *kernel) cgroups(pid int, unit, slice string) (own, above egress.Cgroup, err error) {
	if pid < 1 || pid > 99 || !strings.HasPrefix(unit, "pfar-egress@") || slice != "pfar-egress.slice" {
		return own, above, fmt.Errorf("process %d is not %s in %s", pid, unit, slice)
	}
	return egress.Cgroup{ID: uint64(1000 + pid), Level: 3}, egress.Cgroup{ID: 77, Level: 2}, nil
}

func (k *kernel) last() egress.Hold {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.tables) == 0 {
		return egress.Hold{}
	}
	return k.tables[len(k.tables)-1]
}

func (k *kernel) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.tables)
}

func (k *kernel) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fails = err
}

// summary is a table in short: each bridge, its cgroup's number, and what it may reach.
func summary(h egress.Hold) string {
	var all []string
	for _, b := range h.Bridges {
		s := fmt.Sprintf("%s/%d", b.Server, b.Cgroup.ID)
		for _, a := range b.Allowed {
			s += " " + netip.AddrPortFrom(a.Addr, a.Port).String()
		}
		all = append(all, s)
	}
	return strings.Join(all, "; ")
}

type holdFixture struct {
	*kernel
	dir string
	log strings.Builder
}

func newHoldFixture(t *testing.T) *holdFixture {
	t.Helper()
	f := &holdFixture{kernel: &kernel{}, dir: t.TempDir()}
	f.resolvConf(t, "nameserver 192.0.2.53\n")
	return f
}

func (f *holdFixture) resolvConf(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, "resolv.conf"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *holdFixture) config() holdConfig {
	return holdConfig{
		State: filepath.Join(f.dir, "hold.json"), ResolvConf: filepath.Join(f.dir, "resolv.conf"), Log: slog.New(slog.NewTextHandler(&f.log, nil)),
		Proxies: []egress.Proxy{{Host: "proxy.corp", Port: 3128}},
		apply:   f.apply, cgroups: f.cgroups, own: func(netip.Addr) bool { return false }, grace: time.Hour,
	}
}

func (f *holdFixture) start(t *testing.T, cfg holdConfig) *hold {
	t.Helper()
	h, err := newHold(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

func hello(t *testing.T, h *hold, instance string, pid int, entries ...string) *heldBridge {
	t.Helper()
	b, why := h.Hello(instance, pid, policyOf(t, entries...))
	if why != "" {
		t.Fatalf("%s is not held: %s", instance, why)
	}
	return b
}

func policyOf(t *testing.T, entries ...string) egress.Policy {
	t.Helper()
	var p egress.Policy
	for _, s := range entries {
		e, err := egress.ParseEndpoint(s)
		if err != nil {
			t.Fatal(err)
		}
		p.Endpoints = append(p.Endpoints, e)
	}
	return p
}

func leadsTo(name string, port uint16, addrs ...string) attach.Allow {
	a := attach.Allow{Name: name, Port: port, For: time.Minute}
	for _, s := range addrs {
		a.Addresses = append(a.Addresses, netip.MustParseAddr(s))
	}
	return a
}

func allow(t *testing.T, b *heldBridge, a attach.Allow) {
	t.Helper()
	if err := b.Allow(a); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for what nobody is told of.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

func TestHoldRefuses(t *testing.T) {
	f := newHoldFixture(t)
	h := f.start(t, f.config())
	if f.count() != 0 {
		t.Error("there is a table without a bridge")
	}
	b := hello(t, h, "notion", 1, "api.notion.com")
	for _, a := range []attach.Allow{
		{}, leadsTo("api.notion.com", 443), leadsTo("api.notion.com", 22, "93.184.216.34"), leadsTo("other.com", 443, "93.184.216.34"),
		leadsTo("api.notion.com", 443, slices.Repeat([]string{"93.184.216.34"}, egress.MaxAllowed+1)...),
		leadsTo("api.notion.com", 443, "10.0.0.1"), leadsTo("api.notion.com", 443, "93.184.216.34", "169.254.169.254"), leadsTo("proxy.corp", 443, "10.0.0.1"),
	} {
		if b.Allow(a) == nil {
			t.Errorf("%+v is allowed", a)
		}
	}
	if s := summary(f.last()); s != "notion/1001" {
		t.Errorf("the table is %s", s)
	}
	if _, why := h.Hello("notion", 100, egress.Policy{}); why == "" {
		t.Error("a process of another unit is taken for the bridge")
	}
	if s := summary(f.last()); s != "notion/1001" {
		t.Errorf("after somebody else's hello the table is %s", s)
	}
}

func TestHoldFollowsBridges(t *testing.T) {
	f := newHoldFixture(t)
	h := f.start(t, f.config())
	notion, db := hello(t, h, "notion", 1, "api.notion.com"), hello(t, h, "db", 2, "10.0.0.1:5432")
	allow(t, notion, leadsTo("api.notion.com", 443, "93.184.216.34", "2606:4700::1"))
	allow(t, notion, leadsTo("proxy.corp", 3128, "10.9.9.9"))
	allow(t, db, leadsTo("10.0.0.1", 5432, "10.0.0.1"))
	want := "notion/1001 93.184.216.34:443 [2606:4700::1]:443 10.9.9.9:3128; db/1002 10.0.0.1:5432"
	if got := f.last(); summary(got) != want || got.Slice.ID != 77 || fmt.Sprint(got.DNS) != "[192.0.2.53:53]" {
		t.Errorf("the table is %s\n%+v", summary(got), got)
	}
	again := hello(t, h, "notion", 3, "api.notion.com") // before anybody has noticed that the first one has ended
	if s := summary(f.last()); s != "notion/1003; db/1002 10.0.0.1:5432" {
		t.Errorf("after a start of its unit the table is %s", s)
	}
	if notion.Allow(leadsTo("api.notion.com", 443, "93.184.216.34")) == nil {
		t.Error("a process whose place is taken is allowed something")
	}
	notion.Gone()
	allow(t, again, leadsTo("api.notion.com", 443, "93.184.216.35"))
	if s := summary(f.last()); s != "notion/1003 93.184.216.35:443; db/1002 10.0.0.1:5432" {
		t.Errorf("the table is %s", s)
	}
	again.Gone()
	db.Gone()
	eventually(t, "a table without bridges", func() bool { return summary(f.last()) == "" })
	if f.last().Slice.ID != 77 {
		t.Error("what else is in the slice is not held any more")
	}
}

func TestHoldOutlivesPfard(t *testing.T) {
	f := newHoldFixture(t)
	h := f.start(t, f.config())
	allow(t, hello(t, h, "notion", 1, "api.notion.com"), leadsTo("api.notion.com", 443, "93.184.216.34"))
	allow(t, hello(t, h, "db", 2, "db.example.com:5432"), leadsTo("db.example.com", 5432, "93.184.216.40"))
	hello(t, h, "gone", 3)
	h.close()
	n := f.count()
	f.resolvConf(t, "nameserver 192.0.2.54\n")
	h = f.start(t, f.config())
	eventually(t, "the table again", func() bool { return f.count() > n })
	if got := fmt.Sprint(f.last().DNS); got != "[192.0.2.54:53]" {
		t.Errorf("after a start of pfard the name servers are %s", got)
	}
	notion := hello(t, h, "notion", 1, "api.notion.com")
	if s := summary(f.last()); s != "notion/1001 93.184.216.34:443; db/1002 93.184.216.40:5432; gone/1003" {
		t.Errorf("after a start of pfard the table is %s", s)
	}
	hello(t, h, "db", 4, "db.example.com:5432") // started again meanwhile
	h.forget()
	allow(t, notion, leadsTo("api.notion.com", 443, "93.184.216.35"))
	if s := summary(f.last()); s != "notion/1001 93.184.216.34:443 93.184.216.35:443; db/1004" {
		t.Errorf("when all had the time to come back the table is %s", s)
	}
	if st, err := os.Stat(f.config().State); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", st, err)
	}
}

func TestHoldReadsNoHalfFile(t *testing.T) {
	f := newHoldFixture(t)
	whole, err := json.Marshal(egress.Hold{Slice: egress.Cgroup{ID: 77, Level: 2}, Bridges: []egress.Bridge{{Server: "notion"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "null", "[]", string(whole[:len(whole)/2])} {
		if err := os.WriteFile(f.config().State, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		h := f.start(t, f.config())
		hello(t, h, "notion", 1, "api.notion.com")
		if s := summary(f.last()); s != "notion/1001" {
			t.Errorf("after a file %q the table is %s", text, s)
		}
		h.close()
	}
}

// Who cannot be held runs all the same and is told why; who is held does not connect to where it is not.
func TestHoldWithoutNftables(t *testing.T) {
	f := newHoldFixture(t)
	f.fail(errors.New("the kernel has no nf_tables"))
	h := f.start(t, f.config())
	b, why := h.Hello("notion", 1, policyOf(t, "api.notion.com"))
	if !strings.Contains(why, "no nf_tables") {
		t.Errorf("it is held, or why not: %q", why)
	}
	allow(t, b, leadsTo("api.notion.com", 443, "93.184.216.34"))
	if b.Allow(leadsTo("other.com", 443, "93.184.216.34")) == nil {
		t.Error("what is not declared is allowed")
	}
	f.fail(nil)
	allow(t, b, leadsTo("api.notion.com", 443, "93.184.216.35"))
	if s := summary(f.last()); s != "notion/1001 93.184.216.34:443 93.184.216.35:443" {
		t.Errorf("once the kernel can, the table is %s", s)
	}
	db := hello(t, h, "db", 2, "db.example.com")
	f.fail(errors.New("no memory"))
	if err := db.Allow(leadsTo("db.example.com", 443, "93.184.216.36")); err == nil || err.Error() != "no memory" {
		t.Errorf("what the table does not have is allowed: %v", err)
	}
	elsewhere, why := h.Hello("notion", 100, policyOf(t, "api.notion.com"))
	if why == "" {
		t.Error("what is in no slice is held")
	}
	allow(t, elsewhere, leadsTo("api.notion.com", 443, "93.184.216.34"))
	elsewhere.Gone()
}

// What a bridge still asks when it has gone is not waited for.
func TestHoldForgetsQuestions(t *testing.T) {
	f := newHoldFixture(t)
	h := f.start(t, f.config())
	b := hello(t, h, "notion", 1, "api.notion.com")
	const waiting = 1000 // 50 s at its pace
	done := make(chan struct{}, changesAtOnce+waiting)
	start := time.Now()
	for range cap(done) {
		go func() {
			_ = b.Allow(leadsTo("api.notion.com", 443, "93.184.216.34"))
			done <- struct{}{}
		}()
	}
	for range changesAtOnce {
		<-done
	}
	b.Gone()
	for range waiting {
		<-done
	}
	if took := time.Since(start); took > 25*time.Second {
		t.Errorf("they end after %v", took)
	}
}

// TestUnheld: what nothing holds is in pfar status as long as it is so.
func TestUnheld(t *testing.T) {
	f := newHoldFixture(t)
	cfg := f.config()
	turns := make(chan struct{}, 100)
	cfg.Changed = func() { turns <- struct{}{} }
	h := f.start(t, cfg)
	d, _, _ := fixture(t)
	_ = d.do(func() error { d.hold = h; return nil })
	notes := func(want ...string) {
		t.Helper()
		if len(turns) == 0 {
			t.Error("nobody is told of a change")
		}
		for len(turns) > 0 {
			<-turns
		}
		got := d.reportNow(t).Notes
		if len(got) != len(want) {
			t.Fatalf("notes %q, want %q", got, want)
		}
		for i := range want {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("note %q, want %q", got[i], want[i])
			}
		}
	}
	notion := hello(t, h, "notion", 1, "api.notion.com")
	notes()
	elsewhere, _ := h.Hello("db", 100, egress.Policy{})
	notes(`the bridge of "db", which goes by its own rules alone: process 100 is not pfar-egress@db.service`)
	f.fail(errors.New("no memory"))
	if notion.Allow(leadsTo("api.notion.com", 443, "93.184.216.34")) == nil {
		t.Error("what the table does not have is allowed")
	}
	notes("the bridges, which go by their own rules alone: no memory", `"db"`)
	f.fail(nil)
	allow(t, notion, leadsTo("api.notion.com", 443, "93.184.216.34"))
	notes(`"db"`)
	hello(t, h, "db", 2)
	notes()
	elsewhere.Gone()
	notes()
	again, _ := h.Hello("db", 101, egress.Policy{})
	notes(`"db"`)
	again.Gone()
	notes()
}

func TestHoldReplacesOnceForMany(t *testing.T) {
	f := newHoldFixture(t)
	h := f.start(t, f.config())
	b := hello(t, h, "notion", 1, "api.notion.com")
	before := f.count()
	f.mu.Lock()
	f.slow = make(chan struct{})
	f.mu.Unlock()
	const many = 100
	done := make(chan error, many)
	for i := range many {
		go func() { done <- b.Allow(leadsTo("api.notion.com", 443, fmt.Sprintf("93.184.216.%d", i))) }()
	}
	eventually(t, "all questions", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.want.Bridges[0].Allowed) == many
	})
	close(f.slow)
	for range many {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := f.count() - before; n < 1 || n > 2 {
		t.Errorf("the table was replaced %d times for %d questions at once", n, many)
	}
	if n := len(f.last().Bridges[0].Allowed); n != many {
		t.Errorf("the table has %d addresses of %d", n, many)
	}
}

// A bridge that changes its part without end does not keep pfard busy, nor have others wait.
func TestHoldIsPaced(t *testing.T) {
	f := newHoldFixture(t)
	h := f.start(t, f.config())
	busy, other := hello(t, h, "notion", 1, "api.notion.com"), hello(t, h, "db", 2, "db.example.com")
	start := time.Now()
	var answered atomic.Int64
	for i := range 2 * changesAtOnce {
		go func() {
			_ = busy.Allow(leadsTo("api.notion.com", 443, fmt.Sprintf("93.184.%d.%d", i>>8, i&255)))
			answered.Add(1)
		}()
	}
	for range 50 {
		allow(t, other, leadsTo("db.example.com", 443, "93.184.216.1"))
	}
	eventually(t, "the answers to the first", func() bool { return answered.Load() >= changesAtOnce })
	time.Sleep(300 * time.Millisecond)
	n, took := int(answered.Load()), time.Since(start)
	// The limiter reads the clock before it takes its lock, and counts some time twice when many wait for that.
	if most := changesAtOnce + int(changesPerSecond*(1+took.Seconds())); n > most {
		t.Errorf("%d questions are answered in %v, want at most %d", n, took, most)
	}
}

func TestHoldFollowsResolvConf(t *testing.T) {
	f := newHoldFixture(t)
	target := filepath.Join(f.dir, "run", "resolve", "stub.conf")
	path := f.config().ResolvConf
	if err := errors.Join(os.Remove(path), os.Symlink("run/resolve/stub.conf", path)); err != nil {
		t.Fatal(err)
	}
	h := f.start(t, f.config())
	hello(t, h, "notion", 1)
	has := func(want string) {
		t.Helper()
		eventually(t, "a table with "+want, func() bool { return fmt.Sprint(f.last().DNS) == want })
	}
	has("[127.0.0.1:53 [::1]:53]") // systemd-resolved has not started
	if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, []byte("nameserver 127.0.0.53\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	has("[127.0.0.53:53]")
	if err := errors.Join(os.WriteFile(target+".new", []byte("nameserver 192.0.2.1\n"), 0o644), os.Rename(target+".new", target)); err != nil {
		t.Fatal(err)
	}
	has("[192.0.2.1:53]")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.resolvConf(t, "nameserver 192.0.2.2\n")
	has("[192.0.2.2:53]")
	f.resolvConf(t, "nameserver 192.0.2.3\n")
	has("[192.0.2.3:53]")
}

// TestHoldIsCleared: without a server there is no table, also if a pfard that was killed had left one; the next bridge
// has it made anew.
func TestHoldIsCleared(t *testing.T) {
	f := newHoldFixture(t)
	h := f.start(t, f.config())
	h.clear() // of nothing
	b := hello(t, h, "a", 1, "a.example")
	allow(t, b, leadsTo("a.example", 443, "93.184.215.14"))
	h.close()
	h = f.start(t, f.config())
	h.clear()
	eventually(t, "the table's end", func() bool { return f.last().Slice == egress.Cgroup{} })
	n := f.count()
	b.Gone()
	h.close()
	h = f.start(t, f.config())
	h.clear()
	hello(t, h, "b", 2, "b.example")
	if got := summary(f.last()); got != "b/1002" || f.count() != n+1 {
		t.Errorf("after %d more tables: %q", f.count()-n, got)
	}
	m := hello(t, h, "@llm.model", 3, "llm.example") // it is nobody's bridge, and stays where it may go
	h.clear()
	allow(t, m, leadsTo("llm.example", 443, "93.184.215.15"))
	eventually(t, "the server's end", func() bool { return strings.HasPrefix(summary(f.last()), "@llm.model/1003") })
	m.Gone()
	h.clear()
	eventually(t, "the table's end", func() bool { return f.last().Slice == egress.Cgroup{} })
}

func TestUnhold(t *testing.T) {
	f := newHoldFixture(t)
	state := f.config().State
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		h := egress.Hold{Slice: egress.Cgroup{ID: 1 << 40, Level: 2}}
		done <- errors.Join(host.Apply(h, time.Now()), os.WriteFile(state, nil, 0o600), unhold(state), unhold(state))
	}()
	if err := <-done; errors.Is(err, unix.EPERM) && os.Getuid() != 0 {
		t.Skip("only root can make a network namespace")
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestOwnAddress(t *testing.T) {
	for a, want := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "::1": true, "192.0.2.1": false, "2001:db8::1": false, "169.254.169.254": false} {
		if ownAddress(netip.MustParseAddr(a)) != want {
			t.Errorf("%s: want %v", a, want)
		}
	}
}

func TestProxiesOf(t *testing.T) {
	for _, c := range []struct {
		https, http string
		want        []egress.Proxy
	}{
		{"", "", nil},
		{"http://proxy.corp:3128", "http://proxy.corp:3128/", []egress.Proxy{{Host: "proxy.corp", Port: 3128}, {Host: "proxy.corp", Port: 3128}}},
		{"http://u:p@ss@10.0.0.1", " [2001:DB8:0::1]:8080 ", []egress.Proxy{{Host: "10.0.0.1", Port: 80}, {Host: "2001:db8::1", Port: 8080}}},
		{"http://:3128", "http://proxy:0", nil},
	} {
		if got := proxiesOf(units.Upstream{HTTPS: c.https, HTTP: c.http}); !slices.Equal(got, c.want) {
			t.Errorf("%q, %q: %v, want %v", c.https, c.http, got, c.want)
		}
	}
}
