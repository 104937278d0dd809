package main

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/control"
)

// What a server may fill the audit with, which can ask for hosts a million times a minute.
const (
	recordedPerSecond = 5
	recordedAtOnce    = 50
	leftTime          = 10 * time.Second // until those that were left out are recorded as a number
	maxRefusing       = 256              // servers that are remembered without need
)

// refusals records hosts that bridges refused, as many as there is room for, of each server's process.
type refusals struct {
	record func(audit.Record) bool // reports whether it could be

	mu sync.Mutex
	of map[string]*refusing
}

type refusing struct {
	pace *rate.Limiter
	left int64
	last audit.Record // of those left out

	newest control.Refusal // of all
}

func (f *refusals) lastOf(server, session string) control.Refusal {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.of[server+"_"+session]; p != nil {
		return p.newest
	}
	return control.Refusal{}
}

// refused takes what a bridge said, without secrets.
func (f *refusals) refused(server, session string, refusal egress.Refusal) {
	r := audit.Record{
		Kind: audit.Refused, Server: server, Session: session, Time: time.Now(),
		Subject: refusal.Host, Outcome: refusal.Reason, Reason: refusal.Detail,
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := server + "_" + session
	p := f.of[key]
	if p == nil {
		f.forget()
		p = &refusing{pace: rate.NewLimiter(recordedPerSecond, recordedAtOnce)}
		f.of[key] = p
	}
	p.newest = control.Refusal{Time: r.Time, Refused: refusal}
	n := 1 + int64(refusal.Before)
	if p.pace.Allow() {
		if r.Left = p.left + n - 1; f.record(r) {
			p.left = 0
			return
		}
	}
	if p.left == 0 {
		time.AfterFunc(leftTime, func() { f.flush(p) })
	}
	p.left, p.last = p.left+n, r
}

// flush records how many were left out, and the last of them, as soon as it can.
func (f *refusals) flush(p *refusing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.left == 0 {
		return
	}
	if p.last.Left = p.left - 1; f.record(p.last) {
		p.left = 0
		return
	}
	time.AfterFunc(leftTime, func() { f.flush(p) })
}

// forget gives up those that have refused nothing for long, if there are many.
func (f *refusals) forget() {
	if len(f.of) < maxRefusing {
		return
	}
	for key, p := range f.of {
		if p.left == 0 && p.pace.Tokens() >= recordedAtOnce {
			delete(f.of, key)
		}
	}
}
