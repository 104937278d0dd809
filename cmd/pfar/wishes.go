package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units/monitor"
	"github.com/pfar/pfar/units/wants"
)

// maxWishes bounds how many different things are remembered: a server may ask for names that it makes up.
const maxWishes = 1000

// wishes are what a server wanted to reach and may not.
type wishes struct {
	since   time.Time // what came before belongs to another run
	seen    map[connectionKey]int
	order   []connectionKey // of seen, oldest first
	by      map[wants.Wish]*asked
	left    int // refusals of what was too much to be remembered
	lost    int // connections that the bridge had dropped before they were read
	refused func(w wants.Wish, m monitor.Connection)
}

// asked is how a wish was made.
type asked struct {
	times     int
	protocols map[string]bool
}

// newWishes remembers from a moment on. news is called with what had not been asked for before.
func newWishes(since time.Time, news func(wants.Wish, monitor.Connection)) *wishes {
	return &wishes{since: since, seen: map[connectionKey]int{}, by: map[wants.Wish]*asked{}, refused: news}
}

// see takes a message of the bridge, as often as it comes.
func (w *wishes) see(m monitor.Connection) {
	if m.Open || m.Verdict == "allow" || lastOf(m).Before(w.since) {
		return
	}
	k, count := keyOf(m), max(1, m.Count)
	before, known := w.seen[k]
	if !known {
		if w.order = append(w.order, k); len(w.order) > maxShown {
			delete(w.seen, w.order[0])
			w.order = w.order[1:]
		}
	}
	w.seen[k] = max(before, count)
	if count <= before {
		return
	}
	if !known && m.Time.Before(w.since) {
		count = 1 // how many of them are of this run is not known
	}
	t := wants.WishOf(m)
	a := w.by[t]
	if a == nil {
		if len(w.by) == maxWishes {
			w.left++
			return
		}
		a = &asked{protocols: map[string]bool{}}
		w.by[t] = a
		w.refused(t, m)
	}
	a.times += count - before
	if m.Protocol != "" && len(a.protocols) < 8 {
		a.protocols[wants.Clip(m.Protocol, wants.LongestReason)] = true
	}
}

// lesson sums up. What is declared by now is not suggested.
func (w *wishes) lesson(server string, declared []string, took time.Duration) wants.Lesson {
	l := wants.Lesson{Server: server, Seconds: took.Seconds(), Declared: append([]string{}, declared...),
		Suggested: []wants.Suggestion{}, Refused: []wants.Denial{}, LeftOut: w.left, Lost: w.lost}
	var policy egress.Policy
	for _, s := range declared {
		if e, err := egress.ParseEndpoint(s); err == nil {
			policy.Endpoints = append(policy.Endpoints, e)
		}
	}
	connected := map[string]bool{}
	for t := range w.by {
		connected[t.Host] = connected[t.Host] || t.Port != 0 && t.Obstacle == ""
	}
	byEntry, hosts := map[string]*wants.Suggestion{}, map[string]string{}
	for t, a := range w.by {
		switch {
		case t.Obstacle != "":
			l.Refused = append(l.Refused, wants.Denial{Target: t.Target(), Reason: t.Obstacle, Times: a.times})
		case t.Port == 0 && connected[t.Host], policy.Decide(t.Host, cmp.Or(t.Port, 443)).Verdict == egress.Allow:
		default:
			s := byEntry[t.Entry()]
			if s == nil {
				s = &wants.Suggestion{Entry: t.Entry(), LookedUp: t.Port == 0}
				byEntry[s.Entry], hosts[s.Entry] = s, t.Host
			}
			a.addTo(s, t)
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(byEntry)) {
		l.Suggested = append(l.Suggested, *byEntry[entry])
	}
	slices.SortFunc(l.Suggested, func(a, b wants.Suggestion) int {
		return cmp.Or(strings.Compare(hosts[a.Entry], hosts[b.Entry]), slices.Compare(a.Ports, b.Ports))
	})
	slices.SortFunc(l.Refused, func(a, b wants.Denial) int {
		return cmp.Or(strings.Compare(a.Target, b.Target), strings.Compare(a.Reason, b.Reason))
	})
	l.AllDomains = append([]string{}, declared...)
	for _, s := range l.Suggested {
		l.AllDomains = append(l.AllDomains, s.Entry)
	}
	return l
}

// addTo adds a wish to the entry that would allow it.
func (a *asked) addTo(s *wants.Suggestion, t wants.Wish) {
	s.Times += a.times
	if t.Port == 0 {
		return // the protocol would be that of the question
	}
	s.Ports = append(s.Ports, t.Port)
	slices.Sort(s.Ports)
	for p := range a.protocols {
		if !slices.Contains(s.Protocols, p) {
			s.Protocols = append(s.Protocols, p)
		}
	}
	slices.Sort(s.Protocols)
}

// leaveOut removes the host of a remote server's url from the suggested hosts: the url already allows it.
func leaveOut(l *wants.Lesson, address string) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	own := func(entry string) bool { return entry == u.Hostname() || entry == net.JoinHostPort(u.Hostname(), port) }
	l.Declared, l.AllDomains = slices.DeleteFunc(l.Declared, own), slices.DeleteFunc(l.AllDomains, own)
}

// writeLesson prints the whole attribute, which HCL and TOML read alike: whoever pastes it has reviewed every line.
func writeLesson(w io.Writer, l wants.Lesson) error {
	var b strings.Builder
	if len(l.AllDomains)+len(l.Refused)+l.LeftOut+l.Lost == 0 {
		_, err := io.WriteString(w, "allowed_domains = []\n")
		return err
	}
	b.WriteString("allowed_domains = [\n")
	width := 0
	for _, s := range l.Suggested {
		width = max(width, utf8.RuneCountInString(s.Entry))
	}
	for _, d := range l.Declared {
		fmt.Fprintf(&b, "  %s,\n", strconv.Quote(d))
	}
	for _, s := range l.Suggested {
		fmt.Fprintf(&b, "  %-*s  # %s\n", width+3, strconv.Quote(s.Entry)+",", escape(s.Words(), oneLine))
	}
	for _, d := range l.Refused {
		fmt.Fprintf(&b, "  # %s: %s (%s)\n", escape(cmp.Or(d.Target, "no target"), oneLine), escape(d.Reason, oneLine), wants.Times(d.Times))
	}
	if l.LeftOut > 0 {
		fmt.Fprintf(&b, "  # left out: %d refusals of more than these %d\n", l.LeftOut, maxWishes)
	}
	if l.Lost > 0 {
		fmt.Fprintf(&b, "  # missed: %d refusals that came too fast\n", l.Lost)
	}
	b.WriteString("]\n")
	_, err := io.WriteString(w, b.String())
	return err
}
