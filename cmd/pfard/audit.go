package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/journal"
)

const (
	gatewayChain = "gateway"
	ownChain     = "pfard"

	auditGroup = "pfar-admin"        // whose members may read what was recorded
	auditKept  = 30 * 24 * time.Hour // older files are deleted
	auditMost  = 4 << 30             // bytes of a chain's files, so that nobody fills the disk by calling: without records nothing is called
	auditShare = 10                  // they have no more than one part in so many of the disk, whatever its size
	pruneTime  = 24 * time.Hour      // between looks for what is to be deleted, beside those when a file begins
	probeTime  = 5 * time.Second     // between tries to write again
)

// auditor keeps the files of all chains, and writes pfard's own. Before open it has none, and what needs a record is
// refused.
type auditor struct {
	dir     trail.Dir
	own     *trail.Log
	log     *slog.Logger  // not one whose records end here
	also    *slog.Logger  // is told where pfard's own chain is, too; nil: nobody
	anchors *rate.Limiter // of the gateway: it sends one a minute
	told    func()        // is called when notes are others
	// again is called when records can be written again: what could not be recorded is to be, and what waits for that goes
	// on.
	again func()

	refusals refusals

	most  int64                // auditMost
	begun chan struct{}        // a file has begun
	lost  map[string]time.Time // by chain: until when its records were deleted though not old; of who prunes

	mu      sync.Mutex
	opened  bool
	ended   bool
	trouble error                   // why nothing can be recorded; nil: nothing is known of
	stuck   *string                 // why the gateway can record nothing, as it says; nil: it says nothing
	notes   map[string]string       // by what they are about
	bases   map[string]audit.Anchor // by chain, where it begins, if its beginning was deleted

	// These belong to the daemon's loop. What could not be recorded is not in them, and so is tried again.
	states map[string]string // by server, as recorded
	words  map[string]string // by server: digest of its declaration, as recorded
	policy string            // digest of what calls are decided by, as recorded
	known  map[string]string // by client: digest of its declaration, as recorded
}

func newAuditor(dirs control.Dirs, log *slog.Logger) *auditor {
	a := &auditor{dir: trail.Dir{Path: dirs.Audit(), Group: -1}, log: log,
		anchors: rate.NewLimiter(rate.Every(5*time.Second), 10), told: func() {}, again: func() {}, most: auditMost,
		begun: make(chan struct{}, 1), lost: map[string]time.Time{}, notes: map[string]string{},
		bases: map[string]audit.Anchor{}, states: map[string]string{}, words: map[string]string{}, known: map[string]string{}}
	a.refusals = refusals{record: a.record, of: map[string]*refusing{}}
	a.own = trail.New(trail.Options{
		Writer: ownChain, Turned: a.turned, Greeting: a.greet, Full: a.another, Anchor: a.anchor,
	})
	return a
}

// anchor tells where pfard's own chain is, by which its end is not cut unnoticed.
func (a *auditor) anchor(n audit.Anchor) {
	for _, log := range []*slog.Logger{a.log, a.also} {
		if log != nil {
			log.Info("audit", "chain", n.Chain, "seq", n.Seq, "hash", n.Hash)
		}
	}
}

// gatewayAnchor writes down where the gateway says that its chain is, where there is no journal: the gateway's user can
// rewrite its chain and its log, but not that.
func (a *auditor) gatewayAnchor(seq uint64, hash string) {
	if a.also != nil && a.anchors.Allow() {
		a.also.Info("audit", "chain", gatewayChain, "seq", seq, "hash", hash)
	}
}

// alsoTo has a file told where the chain is, too, where there is no journal. It keeps what was told before.
func (a *auditor) alsoTo(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of logs: %w", err)
	}
	if info, err := os.Lstat(path); err == nil && info.Size() >= units.LogSegment {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("beginning another log: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of where the audit is: %w", err)
	}
	a.also = slog.New(slog.NewTextHandler(f, nil))
	return f, nil
}

// open makes the directory and begins to write. sealed: the files are to be append-only for everyone. A disk that is
// full is no reason not to start: it is tried again with each record.
func (a *auditor) open(sealed bool) {
	a.mu.Lock()
	a.opened = true
	a.mu.Unlock()
	a.dir.Seal = sealed
	if g, err := user.LookupGroup(auditGroup); err == nil && os.Getuid() == 0 && sealed {
		if id, err := strconv.Atoi(g.Gid); err == nil {
			a.dir.Group = id
		}
	}
	if err := a.next(); err != nil {
		a.turned(err)
	}
}

