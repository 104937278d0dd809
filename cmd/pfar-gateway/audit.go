package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/journal"
	"github.com/pfar/pfar/units/packet"
)

const (
	fileTime  = 10 * time.Second // for pfard to open a file
	probeTime = 5 * time.Second  // between tries to write again
)

// newAudit makes the gateway's chain, which has no file until pfard has opened one (followAudit).
func (g *gateway) newAudit() *trail.Log {
	full := make(chan struct{}, 1)
	turned := make(chan error, 1)
	g.auditFull, g.auditTurned = full, turned
	return trail.New(trail.Options{
		Writer: "gateway",
		Anchor: func(a audit.Anchor) {
			g.log.Info("audit", "chain", a.Chain, "seq", a.Seq, "hash", a.Hash)
			notify(g.log, fmt.Sprintf("%s=%d %s", units.NotifyAnchor, a.Seq, a.Hash)) // where the log is a file, pfard's word counts
		},
		Full: func() {
			select {
			case full <- struct{}{}:
			default:
			}
		},
		Turned: func(err error) {
			select {
			case <-turned: // the newest alone counts
			default:
			}
			turned <- err // the log calls this once at a time
			if err == nil {
				g.log.Info("the audit is written again")
				return
			}
			g.log.Log(context.Background(), journal.LevelCritical, "the audit cannot be written, and nothing is called",
				slog.String("error", err.Error()))
		},
	})
}

// followAudit asks pfard for the file to write to, now and when that has enough, until ctx ends.
func (g *gateway) followAudit(ctx context.Context) {
	const first, longest = 100 * time.Millisecond, 5 * time.Second
	for pause := first; ; {
		err := g.nextAudit(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = first
			select {
			case <-g.auditFull:
			case <-ctx.Done():
				return
			}
			continue
		}
		g.log.Warn("asking pfard for the audit file, again soon", "error", err.Error())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, longest)
	}
}

// followTrouble has pfard know as long as records cannot be written: an administrator looks there. It ends with ctx.
func (g *gateway) followTrouble(ctx context.Context) {
	for {
		select {
		case why := <-g.auditTurned:
			if why != nil {
				g.tellTrouble(ctx, why)
			}
		case <-ctx.Done():
			return
		}
	}
}

// tellTrouble returns when records can be written again. It tries that itself: nobody may call, and nobody says when a
// disk has space.
func (g *gateway) tellTrouble(ctx context.Context, why error) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		g.followPfard(ctx, "to show that the audit cannot be written", askAgain, func(heard func()) error {
			return g.pfard.Stuck(ctx, why.Error(), heard)
		})
	})
	defer telling.Wait()
	defer cancel()
	again := time.NewTicker(probeTime)
	defer again.Stop()
	for {
		select {
		case now := <-g.auditTurned:
			if now == nil {
				return
			}
		case <-again.C: // that they could not be is the record
			_ = g.audit.Append(&audit.Record{Kind: audit.Resumed, Reason: why.Error()}) // auditTurned says so
		case <-ctx.Done():
			return
		}
	}
}

func (g *gateway) nextAudit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fileTime)
	defer cancel()
	files, err := g.pfard.Audit(ctx)
	if err != nil {
		return err
	}
	f := trail.Files{W: files[0], R: files[1]}
	if len(files) == 3 {
		f.Before = files[2]
	}
	return g.useAudit(f)
}

// takeAudit goes on in the file of the gateway before this one, until pfard says which is the newest.
func (g *gateway) takeAudit(files []*os.File) {
	if len(files) == 0 {
		return
	}
	err := errors.New("the store does not have the two descriptors of a file")
	if len(files) == 2 {
		err = g.useAudit(trail.Pair(files[0], files[1]))
	} else {
		packet.CloseAll(files)
		err = errors.Join(err, g.store.Forget(units.FDAudit))
	}
	if err != nil {
		g.log.Warn("giving up the audit file of the gateway before this one", "reason", err.Error())
	}
}

// useAudit has records written to a file, and the next gateway begin with it, if one of this one is in it.
func (g *gateway) useAudit(f trail.Files) error {
	if g.store == nil || !g.keepAudit {
		return g.audit.Use(f)
	}
	err := g.store.Forget(units.FDAudit)
	if err == nil {
		err = g.store.Keep(units.FDAudit, f.W, f.R)
	}
	if err != nil {
		g.log.Warn("the next gateway will have to wait for pfard's audit file", "error", err.Error())
	}
	if err = g.audit.Use(f); err != nil || g.audit.Failed() != nil {
		err = errors.Join(err, g.store.Forget(units.FDAudit)) // its lock is on the descriptors
	}
	return err
}

// record has records on the disk before what they are about is done: without them, it is not.
func (g *gateway) record(records ...audit.Record) error {
	for i := range records {
		if err := g.audit.Append(&records[i]); err != nil {
			return fmt.Errorf("%w; pfar does nothing that it cannot record", err)
		}
	}
	return g.audit.Sync()
}

// endAudit is called when nothing more is recorded.
func (g *gateway) endAudit() {
	if err := g.audit.Failed(); err != nil {
		return
	}
	if err := g.audit.End(); err != nil {
		g.log.Error("ending the audit", "error", err.Error())
	}
}
