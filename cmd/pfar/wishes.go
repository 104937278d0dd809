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
)

const (
	longestTarget = 300 // octets; a name with its port has at most 259
	longestReason = 100 // octets
)

// maxWishes bounds how many different things are remembered: a server may ask for names that it makes up.
const maxWishes = 1000

// wishes are what a server wanted to reach and may not.
type wishes struct {
	since   time.Time // what came before belongs to another run
	seen    map[connectionKey]int
	order   []connectionKey // of seen, oldest first
	by      map[wish]*asked
	left    int // refusals of what was too much to be remembered
	lost    int // connections that the bridge had dropped before they were read
	refused func(w wish, m monitor.Connection)
}

// wish is one thing that a server wants.
type wish struct {
	host     string
	port     uint16 // 0: it was only looked up, or there is none
	obstacle string // why it is nothing for allowed_domains; "": it is
}

// asked is how a wish was made.
type asked struct {
	times     int
	protocols map[string]bool
}

// newWishes remembers from a moment on. news is called with what had not been asked for before.
func newWishes(since time.Time, news func(wish, monitor.Connection)) *wishes {
	return &wishes{since: since, seen: map[connectionKey]int{}, by: map[wish]*asked{}, refused: news}
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
	t := wishOf(m)
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
		a.protocols[clip(m.Protocol, longestReason)] = true
	}
}

// wishOf says what a refusal would have needed.
func wishOf(m monitor.Connection) wish {
	host, port := splitHost(clip(m.Host, longestTarget))
	t := wish{host: host, port: port}
	m.Reason, m.Protocol = clip(m.Reason, longestReason), clip(m.Protocol, longestReason)
	if m.Path == monitor.Kernel && m.Protocol != "tcp" {
		t.obstacle = "only TCP is passed on, this is " + m.Protocol
		return t
	}
	switch m.Reason {
	case egress.NameNotDeclared, egress.PortNotDeclared, egress.AddressLiteral, "not-declared": // the last is the kernel's
	default:
		t.obstacle = m.Reason
		return t
	}
	e, err := egress.ParseEndpoint(t.entry())
	switch {
	case m.Host == "":
		t.obstacle = m.Reason + ", and it named no host"
	case err != nil:
		t.obstacle = "nothing that can be declared"
	case e.Wildcard:
		t.obstacle = "no host name"
	case e.Host == "arpa" || strings.HasSuffix(e.Host, ".arpa"):
		t.obstacle = "the name of an address, which nothing connects to"
	case e.Prefix.IsValid() && !e.Prefix.IsSingleIP():
		t.obstacle = "no address"
	case e.Prefix.IsValid():
		if kind, ok := egress.Vet(e.Prefix.Addr().Unmap()); !ok {
			t.obstacle = "a special address (" + kind + "); declare it only if you know what answers there"
		}
		t.host = e.Prefix.Addr().String()
	default:
		t.host = e.Host
	}
	return t
}

// clip shortens what is longer than a bridge makes it.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// splitHost reads "host:port", "[address]:port", or either without a port.
func splitHost(s string) (host string, port uint16) {
	host, rest, cut := s, "", false
	if inner, ok := strings.CutPrefix(s, "["); ok {
		host, rest, _ = strings.Cut(inner, "]")
		rest, cut = strings.CutPrefix(rest, ":")
	} else if strings.Count(s, ":") == 1 {
		host, rest, cut = strings.Cut(s, ":")
	}
	if !cut {
		return host, 0
	}
	port, ok := egress.ParsePort(rest)
	if !ok {
		return s, 0
	}
	return host, port
}

// entry is the entry of allowed_domains that would allow a wish.
func (w wish) entry() string {
	if w.port == 0 || w.port == 443 || w.port == 80 {
		return w.host
	}
	return w.target()
}

func (w wish) target() string {
	if w.port == 0 {
		return w.host
	}
	if strings.Contains(w.host, ":") {
		return "[" + w.host + "]:" + strconv.Itoa(int(w.port))
	}
	return w.host + ":" + strconv.Itoa(int(w.port))
}

// suggestion is an entry of allowed_domains that a server could use.
type suggestion struct {
	Entry     string   `json:"entry"`
	Times     int      `json:"times"`           // connections, or questions for its address if it was only looked up
	Ports     []uint16 `json:"ports,omitempty"` // empty if it was only looked up
	Protocols []string `json:"protocols,omitempty"`
	LookedUp  bool     `json:"only_looked_up,omitempty"`
	host      string
}

// denial is what a server wanted and cannot simply be given.
type denial struct {
	Target string `json:"target"`
	Reason string `json:"reason"`
	Times  int    `json:"times"`
}