// keep opens, and keeps no longer than it has to, until the returned function is called, after which nothing is
// recorded.
func (a *auditor) keep(ctx context.Context, sealed bool) (end func()) {
	a.open(sealed)
	ctx, cancel := context.WithCancel(ctx)
	var pruning sync.WaitGroup
	pruning.Go(func() { a.prune(ctx) })
	return func() {
		cancel()
		pruning.Wait()
		a.mu.Lock()
		a.ended = true
		a.mu.Unlock()
		if err := a.own.End(); err != nil {
			a.log.Error("ending the audit", "error", err)
		}
	}
}

// next has pfard's own chain go on in the newest file, or in another one if that has enough.
func (a *auditor) next() error {
	if err := a.dir.Make(); err != nil {
		return err
	}
	if errors.Is(a.own.Failed(), trail.ErrNoFile) {
		if err := a.remember(); err != nil {
			return err
		}
	}
	f, err := a.files(ownChain)
	if err != nil {
		return err
	}
	return a.own.Use(f)
}

// another is next for a file that has enough. Without another one, it grows.
func (a *auditor) another() {
	if err := a.next(); err != nil {
		a.log.Warn("beginning another audit file, trying again", "error", err)
	}
}

// files opens the newest file of a chain.
func (a *auditor) files(chain string) (trail.Files, error) {
	f, unsealed, err := a.dir.Open(chain, time.Now())
	if err == nil {
		words := ""
		if unsealed != nil {
			words = "the audit's files can be changed by whoever may write to them: " + unsealed.Error()
		}
		a.note("sealed", words)
		select {
		case a.begun <- struct{}{}:
		default:
		}
	}
	return f, err
}

// note has a note shown in pfar status; "" takes it back.
func (a *auditor) note(about, words string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.notes[about] == words {
		return
	}
	if a.notes[about] = words; words == "" {
		delete(a.notes, about)
	}
	go a.told()
}

func (a *auditor) shown() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, words := range a.notes {
		list = append(list, words)
	}
	return list
}

// turned takes it that records cannot be written, or can again.
func (a *auditor) turned(err error) {
	a.mu.Lock()
	before := a.trouble
	if before != nil && errors.Is(err, trail.ErrNoFile) {
		err = before // it says why there is none
	}
	a.trouble = err
	a.mu.Unlock()
	if err == nil {
		a.note("failed", "")
		a.log.Info("the audit is written again")
		go a.again()
		return
	}
	a.note("failed", err.Error()+"; until it can be, no secret is stored, exported or handed to a process, and no other "+
		"policy and no other client counts")
	a.log.Log(context.Background(), journal.LevelCritical, "the audit cannot be written", "error", err)
	if before == nil {
		time.AfterFunc(probeTime, a.probe)
	}
}

// probe tries whether records can be written again, until they can: nobody says when a disk has space. That they could
// not is the record.
func (a *auditor) probe() {
	a.mu.Lock()
	why, ended := a.trouble, a.ended
	a.mu.Unlock()
	if why == nil || ended {
		return
	}
	if a.append(audit.Record{Kind: audit.Resumed, Reason: why.Error()}) != nil {
		time.AfterFunc(probeTime, a.probe)
	}
}

// failing returns why nothing can be recorded, nil if nothing is known of.
func (a *auditor) failing() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.trouble
}

// greet says where all chains begin whose beginning was deleted: the files that say so are deleted in time as well.
func (a *auditor) greet(r *audit.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, chain := range slices.Sorted(maps.Keys(a.bases)) {
		r.Anchors = append(r.Anchors, a.bases[chain])
	}
}

// based takes it that a chain begins elsewhere from now on.
func (a *auditor) based(n audit.Anchor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bases[n.Chain] = n
}

// remember reads what pfard's own chain says of where chains begin. Each of its files says all of it.
func (a *auditor) remember() error {
	paths, err := a.dir.Files(ownChain)
	if err != nil {
		return err
	}
	for _, path := range slices.Backward(paths) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		file, read := io.ReadCloser(f), false
		r := audit.NewReader(func() (io.ReadCloser, error) {
			next := file
			file = nil
			return next, nil
		})
		for {
			record, _, ok, err := r.Next()
			if err != nil || !ok {
				break
			}
			read = true
			for _, n := range record.Anchors {
				a.based(n)
			}
		}
		f.Close()
		if read {
			break
		}
	}
	return nil
}

