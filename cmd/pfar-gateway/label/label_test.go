package label

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/policies/gate"
)

func opened(t testing.TB, dir string) (*Sessions, *state.DB) {
	t.Helper()
	db, err := state.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := Open(db)
	if err != nil {
		t.Fatal(err)
	}
	s.Declare([]string{"laptop", "phone"})
	return s, db
}

func of(c gate.Confidentiality, i gate.Integrity) gate.Label {
	return gate.Label{Confidentiality: c, Integrity: i}
}

// labels are all that there are.
func labels() (all []gate.Label) {
	for c := gate.Public; c <= gate.Secret; c++ {
		for i := gate.Clean; i <= gate.Raw; i++ {
			all = append(all, of(c, i))
		}
	}
	return all
}

// TestUnknownSessions: nobody has a label who was not declared or minted, and none is made by asking.
func TestUnknownSessions(t *testing.T) {
	s, _ := opened(t, t.TempDir())
	handle := Handle()
	if err := s.New("laptop", handle); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"", ""}, {"", Default}, {"nobody", Default}, {"laptop", ""}, {"laptop", "x"}, {"phone", handle}, {"laptop/default", ""}, {"laptop", handle[:25]}} {
		if l, err := s.Label(c[0], c[1]); !errors.Is(err, ErrUnknown) || l.Known() {
			t.Errorf("%q: %s, %v", c, l, err)
		}
		if _, after, err := s.Raise(c[0], c[1], gate.Start, Source{}); !errors.Is(err, ErrUnknown) || after.Known() {
			t.Errorf("raising %q: %s, %v", c, after, err)
		}
	}
	if err := s.New("nobody", Handle()); !errors.Is(err, ErrUnknown) {
		t.Errorf("a session of nobody: %v", err)
	}
	for _, l := range []gate.Label{{}, of(0, gate.Raw), of(gate.Secret, 0), of(gate.Secret+1, gate.Raw), of(gate.Secret, gate.Raw+1)} {
		if _, _, err := s.Raise("laptop", Default, l, Source{}); err == nil {
			t.Errorf("%v is joined", l)
		}
		if err := s.Stain("notion", l, Source{}); err == nil {
			t.Errorf("%v stains", l)
		}
	}
	s.Declare([]string{"phone"})
	if l, err := s.Label("laptop", Default); !errors.Is(err, ErrUnknown) || l.Known() {
		t.Errorf("a client that is declared no more: %s, %v", l, err)
	}
}

// TestRaise: every pair of labels is joined as the lattice says, is on the disk at once, and never sinks.
func TestRaise(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	type pair struct {
		handle  string
		want    gate.Label
		sources []Source
	}
	var pairs []pair
	for _, a := range labels() {
		for _, b := range labels() {
			handle, err := s.Connect("laptop")
			if err != nil {
				t.Fatal(err)
			}
			if before, after, err := s.Raise("laptop", handle, a, Source{Server: "a", Tool: "t", Call: "1"}); err != nil || before != gate.Start || after != a {
				t.Fatalf("%s: %s, %s, %v", a, before, after, err)
			}
			before, after, err := s.Raise("laptop", handle, b, Source{Server: "b", Tool: "t", Call: "2"})
			if err != nil || before != a || after != a.Join(b) || !a.Below(after) {
				t.Fatalf("%s and %s: %s, %s, %v", a, b, before, after, err)
			}
			if l, err := s.Label("laptop", handle); err != nil || l != after {
				t.Fatalf("%s and %s: %s, %v", a, b, l, err)
			}
			sources := s.Sources("laptop", handle)
			want := 0
			for _, rose := range []bool{a != gate.Start, after != a} {
				if rose {
					want++
				}
			}
			if len(sources) != want || want > 0 && sources[want-1].Label != after {
				t.Fatalf("%s and %s: %+v", a, b, sources)
			}
			pairs = append(pairs, pair{handle, after, sources})
		}
	}
	db.Close() // without a word to the sessions, as a crash
	s, _ = opened(t, dir)
	for _, p := range pairs {
		l, err := s.Label("laptop", p.handle)
		if err != nil || l != p.want {
			t.Fatalf("after a restart: %s, %v, want %s", l, err, p.want)
		}
		if sources := s.Sources("laptop", p.handle); !slices.Equal(sources, p.sources) {
			t.Fatalf("after a restart: %+v, want %+v", sources, p.sources)
		}
	}
}

