package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/control"
)

// recorded are the records of a chain, and wants them to be whole.
func (a *auditor) recorded(t *testing.T, chain string) (list []audit.Record) {
	t.Helper()
	paths, err := a.dir.Files(chain)
	if err != nil {
		t.Fatal(err)
	}
	var files []audit.File
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, audit.File{Name: p, Reader: bytes.NewReader(b)})
		for line := range bytes.SplitSeq(b, []byte("\n")) {
			if r, err := audit.Parse(line); err == nil {
				list = append(list, r)
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if r, err := audit.Verify(chain, files, []audit.Anchor{a.bases[chain]}, nil); err != nil || len(r.Problems) > 0 {
		t.Fatalf("the chain of %s: %v, %v", chain, err, r.Problems)
	}
	return list
}

// words are records of one kind, in short.
func words(list []audit.Record, kind audit.Kind) string {
	var all []string
	for _, r := range list {
		if r.Kind == kind {
			all = append(all, strings.Join([]string{r.Method, r.Server, r.Subject, r.User, r.Outcome, r.Old[:min(len(r.Old), 4)] + ">" + r.New[:min(len(r.New), 4)]}, " "))
		}
	}
	return strings.Join(all, "\n")
}

// TestVaultIsRecorded: what is asked before it is done, what came of it after, and never a value.
func TestVaultIsRecorded(t *testing.T) {
	d, _, _ := fixture(t)
	ask := func(q control.Request) error {
		return d.answer(t.Context(), control.Peer{UID: 4711}, q, func(control.Response) error { return nil })
	}
	if err := ask(control.Request{Verb: control.Store, Key: "tok", Secret: "hunter2-hunter2"}); err != nil {
		t.Fatal(err)
	}
	if err := ask(control.Request{Verb: control.Remove, Key: "none"}); err == nil {
		t.Fatal("it is removed")
	}
	list := d.audit.recorded(t, ownChain)
	want := "store  tok uid 4711 asked >\nstore  tok uid 4711 new >\nremove  none uid 4711 asked >\nremove  none uid 4711 failed >"
	if got := words(list, audit.Vault); got != want {
		t.Errorf("recorded\n%s\nwant\n%s", got, want)
	}
	if b, _ := os.ReadFile(filepath.Join(d.audit.dir.Path, "pfard-000001.jsonl")); bytes.Contains(b, []byte("hunter2")) {
		t.Error("the value is in a record")
	}
	if err := d.audit.own.End(); err != nil { // nothing can be recorded any more
		t.Fatal(err)
	}
	for _, q := range []control.Request{{Verb: control.Store, Key: "other", Secret: "x"}, {Verb: control.Remove, Key: "tok"}, {Verb: control.Export, Recipient: "age1"}, {Verb: control.Rekey}, {Verb: control.Import}} {
		if err := ask(q); err == nil || !strings.Contains(err.Error(), "without a record") {
			t.Errorf("%s without a record: %v", q.Verb, err)
		}
	}
	if keys, err := d.vault.Keys(); err != nil || len(keys) != 1 || keys[0] != "tok" {
		t.Errorf("the vault has %q, %v", keys, err)
	}
	if err := ask(control.Request{Verb: control.Secrets}); err != nil {
		t.Errorf("looking is refused: %v", err)
	}
	if notes := strings.Join(d.reportNow(t).Notes, "\n"); !strings.Contains(notes, "the audit cannot be written") {
		t.Errorf("nobody is told: %q", notes)
	}
}

// TestLivesAreRecorded: declarations and states, old to new.
func TestLivesAreRecorded(t *testing.T) {
	d, _, changed := fixture(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "one"))
	changed <- struct{}{}
	d.state(t)
	d.put(t, "a.hcl", fmt.Sprintf(good, "two"))
	changed <- struct{}{}
	d.state(t)
	if err := os.Remove(filepath.Join(d.options.declarations, "a.hcl")); err != nil {
		t.Fatal(err)
	}
	changed <- struct{}{}
	d.state(t)
	list := d.audit.recorded(t, ownChain)
	declared := words(list, audit.Declaration)
	if lines := strings.Split(declared, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], " a "+d.options.declarations+"/a.hcl   >") || !strings.HasSuffix(lines[2], ">") || strings.HasSuffix(lines[1], ">") {
		t.Errorf("declarations:\n%s", declared)
	}
	if got := words(list, audit.Lifecycle); !strings.HasPrefix(got, " a    >star") || !strings.HasSuffix(got, ">remo") {
		t.Errorf("states:\n%s", got)
	}
}