// lesson is what was learned of a server.
type lesson struct {
	Server     string       `json:"server"`
	Seconds    float64      `json:"seconds"` // that it was observed
	Declared   []string     `json:"declared"`
	Suggested  []suggestion `json:"suggested"`
	Refused    []denial     `json:"refused"`
	LeftOut    int          `json:"left_out,omitempty"` // refusals of what was too much to be remembered
	Lost       int          `json:"lost,omitempty"`     // refusals that came too fast to be read
	AllDomains []string     `json:"allowed_domains"`    // Declared and Suggested
}

// lesson sums up. What is declared by now is not suggested.
func (w *wishes) lesson(server string, declared []string, took time.Duration) lesson {
	l := lesson{Server: server, Seconds: took.Seconds(), Declared: append([]string{}, declared...),
		Suggested: []suggestion{}, Refused: []denial{}, LeftOut: w.left, Lost: w.lost}
	var policy egress.Policy
	for _, s := range declared {
		if e, err := egress.ParseEndpoint(s); err == nil {
			policy.Endpoints = append(policy.Endpoints, e)
		}
	}
	connected := map[string]bool{}
	for t := range w.by {
		connected[t.host] = connected[t.host] || t.port != 0 && t.obstacle == ""
	}
	byEntry := map[string]*suggestion{}
	for t, a := range w.by {
		switch {
		case t.obstacle != "":
			l.Refused = append(l.Refused, denial{t.target(), t.obstacle, a.times})
		case t.port == 0 && connected[t.host], policy.Decide(t.host, cmp.Or(t.port, 443)).Verdict == egress.Allow:
		default:
			s := byEntry[t.entry()]
			if s == nil {
				s = &suggestion{Entry: t.entry(), LookedUp: t.port == 0, host: t.host}
				byEntry[s.Entry] = s
			}
			s.add(t, a)
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(byEntry)) {
		l.Suggested = append(l.Suggested, *byEntry[entry])
	}
	slices.SortFunc(l.Suggested, func(a, b suggestion) int {
		return cmp.Or(strings.Compare(a.host, b.host), slices.Compare(a.Ports, b.Ports))
	})
	slices.SortFunc(l.Refused, func(a, b denial) int {
		return cmp.Or(strings.Compare(a.Target, b.Target), strings.Compare(a.Reason, b.Reason))
	})
	l.AllDomains = append([]string{}, declared...)
	for _, s := range l.Suggested {
		l.AllDomains = append(l.AllDomains, s.Entry)
	}
	return l
}

// entries are the suggested ones.
func (l lesson) entries() (hosts []string) {
	for _, s := range l.Suggested {
		hosts = append(hosts, s.Entry)
	}
	return hosts
}

func (s *suggestion) add(t wish, a *asked) {
	s.Times += a.times
	if t.port == 0 {
		return // the protocol would be that of the question
	}
	s.Ports = append(s.Ports, t.port)
	slices.Sort(s.Ports)
	for p := range a.protocols {
		if !slices.Contains(s.Protocols, p) {
			s.Protocols = append(s.Protocols, p)
		}
	}
	slices.Sort(s.Protocols)
}

// comment says how an entry was asked for.
func (s suggestion) comment() string {
	if s.LookedUp {
		return "only looked up, " + times(s.Times)
	}
	var list []string
	for _, p := range s.Ports {
		list = append(list, strconv.Itoa(int(p)))
	}
	word := "port "
	if len(list) > 1 {
		word = "ports "
	}
	text := times(s.Times) + ", " + word + strings.Join(list, " and ")
	if len(s.Protocols) > 0 {
		text += " (" + strings.Join(s.Protocols, ", ") + ")"
	}
	return text
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// leaveOut removes the host of a remote server's url from the suggested hosts: the url already allows it.
func (l *lesson) leaveOut(address string) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	own := func(entry string) bool { return entry == u.Hostname() || entry == net.JoinHostPort(u.Hostname(), port) }
	l.Declared, l.AllDomains = slices.DeleteFunc(l.Declared, own), slices.DeleteFunc(l.AllDomains, own)
}

// write prints the whole attribute, which HCL and TOML read alike: whoever pastes it has reviewed every line.
func (l lesson) write(w io.Writer) error {
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
		fmt.Fprintf(&b, "  %-*s  # %s\n", width+3, strconv.Quote(s.Entry)+",", escape(s.comment(), oneLine))
	}
	for _, d := range l.Refused {
		fmt.Fprintf(&b, "  # %s: %s (%s)\n", escape(cmp.Or(d.Target, "no target"), oneLine), escape(d.Reason, oneLine), times(d.Times))
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
