package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/pfar/pfar/policies/egress"
)

// record is one decision and what came of it: one line in the log.
type record struct {
	began    time.Time
	verdict  egress.Verdict
	reason   string
	rule     string
	method   string
	host     string // as people read it, see display
	address  netip.AddrPort
	skipped  netip.Addr // an answer that was refused, for the owner's eyes only
	special  string     // and what it is
	sent     int64      // by the server
	received int64
	err      error
	ref      *refusal
}

// conclude fills in what was asked and what came of it. There may be no request, and no refusal.
func (rec *record) conclude(d egress.Decision, r *request, ref *refusal) {
	rec.ref = ref
	rec.verdict, rec.reason, rec.rule, rec.host = d.Verdict, d.Reason, d.Rule, display(d, r)
	if r != nil && token(r.method) {
		rec.method = escape(r.method)
	}
	if rec.ref != nil {
		rec.reason = rec.ref.reason
		if rec.ref.denied() {
			rec.verdict = egress.Deny
		}
	}
}

// status is the record as a line of `systemctl status`.
func (rec *record) status() string {
	host := rec.host
	if host == "" {
		host = "request"
	}
	word := "refused"
	if rec.verdict == egress.Allow {
		word = "failed"
	}
	return fmt.Sprintf("%s %s (%s)", word, host, rec.reason)
}

func (rec *record) attrs(server string) []slog.Attr {
	a := []slog.Attr{
		slog.String("server", server), slog.String("verdict", rec.verdict.String()), slog.String("reason", rec.reason),
		slog.String("method", rec.method), slog.String("host", rec.host),
	}
	if rec.rule != "" {
		a = append(a, slog.String("rule", rec.rule))
	}
	if rec.address.IsValid() {
		a = append(a, slog.String("address", rec.address.String()), slog.Int64("sent", rec.sent), slog.Int64("received", rec.received))
	}
	if rec.special != "" {
		a = append(a, slog.String("skipped", rec.skipped.String()), slog.String("special", rec.special))
	}
	if rec.err != nil {
		a = append(a, slog.String("err", rec.err.Error()))
	}
	return append(a, slog.Duration("duration", time.Since(rec.began).Round(time.Microsecond)))
}

// A server can ask a million times a minute. So many records of each verdict are written, and the rest counted.
const (
	burst    = 50
	perToken = 200 * time.Millisecond
	quiet    = 10 * time.Second // until the count of those left out is written
)

// journal writes records to the log, and the last refusal to the runner.
type journal struct {
	log    *slog.Logger
	server string
	notify func(status string)

	mu      sync.Mutex
	buckets [2]bucket // by verdict: refusals do not crowd out what was allowed
	timer   *time.Timer
	status  string // of a refusal that was left out
}

type bucket struct {
	tokens  int
	filled  time.Time
	dropped int
}

func newJournal(log *slog.Logger, server string, notify func(string)) *journal {
	j := &journal{log: log, server: server, notify: notify}
	for i := range j.buckets {
		j.buckets[i].tokens = burst
	}
	return j
}

func (j *journal) add(rec record) {
	level := slog.LevelInfo
	if rec.ref != nil {
		level = slog.LevelWarn
	}
	if !j.admit(rec) {
		return
	}
	j.log.LogAttrs(context.Background(), level, "egress", rec.attrs(j.server)...)
	if rec.ref != nil {
		j.notify(rec.status())
	}
}

// admit takes a token of the record's bucket, or counts the record as left out.
func (j *journal) admit(rec record) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := &j.buckets[min(int(rec.verdict), len(j.buckets)-1)]
	if b.take(time.Now()) {
		return true
	}
	b.dropped++
	if rec.ref != nil {
		j.status = rec.status()
	}
	if j.timer == nil {
		j.timer = time.AfterFunc(quiet, j.flush)
	}
	return false
}

func (b *bucket) take(now time.Time) bool {
	if n := int(now.Sub(b.filled) / perToken); n > 0 {
		b.tokens = min(burst, b.tokens+n)
		b.filled = now
	}
	if b.tokens == 0 {
		return false
	}
	b.tokens--
	return true
}

// flush writes how many records were left out, and the last refusal among them.
func (j *journal) flush() {
	j.mu.Lock()
	dropped := [2]int{j.buckets[0].dropped, j.buckets[1].dropped}
	j.buckets[0].dropped, j.buckets[1].dropped = 0, 0
	status := j.status
	j.status = ""
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	j.mu.Unlock()
	for verdict, n := range dropped {
		if n > 0 {
			j.log.Warn("egress records left out", "server", j.server, "verdict", egress.Verdict(verdict).String(), "count", n)
		}
	}
	if status != "" {
		j.notify(status)
	}
}
