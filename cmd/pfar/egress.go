package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/monitor"
)

const egressHelp = `Show the connections of a server, or of all servers: open ones, the last closed ones, and refused ones
with the reason.

With -f, print a line when a connection opens, closes or is refused. A connection that is refused
repeatedly appears at its first, second, fourth and eighth refusal, and so on. With --json, each connection is
an object on its own line; with -f, pfar prints the object again at each change.`

const (
	egressTimeout  = 5 * time.Second // for a bridge to start and answer
	reconnectPause = time.Second     // between two connections to a bridge that closes them
	maxConnections = 10000           // that a bridge may show before it says that these are all
	maxShown       = 2000            // connections that are remembered as shown
)

// egressVerb shows the connections of servers.
type egressVerb struct{ *pfar }

func (c egressVerb) egressCommand() *cobra.Command {
	var follow bool
	cmd := c.outputFlag(&cobra.Command{
		Use:   "egress [NAME]",
		Short: "Show the open and refused connections of servers",
		Long:  egressHelp,
		Example: example("pfar egress notion", "pfar egress -f", "pfar egress notion --json | jq -r "+
			"'select(.verdict == \"deny\").host'"),
		ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := c.report(cmd.Context())
			if err != nil {
				return err
			}
			v := egressView{egressVerb: c, servers: report.Servers, shown: map[string]*shown{}}
			if len(args) == 1 {
				s, err := findServer(report, args[0])
				if err != nil {
					return err
				}
				v.only, v.servers = s.Name, []control.Server{s}
			}
			v.servers = withSessions(v.servers)
			if follow {
				return v.follow(cmd.Context())
			}
			return v.print(cmd.Context())
		},
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	return cmd
}

// egressView is what pfar egress shows.
type egressView struct {
	egressVerb
	only    string // the one server; "" for all
	servers []control.Server
	shown   map[string]*shown // by server, of follow
}

// print shows what is there now.
func (v *egressView) print(ctx context.Context) error {
	type answer struct {
		connections []monitor.Connection
		err         error
	}
	answers := make([]answer, len(v.servers))
	var asking sync.WaitGroup
	for i, s := range v.servers {
		if up(s.State) {
			asking.Go(func() { answers[i].connections, answers[i].err = v.connections(ctx, s.Name) })
		}
	}
	asking.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var rows [][]cell
	var notes []string
	var failed error
	for i, s := range v.servers {
		a := answers[i]
		switch {
		case !up(s.State):
			notes = append(notes, fmt.Sprintf("%s: %s; %s", s.Name, s.State, remedy(s)))
		case a.err != nil && !s.State.Up(), errors.Is(a.err, control.ErrNotRunning), errors.Is(a.err, io.EOF):
			notes = append(notes, fmt.Sprintf("%s: %s; its egress bridge does not answer yet", s.Name, s.State))
		case a.err != nil:
			failed = errors.Join(failed, fmt.Errorf("asking the egress bridge of %q: %w", s.Name, a.err))
		case len(a.connections) == 0:
			notes = append(notes, s.Name+": no connections yet")
		}
		for _, m := range a.connections {
			if v.json() {
				v.printLine(s.Name, m)
			}
			rows = append(rows, v.row(s.Name, m))
		}
	}
	if len(rows) > 0 && !v.json() {
		v.table(v.stdout, append([][]cell{v.columns()}, rows...))
	}
	v.note(notes...)
	return failed
}

// withSessions are servers, each followed by the processes of its sessions, which have bridges of their own.
func withSessions(servers []control.Server) (all []control.Server) {
	for _, s := range servers {
		all = append(all, s)
		for _, e := range s.Sessions {
			all = append(all, control.Server{Name: units.Instance(s.Name, e.Handle), State: e.State})
		}
	}
	return all
}

// names reports whether each line says which process it is about.
func (v *egressView) names() bool { return v.only == "" || len(v.servers) > 1 }

// note prints what is no connection; a program that reads JSON finds it on standard error.
func (v *egressView) note(notes ...string) {
	w := v.stdout
	if v.json() {
		w = v.stderr
	}
	for _, n := range notes {
		fmt.Fprintln(w, escape(n, oneLine))
	}
}

// up reports whether a server has a bridge that can be watched, or is about to.
func up(s control.State) bool {
	return s.Up() || s == control.Starting || s.TriedAgain()
}

// connections asks a bridge for all that it holds.
func (c egressVerb) connections(ctx context.Context, name string) ([]monitor.Connection, error) {
	late := fmt.Errorf("the bridge did not answer within %s", egressTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, egressTimeout, late)
	defer cancel()
	var list []monitor.Connection
	synced := errors.New("synced")
	each := func(m monitor.Message) error {
		switch {
		case m.Synced:
			return synced
		case len(list) == maxConnections:
			return fmt.Errorf("the bridge shows more than %d connections", maxConnections)
		case m.Connection != nil:
			list = append(list, *m.Connection)
		}
		return nil
	}
	err := monitor.Follow(ctx, c.dirs.Egress(name), each)
	if errors.Is(err, io.EOF) { // a bridge that is idle ends, and this one did so in this moment
		list = nil
		err = monitor.Follow(ctx, c.dirs.Egress(name), each)
	}
	if errors.Is(err, synced) {
		return list, nil
	}
	return nil, err
}

func (v *egressView) columns() []cell {
	row := heading("TIME", "VIA", "HOST", "ADDRESS", "SENT", "RECEIVED", "STATE", "REASON")
	if v.names() {
		row = append(heading("NAME"), row...)
	}
	return row
}

func (v *egressView) row(server string, m monitor.Connection) []cell {
	state, colour := stateOf(m)
	row := []cell{
		{age(v.now().Sub(lastOf(m))), ""}, {m.Via(), ""}, {m.Host, ""}, {m.Address, ""}, {traffic(m, m.Sent), ""}, {traffic(m, m.Received), ""},
		{state, colour}, {reasonOf(m), ""},
	}
	if v.names() {
		row = append([]cell{{server, ""}}, row...)
	}
	return row
}

// printLine prints the machine form.
func (v *egressView) printLine(server string, m monitor.Connection) {
	b, err := json.Marshal(struct {
		Server string `json:"server"`
		monitor.Connection
	}{server, m})
	if err == nil { // a bridge's times are checked when they are read
		fmt.Fprintf(v.stdout, "%s\n", escapeJSON(b))
	}
}

// lastOf is when a connection began, or the last of several.
func lastOf(m monitor.Connection) time.Time {
	if m.Last.After(m.Time) {
		return m.Last
	}
	return m.Time
}

// traffic is a number of bytes, of what could have had any.
func traffic(m monitor.Connection, n int64) string {
	if !m.Open && m.Address == "" {
		return ""
	}
	return visible.Size(n)
}

// eventOf is what has become of a connection, in a word.
func eventOf(m monitor.Connection) (word, colour string) {
	switch {
	case m.Open:
		return "open", green
	case m.Verdict != "allow":
		return "refused", red
	case m.Address == "":
		return "failed", yellow
	}
	return "closed", ""
}

func stateOf(m monitor.Connection) (state, colour string) {
	state, colour = eventOf(m)
	switch {
	case m.Open:
		state += " " + duration(m.Seconds)
	case m.Count > 1:
		state += fmt.Sprintf(" %d times", m.Count)
	}
	return state, colour
}

// duration of a connection, which a bridge may say as it likes.
func duration(seconds float64) string {
	const most = 100 * 365 * 24 * 3600
	d := time.Duration(min(max(seconds, 0), most) * float64(time.Second))
	if d < time.Second {
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return age(d)
}

// reasonOf is the rule that allows, or else why not.
func reasonOf(m monitor.Connection) string {
	switch {
	case m.Detail != "":
		return m.Reason + ": " + m.Detail
	case m.Verdict == "allow" && m.Rule != "" && m.Reason == egress.Declared:
		return m.Rule
	case m.Rule != "":
		return m.Reason + " (" + m.Rule + ")"
	}
	return m.Reason
}

// follow shows what there is and what comes, until Ctrl-C.
func (v *egressView) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	b := newBridges(ctx, v.dirs)
	defer b.wait()
	defer cancel()
	reports, ended := make(chan control.Report), make(chan error, 1)
	go func() { ended <- v.control().Watch(ctx, deliver(ctx, reports)) }()
	for {
		select {
		case r := <-reports:
			if err := v.changed(b, r); err != nil {
				return err
			}
		case e := <-b.events:
			if err := b.take(e); err != nil {
				v.complain(fmt.Errorf("watching the egress bridge of %q: %w", e.server, err))
			}
			v.see(e)
		case err := <-ended:
			if ctx.Err() != nil {
				return nil // Ctrl-C is how it ends
			}
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w any more", control.ErrNotRunning)
			}
			return err
		}
	}
}

