package main

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
)

// record is one decision and what came of it: one line in the log, one row for those who watch.
type record struct {
	began    time.Time
	path     monitor.Path
	verdict  egress.Verdict
	reason   string
	rule     string
	method   string
	host     string // as people read it, see display
	protocol string // of what is carried
	brokered bool   // secrets are put into its requests
	address  netip.AddrPort
	skipped  netip.Addr   // an answer that was refused, for the owner's eyes only
	special  string       // and what it is
	sent     atomic.Int64 // by the server
	received atomic.Int64
	err      error
	ref      *refusal
	entry    *monitor.Entry // once the connection is open
}

// target notes what was asked for and what was decided.
func (rec *record) target(d egress.Decision, to target) {
	rec.verdict, rec.reason, rec.rule, rec.host = d.Verdict, d.Reason, d.Rule, display(d, to)
	switch to.port {
	case 443:
		rec.protocol = "tls"
	case 80:
		rec.protocol = "http"
	default:
		rec.protocol = "tcp"
	}
}

// opened notes that the connection's TLS ends here, if it does.
func (rec *record) opened(yes bool) {
	if yes {
		rec.brokered, rec.protocol = true, "https"
	}
}

// conclude notes what came of it, and returns the refusal if it is one that the client has not been told of.
func (rec *record) conclude(err error) *refusal {
	var ref *refusal
	var told settled
	switch {
	case errors.As(err, &told):
		rec.ref = told.ref
	case errors.As(err, &ref):
		rec.ref = ref
	default:
		if rec.err == nil {
			rec.err = err
		}
		return nil
	}
	rec.reason = rec.ref.reason
	if rec.ref.denied() {
		rec.verdict = egress.Deny
	}
	return ref
}

// notice is what is told of a record at once: a refusal, or a connection that was allowed and has failed.
type notice struct {
	egress.Refusal
	failed bool
}

func (rec *record) notice() notice {
	return notice{egress.Refusal{Host: rec.host, Reason: rec.reason, Detail: rec.detail()}, rec.verdict == egress.Allow}
}

// String returns a line of `systemctl status`.
func (n notice) String() string {
	words := n.Refusal.String()
	if n.failed {
		return "failed" + strings.TrimPrefix(words, "refused")
	}
	return words
}

// detail is what the owner has to know to decide about a refusal; "": its reason says it.
func (rec *record) detail() string {
	if other, ok := errors.AsType[*unpinned](rec.err); ok {
		return other.Error()
	}
	return ""
}

func (rec *record) attrs() []slog.Attr {
	a := []slog.Attr{
		slog.String("verdict", rec.verdict.String()), slog.String("reason", rec.reason), slog.String("via", string(rec.path)),
	}
	if rec.method != "" {
		a = append(a, slog.String("method", rec.method))
	}
	a = append(a, slog.String("host", rec.host))
	if rec.rule != "" {
		a = append(a, slog.String("rule", rec.rule))
	}
	if rec.address.IsValid() {
		a = append(a, slog.String("address", rec.address.String()),
			slog.Int64("sent", rec.sent.Load()), slog.Int64("received", rec.received.Load()))
	}
	if rec.brokered {
		a = append(a, slog.Bool("brokered", true))
	}
	if rec.special != "" {
		a = append(a, slog.String("skipped", rec.skipped.String()), slog.String("special", rec.special))
	}
	if rec.err != nil {
		a = append(a, slog.String("error", rec.err.Error()))
	}
	return append(a, slog.Duration("duration", time.Since(rec.began).Round(time.Microsecond)))
}

// connection is the record for those who watch.
func (rec *record) connection() monitor.Connection {
	c := monitor.Connection{
		Time: rec.began, Path: rec.path, Protocol: rec.protocol, Host: rec.host, Verdict: rec.verdict.String(),
		Reason: rec.reason, Rule: rec.rule, Sent: rec.sent.Load(), Received: rec.received.Load(),
		Seconds: time.Since(rec.began).Seconds(),
	}
	c.Brokered, c.Detail = rec.brokered, rec.detail()
	if rec.address.IsValid() {
		c.Address = rec.address.String()
	}
	return c
}

// A server can ask a million times a minute. So many records of each verdict are written, and the rest counted.
const (
	burst    = 50
	perToken = 200 * time.Millisecond
	quiet    = 10 * time.Second // until the count of those left out is written
)

// journal writes records to the log, the last refusal to the runner, and everything to those who watch.
type journal struct {
	log    *slog.Logger // says whose records they are
	notify func(status string)
	tell   func(egress.Refusal) // pfard, of what the bridge has refused
	table  *monitor.Table
	clean  func(host string) string // without secrets

	mu      sync.Mutex
	buckets [2]bucket // by verdict: refusals do not crowd out what was allowed
	timer   *time.Timer
	last    notice // that was left out
}

type bucket struct {
	tokens  int
	filled  time.Time
	dropped int
}

func newJournal(log *slog.Logger, table *monitor.Table, notify func(string)) *journal {
	j := &journal{log: log, table: table, notify: notify, tell: func(egress.Refusal) {}}
	j.clean = func(host string) string { return host }
	for i := range j.buckets {
		j.buckets[i].tokens = burst
	}
	return j
}

// begin shows a connection that is open now.
func (j *journal) begin(rec *record) {
	rec.host = j.clean(rec.host)
	rec.entry = j.table.Begin(rec.connection(), func() (sent, received int64) {
		return rec.sent.Load(), rec.received.Load()
	})
}

// end records what has come to its end: a connection, or a refusal.
func (j *journal) end(rec *record) {
	rec.host = j.clean(rec.host)
	if rec.entry != nil {
		last := rec.connection()
		rec.entry.End(func(c *monitor.Connection) {
			c.Verdict, c.Reason, c.Sent, c.Received, c.Seconds = last.Verdict, last.Reason, last.Sent, last.Received, last.Seconds
		})
	} else {
		j.table.Refuse(rec.connection())
	}
	level := slog.LevelInfo
	if rec.ref != nil {
		level = slog.LevelWarn
	}
	if !j.admit(rec) {
		return
	}
	j.log.LogAttrs(context.Background(), level, "egress", rec.attrs()...)
	if rec.ref != nil {
		j.say(rec.notice())
	}
}

// admit takes a token of the record's bucket, or counts the record as left out.
func (j *journal) admit(rec *record) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := &j.buckets[min(int(rec.verdict), len(j.buckets)-1)]
	if b.take(time.Now()) {
		return true
	}
	b.dropped++
	if rec.ref != nil {
		j.last = rec.notice()
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
	last := j.last
	j.last = notice{}
	if j.timer != nil {
		j.timer.Stop()
		j.timer = nil
	}
	j.mu.Unlock()
	for verdict, n := range dropped {
		if n > 0 {
			j.log.Warn("egress records left out", "verdict", egress.Verdict(verdict).String(), "count", n)
		}
	}
	if last.Reason != "" {
		last.Before = max(0, dropped[egress.Deny]-1)
		j.say(last)
	}
}

// say tells the runner, and of a refusal pfard.
func (j *journal) say(n notice) {
	j.notify(n.String())
	if !n.failed {
		j.tell(n.Refusal)
	}
}