func (a *auditor) isOpened() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened
}

// append records something. The error is for those who must not go on without a record; all others are told by turned.
func (a *auditor) append(r audit.Record) error {
	err := a.own.Append(&r)
	if !errors.Is(err, trail.ErrNoFile) || !a.isOpened() {
		return err
	}
	if err := a.next(); err != nil {
		return err
	}
	return a.own.Append(&r)
}

// record records something that has happened already, and reports whether it could be. That it could not is told by
// turned.
func (a *auditor) record(r audit.Record) bool { return a.append(r) == nil }

// prune deletes what is old and what is too much, now, when a file begins and once a day, until ctx ends.
func (a *auditor) prune(ctx context.Context) {
	t := time.NewTicker(pruneTime)
	defer t.Stop()
	for {
		for _, chain := range []string{gatewayChain, ownChain} {
			a.pruneChain(chain)
		}
		select {
		case <-a.begun:
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// pruneChain deletes the oldest files of a chain. Each chain has its own room, so that no calls drive out what pfard
// has recorded.
func (a *auditor) pruneChain(chain string) {
	room := a.room()
	err := a.dir.Prune(chain, auditKept, room, time.Now(), func(d trail.Deleted) error {
		why := "older than 30 days"
		if !d.Old {
			why = fmt.Sprintf("there were more than %d MiB; written to until %s", room>>20, d.Until.UTC().Format(time.RFC3339))
		}
		a.based(d.Base)
		gap := audit.Gap{Anchors: []audit.Anchor{d.Base}}
		err := a.append(audit.Record{Kind: audit.Retention, Subject: d.Path, Reason: why, Gap: gap})
		if err == nil && !d.Old {
			a.lost[chain] = d.Until
			a.log.Warn("an audit file is deleted before its time, for there is too much", "file", d.Path, "why", why)
			a.note("room "+chain, fmt.Sprintf("the records of %s until %s are deleted, though not 30 days old: there were "+
				"more than %d MiB (pfar audit --kind retention)", chain, d.Until.Format(time.DateTime), room>>20))
		}
		return err
	})
	if err != nil {
		a.log.Warn("deleting old audit files, ignoring", "error", err)
	}
	if until, ok := a.lost[chain]; ok && time.Since(until) >= auditKept {
		delete(a.lost, chain)
		a.note("room "+chain, "")
	}
}

// room is how many bytes the files of a chain may have.
func (a *auditor) room() int64 {
	var disk unix.Statfs_t
	if err := unix.Statfs(a.dir.Path, &disk); err != nil || disk.Blocks == 0 { // some file systems do not say
		return a.most
	}
	return min(a.most, int64(disk.Blocks/auditShare)*int64(disk.Frsize))
}

// gatewayFiles answers the gateway, which asks when it starts and when its file has enough.
func (a *auditor) gatewayFiles(send func(control.Response) error) error {
	f, err := a.files(gatewayChain)
	if err != nil {
		return err
	}
	defer f.Close()
	r := control.Response{Files: []*os.File{f.W, f.R}}
	if f.Before != nil {
		r.Files = append(r.Files, f.Before)
	}
	return send(r)
}

// life is what is recorded of a server.
type life struct{ state, detail, word, file, insecure string }

// lifecycle records servers that are in another state than last recorded.
func (a *auditor) lifecycle(servers map[string]life) {
	for name, s := range servers {
		was := a.states[name]
		r := audit.Record{Kind: audit.Lifecycle, Server: name, Old: was, New: s.state, Reason: s.detail}
		if was != s.state && a.record(r) {
			a.states[name] = s.state
		}
	}
	for name, was := range a.states {
		_, there := servers[name]
		if !there && a.record(audit.Record{Kind: audit.Lifecycle, Server: name, Old: was, New: "removed"}) {
			delete(a.states, name)
		}
	}
}

// declarations records servers whose declaration is another than last recorded.
func (a *auditor) declarations(servers map[string]life) {
	for name, s := range servers {
		was := a.words[name]
		r := audit.Record{
			Kind: audit.Declaration, Server: name, Subject: s.file, Old: was, New: s.word, Reason: s.insecure,
		}
		if was != s.word && a.record(r) {
			a.words[name] = s.word
		}
	}
	for name, was := range a.words {
		_, there := servers[name]
		if !there && was != "" && a.record(audit.Record{Kind: audit.Declaration, Server: name, Old: was}) {
			a.words[name] = ""
		}
	}
}