// deliver passes messages of pfard on until the context ends.
func deliver[T any](ctx context.Context, to chan<- T) func(T) error {
	return func(r T) error {
		select {
		case to <- r:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changed watches the bridges of the servers that are up, and says which are not.
func (v *egressView) changed(b *bridges, r control.Report) error {
	servers := r.Servers
	if v.only != "" {
		s, err := findServer(r, v.only)
		if err != nil {
			return err
		}
		servers = []control.Server{s}
	}
	servers = withSessions(servers)
	b.watch(servers)
	present := map[string]bool{}
	for _, s := range servers {
		present[s.Name] = true
		before := v.shown[s.Name]
		if before == nil {
			before = &shown{up: true, seen: map[connectionKey]*sight{}}
			v.shown[s.Name] = before
		}
		now := up(s.State) || s.State == control.Stopping // what comes of that is told then
		if before.up && !now {
			fmt.Fprintln(v.stderr, escape(fmt.Sprintf("%s: %s; %s", s.Name, s.State, remedy(s)), oneLine))
		}
		before.up = now
	}
	for name := range v.shown {
		if !present[name] {
			delete(v.shown, name)
		}
	}
	v.servers = servers
	return nil
}

// see prints what is new in a message.
func (v *egressView) see(e bridgeEvent) {
	s := v.shown[e.server]
	if s == nil {
		return
	}
	if e.message.Lost > 0 {
		fmt.Fprintf(v.stderr, "%s: %d connections passed too fast to be shown\n", e.server, e.message.Lost)
	}
	m := e.message.Connection
	if m == nil {
		return
	}
	news, changed := s.see(*m)
	switch {
	case v.json() && changed:
		v.printLine(e.server, *m)
	case !v.json() && news:
		fmt.Fprintln(v.stdout, v.line(e.server, *m))
	}
}

// line is one event. Its beginning is in columns, which no later line can move.
func (v *egressView) line(server string, m monitor.Connection) string {
	word, colour := eventOf(m)
	at := lastOf(m)
	var more []string
	add := func(format string, args ...any) { more = append(more, escape(fmt.Sprintf(format, args...), oneLine)) }
	switch word {
	case "open":
		add("to %s by %s", m.Address, m.Via())
		add("rule %s", reasonOf(m))
	case "closed":
		at = at.Add(time.Duration(min(max(m.Seconds, 0), 1e9) * float64(time.Second)))
		add("to %s after %s", m.Address, duration(m.Seconds))
		add("sent %s", visible.Size(m.Sent))
		add("received %s", visible.Size(m.Received))
		if m.Reason != egress.Declared {
			add("%s", m.Reason)
		}
	default:
		add("by %s", m.Via())
		add("%s", reasonOf(m))
		if m.Count > 1 {
			add("%d times", m.Count)
		}
	}
	name := ""
	if v.names() {
		width := 0
		for _, s := range v.servers {
			width = max(width, len(s.Name))
		}
		name = fmt.Sprintf("%-*s  ", width, server)
	}
	event := v.paint(v.stdout, colour, word) + strings.Repeat(" ", len("refused")-len(word))
	return fmt.Sprintf("%s  %s%s  %-28s  %s", clock(at), name, event, escape(m.Host, oneLine), strings.Join(more, ", "))
}

// connectionKey tells connections apart, also those of two processes of one bridge.
type connectionKey struct {
	id   uint64
	time int64
}

func keyOf(m monitor.Connection) connectionKey { return connectionKey{m.ID, m.Time.UnixNano()} }

// shown is what follow has shown of one server. A bridge that was started again tells of its past once more.
type shown struct {
	up    bool
	seen  map[connectionKey]*sight
	order []connectionKey // of seen, oldest first
}

// sight is a connection as it was last seen.
type sight struct {
	last  monitor.Connection
	lines int // Count when it was last a line
}

// see reports whether a connection has something new for a person, and whether it has for a program.
func (s *shown) see(m monitor.Connection) (news, changed bool) {
	k := keyOf(m)
	old := s.seen[k]
	if old == nil {
		s.seen[k] = &sight{m, m.Count}
		if s.order = append(s.order, k); len(s.order) > maxShown {
			delete(s.seen, s.order[0])
			s.order = s.order[1:]
		}
		return true, true
	}
	before := old.last
	old.last = m
	news = before.Open != m.Open || bits.Len(uint(max(m.Count, 0))) > bits.Len(uint(max(old.lines, 1)))
	if news {
		old.lines = m.Count
	}
	before.Seconds, before.Time, before.Last = m.Seconds, m.Time, m.Last // grow by themselves
	return news, before != m
}