func refusalOf(host string) egress.Refusal { return egress.Refusal{Host: host, Reason: "blocked"} }

// TestRefusalsAreRecorded: as many as there is room for, and how many more; one server's crowd out nobody else's.
func TestRefusalsAreRecorded(t *testing.T) {
	var list []audit.Record
	f := &refusals{record: func(r audit.Record) bool { list = append(list, r); return true }, of: map[string]*refusing{}}
	const many = 1000
	for i := range many {
		f.refused("noisy", "", refusalOf(fmt.Sprint(i)))
	}
	f.refused("quiet", "", refusalOf("one"))
	if n := len(list); n > recordedAtOnce+10 || list[n-1].Server != "quiet" || list[0].Subject != "0" || list[0].Outcome != "blocked" {
		t.Fatalf("%d records, the last %+v", n, list[n-1])
	}
	f.flush(f.of["noisy_"])
	f.flush(f.of["quiet_"])
	total := int64(0)
	for _, r := range list {
		total += 1 + r.Left
	}
	if last := list[len(list)-1]; total != many+1 || last.Subject != fmt.Sprint(many-1) || last.Left == 0 {
		t.Errorf("%d in all, the last %+v", total, last)
	}
	f.refused("third", "", egress.Refusal{Host: "h", Reason: "blocked", Detail: "d", Before: 4})
	if r := list[len(list)-1]; r.Left != 4 || r.Subject != "h" || r.Reason != "d" {
		t.Errorf("what its bridge left out is not counted: %+v", r)
	}
	for i := range 3 * maxRefusing {
		f.refused(fmt.Sprint("s", i), "", refusalOf("x"))
	}
	time.Sleep(2 * time.Second / recordedPerSecond) // until one token is back
	f.refused("more", "", refusalOf("x"))
	if len(f.of) > maxRefusing+2 {
		t.Errorf("%d are remembered", len(f.of))
	}
}