// TestReset is the only way down.
func TestReset(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	raw := of(gate.Sensitive, gate.Raw)
	if _, _, err := s.Raise("laptop", Default, raw, Source{Server: "issues", Tool: strings.Repeat("ä", 300), Call: "1"}); err != nil {
		t.Fatal(err)
	}
	if one, err := s.Show("laptop", Default); err != nil || one.Label != raw || len(one.Sources) != 1 || len(one.Sources[0].Tool) > 260 || one.Used.IsZero() {
		t.Errorf("%+v, %v", one, err)
	}
	for range 2 { // declared again, and after a restart
		s.Declare([]string{"phone"})
		s.Declare([]string{"laptop", "phone"})
		if l, err := s.Label("laptop", Default); err != nil || l != raw {
			t.Errorf("%s, %v", l, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		db.Close()
		s, db = opened(t, dir)
	}
	if err := s.Reset("laptop", "x", "root"); !errors.Is(err, ErrUnknown) {
		t.Errorf("%v", err)
	}
	if err := s.Reset("laptop", Default, "root"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	s, _ = opened(t, dir)
	one, err := s.Show("laptop", Default)
	if err != nil || one.Label != gate.Start || one.ResetBy != "root" || one.Reset.IsZero() || len(one.Sources) != 0 {
		t.Errorf("%+v, %v", one, err)
	}
	if l, err := s.Label("phone", Default); err != nil || l != gate.Start {
		t.Errorf("%s, %v", l, err)
	}
}

// TestEnd: what has ended has no label, not even one that a call under way would raise.
func TestEnd(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	made := Handle()
	if err := s.New("laptop", made); err != nil {
		t.Fatal(err)
	}
	if err := s.End("laptop", Default); err == nil {
		t.Error("the default session has ended")
	}
	under := s.find("laptop", made)
	if err := s.End("laptop", made); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.rise(key{"laptop", made}, under, of(gate.Secret, gate.Raw), Source{}, s.Now()); !errors.Is(err, ErrUnknown) {
		t.Errorf("raised by a call under way: %v", err)
	}
	for range 2 {
		made = Handle()
		if err := s.New("laptop", made); err != nil {
			t.Fatal(err)
		}
	}
	connection, err := s.Connect("laptop")
	if err != nil {
		t.Fatal(err)
	}
	raw := of(gate.Secret, gate.Raw)
	if _, _, err := s.Raise("laptop", connection, raw, Source{}); err != nil {
		t.Fatal(err)
	}
	db.Close()
	s, db = opened(t, dir)
	if list, err := s.List(); err != nil || len(list) != 5 {
		t.Errorf("after a restart: %+v, %v", list, err)
	}
	if l, err := s.Label("laptop", connection); err != nil || l != raw {
		t.Errorf("a connection that goes on after a restart: %s, %v", l, err)
	}
	if _, err := db.Exec("UPDATE sessions SET used = 1"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	s, _ = opened(t, dir)
	if _, err := s.Label("laptop", connection); !errors.Is(err, ErrUnknown) {
		t.Errorf("a connection of long ago: %v", err)
	}
	if _, err := s.Label("laptop", made); err != nil {
		t.Errorf("a session that the operator has made: %v", err)
	}
}

// TestRaiseRaces: of many that raise at once none is lost, and the label is never seen lower than it was.
func TestRaiseRaces(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			l := labels()[i%15]
			if _, after, err := s.Raise("laptop", Default, l, Source{Server: fmt.Sprint(i)}); err != nil || !l.Below(after) {
				t.Errorf("%s: %s, %v", l, after, err)
			}
			if err := s.Stain("notion", l, Source{}); err != nil || !l.Below(s.Stained("notion")) {
				t.Errorf("%s: %v", l, err)
			}
		})
		all.Go(func() {
			last := gate.Start
			for range 100 {
				l, err := s.Label("laptop", Default)
				if err != nil || !last.Below(l) {
					t.Errorf("%s after %s, %v", l, last, err)
				}
				last = l
			}
		})
	}
	all.Wait()
	db.Close()
	s, _ = opened(t, dir)
	if l, err := s.Label("laptop", Default); err != nil || l != of(gate.Secret, gate.Raw) || s.Stained("notion") != l {
		t.Errorf("%s, %v, %s", l, err, s.Stained("notion"))
	}
	if n := len(s.Sources("laptop", Default)); n == 0 || n > 6 {
		t.Errorf("%d sources", n)
	}
}

func TestStains(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	if l := s.Stained("notion"); l.Known() || gate.Start.Join(l) != gate.Start {
		t.Errorf("without a stain: %s", l)
	}
	for _, l := range []gate.Label{of(gate.Public, gate.Raw), of(gate.Sensitive, gate.Clean), of(gate.Internal, gate.Extracted)} {
		if err := s.Stain("notion", l, Source{Client: "laptop", Handle: Default, Tool: "create", Call: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	db.Close()
	s, _ = opened(t, dir)
	if l := s.Stained("notion"); l != of(gate.Sensitive, gate.Raw) {
		t.Errorf("%s", l)
	}
	list, err := s.Stains()
	if err != nil || len(list) != 1 || len(list[0].Sources) != 2 || list[0].Sources[0].Client != "laptop" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.Clear("mail"); !errors.Is(err, ErrNoStain) {
		t.Error(err)
	}
	if err := s.Clear("notion"); err != nil || s.Stained("notion").Known() {
		t.Errorf("%v, %s", err, s.Stained("notion"))
	}
}

// TestStainReturns: what undo keeps from before a stain was cleared has it, wherever it is put back, and nothing kept
// later has.
func TestStainReturns(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	raw, secret := of(gate.Public, gate.Raw), of(gate.Secret, gate.Clean)
	s.Holds("files", []gate.Place{{Name: "/srv/notes", Writes: true}})
	s.Holds("git", []gate.Place{{Name: "/srv/notes/repository"}})
	write := func(server string, l gate.Label) {
		t.Helper()
		if err := s.Stain(server, l, Source{Client: "laptop", Handle: Default, Tool: "write", Call: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	clear := func(server string) int64 {
		t.Helper()
		if err := s.Clear(server); err != nil {
			t.Fatal(err)
		}
		return Restores{s}.Cleared()
	}
	first := Restores{s}.Cleared()
	write("files", raw)
	s.Now = func() time.Time { return time.Unix(1, 0) } // somebody has set the clock back
	second := clear("files")
	write("files", secret)
	if third := clear("files"); first >= second || second >= third {
		t.Errorf("cleared at %d, %d, %d", first, second, third)
	}
	db.Close()
	s, _ = opened(t, dir)
	s.Holds("git", []gate.Place{{Name: "/srv/notes/repository"}})
	r := Restores{s}
	for _, c := range []struct {
		server, folder string
		since          int64
		want           gate.Label
	}{
		{"files", "/srv/notes", r.Cleared(), gate.Label{}},
		{"files", "/srv/notes", second, secret},
		{"other", "/srv/notes/deep", second, secret}, // keeps what files has written
		{"other", "/srv/elsewhere", first, gate.Label{}},
		{"files", "/srv/notes", first, secret.Join(raw)},
	} {
		if l, err := r.Forgotten(c.server, c.since, []string{c.folder}); err != nil || l != c.want {
			t.Errorf("%+v: %s, %v", c, l, err)
		}
	}
	if err := r.Restore("files", r.Cleared(), []string{"/srv/notes"}, Source{}); err != nil || s.Stained("files").Known() {
		t.Errorf("without anything to be put back: %v, %s", err, s.Stained("files"))
	}
	if err := r.Restore("files", first, []string{"/srv/notes"}, Source{Tool: "pfar undo"}); err != nil {
		t.Fatal(err)
	}
	for _, server := range []string{"files", "git"} {
		if l := s.Stained(server); l != secret.Join(raw) {
			t.Errorf("%s has %s", server, l)
		}
	}
	list, err := s.Stains()
	if err != nil || len(list) != 1 || list[0].Sources[0].Tool != "pfar undo" {
		t.Errorf("%+v, %v", list, err)
	}
	s.db.Close()
	if err := r.Restore("files", first, nil, Source{}); err == nil {
		t.Error("it is put back on a disk that is broken")
	}
}

// TestBrokenDisk: what cannot be written down does not rise, and the caller hears so.
func TestBrokenDisk(t *testing.T) {
	s, db := opened(t, t.TempDir())
	db.Close()
	raw := of(gate.Sensitive, gate.Raw)
	if before, after, err := s.Raise("laptop", Default, raw, Source{}); err == nil || before != after {
		t.Errorf("%s, %s, %v", before, after, err)
	}
	if l, err := s.Label("laptop", Default); err != nil || l != gate.Start {
		t.Errorf("%s, %v", l, err)
	}
	if err := s.Stain("notion", raw, Source{}); err == nil || s.Stained("notion").Known() {
		t.Errorf("%v, %s", err, s.Stained("notion"))
	}
	for what, err := range map[string]error{
		"reset": s.Reset("laptop", Default, "root"), "thaw": s.Thaw("laptop", Default), "close": s.Close(),
	} {
		if err == nil {
			t.Errorf("%s succeeds", what)
		}
	}
	if err := s.New("laptop", Handle()); err == nil {
		t.Error("a session is made")
	}
	if _, err := s.Answered("laptop", Default, false); err == nil {
		t.Error("a denial is counted")
	}
}

// many is a store that was opened with so many sessions of one client that have seen something; as they would be after
// a restart, for as many fsyncs take too long.
func many(t *testing.T, n int) *Sessions {
	t.Helper()
	_, db := opened(t, t.TempDir())
	_, err := db.Exec(`INSERT INTO sessions (client, handle, label, connection, created, used)
			WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1) SELECT 'laptop', printf('%026d', i), ?2, 0, 1, 1 FROM n;
		INSERT INTO session_sources (client, handle, label, server, tool, call, at) SELECT client, handle, label, 'issues', 'search', handle, 1 FROM sessions`, n, pack(of(gate.Sensitive, gate.Raw)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(db)
	if err != nil {
		t.Fatal(err)
	}
	s.Declare([]string{"laptop"})
	return s
}

// TestRoom: 10,000 sessions that have seen something fit into 50 MB.
func TestRoom(t *testing.T) {
	const sessions = 10_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s := many(t, sessions)
	for i := range sessions {
		if _, _, err := s.Raise("laptop", fmt.Sprintf("%026d", i), gate.Start, Source{}); err != nil {
			t.Fatal(err)
		}
	}
	used := heap() - min(before, heap())
	t.Logf("%d sessions: %d KiB", sessions, used>>10)
	if used > 50<<20 {
		t.Errorf("%d sessions take %d bytes", sessions, used)
	}
	list, err := s.List()
	if err != nil || len(list) != sessions+1 {
		t.Errorf("%d, %v", len(list), err)
	}
}

// TestFull: there is an end to them.
func TestFull(t *testing.T) {
	const room = 20
	s := many(t, maxSessions-room)
	var err error
	for range 2 * room {
		if _, err = s.Connect("laptop"); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) || len(s.sessions) != maxSessions {
		t.Errorf("%d sessions, %v", len(s.sessions), err)
	}
}

// BenchmarkRaise is what each call costs whose label does not rise: 200 ns at most.
func BenchmarkRaise(b *testing.B) {
	s, _ := opened(b, b.TempDir())
	raw := of(gate.Sensitive, gate.Raw)
	if _, _, err := s.Raise("laptop", Default, raw, Source{}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	at := time.Now() // as the record of the call has it
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := s.Raise("laptop", Default, raw, Source{Server: "issues", Tool: "search", At: at}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		var failed atomic.Bool
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, err := s.Label("laptop", Default); err != nil {
					failed.Store(true)
				}
			}
		})
		if failed.Load() {
			b.Fatal("no label")
		}
	})
}

// TestServers: each server's share is known, also of one that did not raise the label, for as long as the label lasts.
func TestServers(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	notes, mail, public := of(gate.Sensitive, gate.Clean), of(gate.Internal, gate.Raw), of(gate.Public, gate.Extracted)
	for _, one := range []struct {
		server string
		l      gate.Label
	}{{"notes", notes}, {"mail", of(gate.Internal, gate.Clean)}, {"mail", mail}, {"feed", public}, {"clock", gate.Start}} {
		if _, _, err := s.Raise("laptop", Default, one.l, Source{Server: one.server, Tool: "t", Call: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]gate.Label{"notes": notes, "mail": mail, "feed": public}
	check := func(s *Sessions) {
		t.Helper()
		got, all := make(map[string]gate.Label), gate.Start
		for _, one := range s.Servers("laptop", Default) {
			got[one.Server] = one.Label
			all = all.Join(one.Label)
		}
		if l, err := s.Label("laptop", Default); err != nil || !maps.Equal(got, want) || all != l {
			t.Fatalf("got %v of %s, want %v; %v", got, l, want, err)
		}
	}
	check(s)
	db.Close()
	for server, l := range want { // what is known needs no disk
		if _, _, err := s.Raise("laptop", Default, l, Source{Server: server}); err != nil {
			t.Error(err)
		}
	}
	if _, _, err := s.Raise("laptop", Default, public, Source{Server: "new"}); err == nil {
		t.Error("another server's share is not written down")
	}
	s, db = opened(t, dir)
	check(s)
	if err := s.Reset("laptop", Default, "op"); err != nil || len(s.Servers("laptop", Default)) != 0 {
		t.Fatal(s.Servers("laptop", Default), err)
	}
	db.Close()
	if s, _ = opened(t, dir); len(s.Servers("laptop", Default)) != 0 {
		t.Fatal(s.Servers("laptop", Default))
	}
}

// TestStainIsNoShare: what a session has from a server that others' data was written to is not that server's alone,
// which a flow from there would let go on; what was its own is.
func TestStainIsNoShare(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	raise := func(handle, server string, l gate.Label) {
		t.Helper()
		if _, _, err := s.Raise("laptop", handle, l, Source{Server: server, Tool: "t", Call: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	stain := func(handle, server string, l gate.Label) {
		t.Helper()
		if err := s.Stain(server, l, Source{Client: "laptop", Handle: handle, Tool: "t", Call: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	unknown := func(handle string) gate.Confidentiality {
		for _, one := range s.Servers("laptop", handle) {
			if one.Server == "" {
				return one.Label.Confidentiality
			}
		}
		return gate.Public
	}
	session := func(handle string) string {
		t.Helper()
		if err := s.New("laptop", handle); err != nil {
			t.Fatal(err)
		}
		return handle
	}
	sensitive := of(gate.Sensitive, gate.Clean)
	own := session("own")
	raise(own, "notes", sensitive)
	stain(own, "notes", sensitive)
	raise(own, "notes", sensitive)
	if c := unknown(own); c != gate.Public {
		t.Errorf("what came from notes, went there and comes again is %s of unknown origin", c)
	}
	other := session("other")
	raise(other, "notes", of(gate.Internal, gate.Clean))
	raise(other, "mail", sensitive)
	stain(other, "notes", sensitive)
	stain(other, "diary", of(gate.Internal, gate.Clean)) // a person has let it go there: no more than that
	reader := session("reader")
	raise(reader, "notes", sensitive)
	raise(own, "notes", sensitive) // which it has seen before
	raise(session("diarist"), "diary", of(gate.Internal, gate.Clean))
	stain(reader, "wiki", sensitive)
	raise(session("second"), "wiki", sensitive)
	stain(session("empty"), "board", sensitive) // a session that has been reset meanwhile
	raise(session("third"), "board", sensitive)
	want := map[string]gate.Confidentiality{"own": gate.Sensitive, "reader": gate.Sensitive, "diarist": gate.Internal, "second": gate.Sensitive, "third": gate.Sensitive, "other": gate.Public}
	for range 2 {
		for handle, c := range want {
			if got := unknown(handle); got != c {
				t.Errorf("%s has what is %s of unknown origin, want %s", handle, got, c)
			}
		}
		db.Close()
		s, db = opened(t, dir)
	}
	if l := s.Stained("notes"); l != sensitive {
		t.Errorf("notes is %s", l)
	}
	raise(session("fourth"), "notes", sensitive)
	if c := unknown("fourth"); c != gate.Sensitive {
		t.Errorf("after a restart %s", c)
	}
}

// TestSharedStain: what is written by one server where another reads is the other's output too, until the operator
// clears the one.
func TestSharedStain(t *testing.T) {
	dir := t.TempDir()
	s, db := opened(t, dir)
	holds := func(s *Sessions) {
		s.Holds("files", []gate.Place{{Name: "/srv/notes", Writes: true}, {Name: "/srv/manuals"}})
		for server, place := range map[string]string{"git": "/srv/notes/repository", "backup": "/srv", "same": "/srv/notes", "beside": "/srv/notes2", "manuals": "/srv/manuals", "root": "/"} {
			s.Holds(server, []gate.Place{{Name: place}})
		}
		s.Holds("notion", []gate.Place{{Name: "vault:notion", Writes: true}})
		s.Holds("notion-work", []gate.Place{{Name: "vault:notion", Writes: true}})
		s.Holds("notion-other", []gate.Place{{Name: "vault:notion2", Writes: true}, {Name: "$notion"}})
	}
	holds(s)
	raw := of(gate.Sensitive, gate.Raw)
	for _, server := range []string{"files", "notion"} {
		if err := s.Stain(server, raw, Source{Client: "laptop", Handle: Default, Tool: "write", Call: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(s *Sessions, stained ...string) {
		t.Helper()
		for _, server := range []string{"files", "git", "backup", "same", "beside", "manuals", "root", "notion", "notion-work", "notion-other", "unknown"} {
			if got := s.Stained(server).Known(); got != slices.Contains(stained, server) {
				t.Errorf("%s is stained: %t", server, got)
			}
		}
	}
	all := []string{"files", "git", "backup", "same", "root", "notion", "notion-work"}
	check(s, all...)
	sensitive := of(gate.Sensitive, gate.Clean)
	if _, _, err := s.Raise("phone", Default, sensitive, Source{Server: "board", Tool: "t", Call: "1"}); err != nil {
		t.Fatal(err)
	}
	s.Holds("board", []gate.Place{{Name: "$board", Writes: true}})
	s.Holds("board2", []gate.Place{{Name: "$board"}})
	if err := s.Stain("board", sensitive, Source{Client: "phone", Handle: Default}); err != nil {
		t.Fatal(err)
	}
	for server, want := range map[string]gate.Confidentiality{"board": gate.Public, "board2": gate.Sensitive} {
		if got := s.shares(server, sensitive)[1].Label.Confidentiality; got != want {
			t.Errorf("of what comes from %s, %s is not its own, want %s", server, got, want)
		}
	}
	if err := s.Clear("board"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	s, db = opened(t, dir)
	holds(s)
	s.Holds("files", nil) // it is declared anew, with another folder; what it has written is still there
	check(s, all...)
	list, err := s.Stains()
	if err != nil || len(list) != 2 || list[0].Server != "files" || !slices.Equal(list[0].Places, []string{"/srv/notes"}) || len(list[0].Sources) != 1 || list[0].Label != raw {
		t.Errorf("%+v, %v", list, err)
	}
	if err := s.Clear("git"); !errors.Is(err, ErrNoStain) {
		t.Error(err)
	}
	if err := s.Clear("files"); err != nil {
		t.Fatal(err)
	}
	check(s, "notion", "notion-work")
	db.Close()
	s, _ = opened(t, dir)
	holds(s)
	check(s, "notion", "notion-work")
}