// TestGatewayFiles: the gateway gets a descriptor that can append and nothing else, over the control socket, and the
// next one when that has enough.
func TestGatewayFiles(t *testing.T) {
	d, _, _ := fixture(t)
	path := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- control.Serve(ctx, l, d.answer) }()
	defer func() { cancel(); <-served }()
	client := control.Client{Path: path}
	log := trail.New(trail.Options{Writer: gatewayChain})
	get := func() trail.Files {
		t.Helper()
		files, err := client.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := trail.Files{W: files[0], R: files[1]}
		if len(files) == 3 {
			f.Before = files[2]
		}
		return f
	}
	for range 3 {
		f := get()
		if flags, err := unix.FcntlInt(f.W.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_WRONLY || flags&unix.O_APPEND == 0 {
			t.Fatalf("flags %#x, %v", flags, err)
		}
		if _, err := f.R.Write([]byte("x")); err == nil {
			t.Error("what is to be read can be written")
		}
		if err := log.Use(f); err != nil {
			t.Fatal(err)
		}
		if err := log.Append(&audit.Record{Kind: audit.Open, Tool: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(d.audit.dir.Path, "gateway-000001.jsonl")
	if err := os.Truncate(first, trail.MaxSize+1); err != nil { // as if it were that large
		t.Fatal(err)
	}
	f := get()
	if f.Before == nil || filepath.Base(first) == filepath.Base(f.W.Name()) {
		t.Errorf("after %q comes %q", first, f.W.Name())
	}
	f.Close()
	if paths, _ := d.audit.dir.Files(gatewayChain); len(paths) != 2 {
		t.Errorf("files: %q", paths)
	}
	if _, err := client.Do(t.Context(), control.Request{Verb: "nonsense"}); !errors.Is(err, control.ErrInvalid) {
		t.Error(err)
	}
}

// TestBeginningsAreRemembered: where a chain begins since its oldest files were deleted is said in each of pfard's
// files, and by nobody who only looks what is there.
func TestBeginningsAreRemembered(t *testing.T) {
	dirs := control.Dirs{State: t.TempDir()}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	begin := func() *auditor {
		a := newAuditor(dirs, quiet)
		a.open(false)
		return a
	}
	a := begin()
	known := audit.Anchor{Chain: gatewayChain, Seq: 41, Hash: strings.Repeat("ab", 32)}
	a.based(known)
	if err := a.append(audit.Record{Kind: audit.Retention, Gap: audit.Gap{Anchors: []audit.Anchor{known}}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := a.own.End(); err != nil {
			t.Fatal(err)
		}
		a = begin()
		list := a.recorded(t, ownChain)
		if last := list[len(list)-1]; last.Kind != audit.Begin || len(last.Anchors) != 1 || last.Anchors[0] != known {
			t.Fatalf("the next one begins with %+v", last)
		}
	}
	// Somebody deletes the oldest file; the next pfard does not say that this is where the chain begins.
	if err := os.WriteFile(filepath.Join(dirs.Audit(), "gateway-000007.jsonl"), audit.Line(nil, 100, [32]byte{1}, time.Now(), (&audit.Record{Kind: audit.Begin}).Body(nil)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.own.End(); err != nil {
		t.Fatal(err)
	}
	a = begin()
	if list := a.recorded(t, ownChain); list[len(list)-1].Anchors[0] != known {
		t.Error("it believes what it finds")
	}
}

// warned is a log that says which files its warnings are about.
type warned struct {
	slog.Handler
	files chan string
}

func (w warned) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "file" {
			w.files <- filepath.Base(a.Value.String())
		}
		return true
	})
	return nil
}

func (w warned) Enabled(context.Context, slog.Level) bool { return true }

// TestTooMuchIsDeleted: the oldest files of a chain that has more than its room are deleted as soon as one more begins.
// That they are is recorded, logged and shown; what is left is whole, and the other chain's is not touched.
func TestTooMuchIsDeleted(t *testing.T) {
	log := warned{slog.DiscardHandler, make(chan string, 10)}
	a := newAuditor(control.Dirs{State: t.TempDir()}, slog.New(log))
	a.most = 2000 // more than the newest file has, and less than two
	end := a.keep(t.Context(), false)
	for n := 1; n <= 6; n++ {
		if n > 1 { // pfard is asked, a day after the last time
			f, _, err := a.dir.Open(gatewayChain, time.Now().Add(time.Duration(n)*(trail.MaxAge+time.Minute)))
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		l := trail.New(trail.Options{Writer: gatewayChain})
		err := a.gatewayFiles(func(r control.Response) error {
			f := trail.Files{W: dup(t, r.Files[0]), R: dup(t, r.Files[1])}
			if len(r.Files) == 3 {
				f.Before = dup(t, r.Files[2])
			}
			return l.Use(f)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Append(&audit.Record{Kind: audit.Open, Reason: strings.Repeat("x", 800)}); err != nil {
			t.Fatal(err)
		}
		if err := l.End(); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 4 {
		want := fmt.Sprintf("gateway-%06d.jsonl", n+1)
		select {
		case got := <-log.files:
			if got != want {
				t.Errorf("%s is deleted, want %s", got, want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s is not deleted", want)
		}
	}
	end()
	if list := words(a.recorded(t, ownChain), audit.Retention); strings.Count(list, "gateway-00000") != 4 {
		t.Errorf("recorded: %s", list)
	}
	a.recorded(t, gatewayChain)
	if said := strings.Join(a.shown(), "\n"); !strings.Contains(said, "the records of gateway until ") {
		t.Errorf("the status says %q", said)
	}
	a.lost[gatewayChain] = time.Now().Add(-auditKept)
	if a.pruneChain(gatewayChain); len(a.shown()) > 0 {
		t.Errorf("a month later the status says %q", a.shown())
	}
}

func dup(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// TestRoom is what a chain may have: a part of the disk, and of a large one no more than auditMost.
func TestRoom(t *testing.T) {
	a := newAuditor(control.Dirs{State: t.TempDir()}, slog.New(slog.DiscardHandler))
	a.open(false)
	if room := a.room(); room <= 0 || room > auditMost {
		t.Errorf("%d bytes", room)
	}
	a.most = math.MaxInt64
	var disk unix.Statfs_t
	if err := unix.Statfs(a.dir.Path, &disk); err != nil {
		t.Fatal(err)
	}
	if tenth, room := int64(disk.Blocks*uint64(disk.Frsize)/10), a.room(); disk.Blocks > 0 && (room > tenth || room < tenth-disk.Frsize) {
		t.Errorf("%d bytes, want a tenth of the disk, %d", room, tenth)
	}
	a.most = 1
	if room := a.room(); room != 1 {
		t.Errorf("%d bytes, want 1", room)
	}
}
