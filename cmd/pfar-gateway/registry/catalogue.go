package registry

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/registry/protocol"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Catalogue is what is served at one moment. It does not change.
type Catalogue struct {
	serving  []*served // in the order of their names
	states   map[string]State
	all      *View
	replaced chan struct{} // closed when the next catalogue is there

	narrowed sync.Map // what is left of it for a client: seen, by its *access.Rights; a View without some servers, by their names
}

// served is one server that is up.
type served struct {
	name     string
	label    string  // for those who see this
	of       *served // of which this is a part; nil: it is the whole
	upstream *Upstream
	declared handover.Server // what its owner says of it
	listing  *Listing
	shown    *Listing // what of it is in lists; nil: all
	found    *Listing // and what is held back
	view     *View
	about    About
	strange  int                        // of what clients are shown, what nobody has reviewed
	waiting  int                        // definitions that the owner has not accepted
	known    [Templates]map[string]int  // places in the listing by name of tool and prompt, and by URI
	held     [Resources]map[string]bool // names that are not served because the owner has not accepted them
	short    [Resources]map[string]int  // those that the aggregate calls by a shorter name, by that
}

// View is what one endpoint shows: one server, or all.
type View struct {
	Server string // "" for all
	Lists  [Templates + 1]*List
	Agreed []Named // of each server behind it
}

// Named is what a server said in its handshake.
type Named struct {
	Server      string
	Description string // the owner's, in the declaration
	protocol.Agreement
	About
}

// Route is where a call goes.
type Route struct {
	Upstream *Upstream
	Name     string // the server's own
	Item     Item   // as it was defined; a template for a resource that is not listed
	Label    string // of what comes of it, for this client
}

// hintOf is the hint for a list of all these servers.
func hintOf(k Kind, of []*served) Hint {
	var h Hint
	for i, s := range of {
		if i == 0 {
			h = s.upstream.lists.now().Hints[k]
		} else {
			h = h.and(s.upstream.lists.now().Hints[k])
		}
	}
	h.TTL = min(h.TTL, maxListTTL) // a tool that is gone or held back must not be shown for long
	return h
}

// maxListTTL is the longest that a list may be kept, in milliseconds.
const maxListTTL = 10_000

func parts(k Kind, aggregate bool, of []*served) []part {
	var list []part
	var several map[string]int
	if aggregate && k >= Resources {
		several = claims(k, of)
	}
	for _, s := range of {
		p := part{server: s.name, label: s.label, owner: s.declared.Tools, items: s.shows()[k]}
		switch {
		case aggregate && (k == Tools || k == Prompts):
			p.aggregate = true
		case aggregate: // what could not be asked for there is not listed either
			p.items = slices.DeleteFunc(slices.Clone(s.shows()[k]), func(i Item) bool { return several[i.Name] > 1 || !i.hasScheme() })
		}
		if len(p.items) > 0 {
			list = append(list, p)
		}
	}
	return list
}

// claims counts the servers that list each URI or template.
func claims(k Kind, of []*served) map[string]int {
	n := make(map[string]int)
	for _, s := range of {
		for _, i := range s.listing[k] {
			n[i.Name]++
		}
	}
	return n
}

// notTogether says which of a server's resources and templates the aggregate does not show, a line each: it must not be
// asked for all there is, and what another server lists as well is of neither.
func (s *served) notTogether(all []*served) (why []string) {
	for k := Resources; k <= Templates; k++ {
		n := claims(k, all)
		for _, i := range s.listing[k] {
			what := strings.TrimSuffix(k.form().member, "s") + " " + protocol.Quote([]byte(i.Name))
			switch {
			case !i.hasScheme():
				why = append(why, what+" is not on /mcp, for it begins with no scheme: it is at /mcp/"+s.name)
			case n[i.Name] > 1:
				why = append(why, what+" is not on /mcp, for another server has it, too: it is at /mcp/"+s.name)
			}
		}
	}
	return why
}

// index makes a listing's names quick to find.
func (s *served) index() {
	for k := Tools; k < Templates; k++ {
		s.known[k] = make(map[string]int, len(s.listing[k]))
		for n, i := range s.listing[k] {
			s.known[k][i.served()] = n
			if served := servedName(s.name, i.served()); k < Resources && served != s.name+Separator+i.served() {
				if s.short[k] == nil {
					s.short[k] = make(map[string]int)
				}
				s.short[k][served] = n
			}
		}
	}
}

// View returns what the endpoint of a server shows, or of all for "".
func (c *Catalogue) View(server string) (*View, error) {
	if server == "" {
		return c.all, nil
	}
	s, err := c.server(server)
	if err != nil {
		return nil, err
	}
	return s.view, nil
}

// Replaced is closed when the next catalogue is there.
func (c *Catalogue) Replaced() <-chan struct{} { return c.replaced }

// Known reports whether there is or was a server of this name.
func (c *Catalogue) Known(server string) bool {
	_, ok := c.states[server]
	return ok
}

// Starting reports whether a server is on its way up.
func (c *Catalogue) Starting(server string) bool { return c.states[server].Starting }

// States returns every server that there is or was.
func (c *Catalogue) States() map[string]State { return maps.Clone(c.states) }

func (c *Catalogue) find(name string) *served {
	i, ok := slices.BinarySearchFunc(c.serving, name, func(s *served, name string) int { return strings.Compare(s.name, name) })
	if !ok {
		return nil
	}
	return c.serving[i]
}

func (c *Catalogue) server(name string) (*served, error) {
	if s := c.find(name); s != nil {
		return s, nil
	}
	state, ok := c.states[name]
	if !ok {
		return nil, missing("", "there is no server %s", protocol.Quote(name))
	}
	advice := ""
	switch {
	case state.Login:
		return nil, state.refusal
	case state.Offline:
		return nil, &Down{name, offline(name, state)}
	case state.Stopped:
		advice = "start it with: pfar start " + name
	case state.Starting:
		advice = "try again: the server is being started"
	default:
		advice = "see its log: pfar logs " + name + "; pfard starts it again by itself, unless it has crashed too often " +
			"(pfar status " + name + "); then: pfar start " + name
	}
	refusal := failure.As(failure.Died, name, jsonrpc.Errorf(protocol.CodeUnavailable,
		"server %q is not running since %s: %s",
		name, state.Since.UTC().Format(time.RFC3339), state.Reason))
	refusal.Advice = advice
	return nil, &Down{name, refusal}
}

// offline is the error of what needs a server that cannot be reached. It has the class of the last try, and says when
// pfar tries again.
func offline(name string, state State) *failure.Error {
	e := failure.As(cmp.Or(state.failed, failure.NetworkError), name, jsonrpc.Errorf(protocol.CodeUnavailable,
		"server %q is offline since %s: %s",
		name, state.Since.UTC().Format(time.RFC3339), state.Reason))
	e.After = max(1, int64(math.Ceil(time.Until(state.Next).Seconds())))
	return e
}

// missing is the error of a request for what there is not.
func missing(server, format string, args ...any) error {
	return failure.As(failure.NotFound, server, jsonrpc.Errorf(mcp.INVALID_PARAMS, format, args...))
}

// Upstreams returns the servers that are up.
func (c *Catalogue) Upstreams() []*Upstream {
	list := make([]*Upstream, len(c.serving))
	for i, s := range c.serving {
		list[i] = s.upstream
	}
	return list
}

// Named finds the tool or prompt that a client of the endpoint calls name.
func (c *Catalogue) Named(k Kind, endpoint, name string) (Route, error) {
	what := strings.TrimSuffix(k.form().member, "s")
	server, own := endpoint, name
	if endpoint == "" {
		var ok bool
		if server, own, ok = strings.Cut(name, Separator); !ok || !c.Known(server) {
			return Route{}, missing("", "unknown %s %s", what, protocol.Quote(name))
		}
	}
	s, err := c.server(server)
	if err != nil {
		return Route{}, err
	}
	n, ok := s.known[k][own]
	if !ok && endpoint == "" {
		n, ok = s.short[k][name]
	}
	if !ok {
		return Route{}, cmp.Or(s.upstream.refusal(), s.unknown(k, what, own, name))
	}
	item := s.listing[k][n]
	return Route{s.upstream, item.Name, item, s.label}, nil
}

// unknown says why a name is not served.
func (s *served) unknown(k Kind, what, own, name string) error {
	if s.waits(k, own) {
		return jsonrpc.Errorf(mcp.INVALID_PARAMS, "%s %s is held back until the owner accepts its definition: pfar pins show %s", what, protocol.Quote(name), s.name)
	}
	return missing(s.name, "unknown %s %s", what, protocol.Quote(name))
}

// waits reports whether a tool or prompt would have this name if the owner accepted its definition.
func (s *served) waits(k Kind, name string) bool {
	if k != Tools {
		return s.held[k][name]
	}
	for own := range s.held[k] {
		if cmp.Or(s.declared.Tools[own].Rename, own) == name && enabled(s.declared.Tools, own) {
			return true
		}
	}
	return false
}

// ByURI finds the server that has a resource: that lists it, or has a template that it fits. It returns false if there
// is none. On the aggregate the resource of several servers is nobody's: else who lists it too, or names it by a
// template of many addresses, would be asked for what is another's.
func (c *Catalogue) ByURI(endpoint, uri string) (Route, bool, error) {
	if endpoint != "" {
		s, err := c.server(endpoint)
		if err != nil {
			return Route{}, false, err
		}
		i, ok := s.resource(uri, false)
		return Route{s.upstream, uri, i, s.label}, ok, s.upstream.refusal()
	}
	var route Route
	var servers []string
	for _, s := range c.serving {
		if i, ok := s.resource(uri, true); ok {
			route = Route{s.upstream, uri, i, s.label}
			servers = append(servers, s.name)
		}
	}
	if len(servers) > 1 {
		return Route{}, false, jsonrpc.Errorf(mcp.INVALID_PARAMS, "%s is ambiguous, for the servers %s have it: ask one of them, at /mcp/SERVER",
			protocol.Quote([]byte(uri)), strings.Join(servers, ", "))
	}
	return route, len(servers) == 1, nil
}

// resource finds a resource of the server, or the template that it fits.
func (s *served) resource(uri string, aggregate bool) (Item, bool) {
	if n, ok := s.known[Resources][uri]; ok {
		return s.listing[Resources][n], true
	}
	if len(uri) > maxURI || checkURI(uri) != nil {
		return Item{}, false
	}
	for _, i := range s.listing[Templates] {
		if (!aggregate || i.hasScheme()) && (i.Name == uri || i.template.Match(uri) != nil) {
			return i, true
		}
	}
	return Item{}, false
}

// Offering returns the servers behind an endpoint that run and have a capability.
func (c *Catalogue) Offering(endpoint, capability string) []*Upstream {
	var list []*Upstream
	for _, s := range c.serving {
		if (endpoint == "" || s.name == endpoint) && s.upstream.Alive() && s.upstream.Agreed().Has(capability) {
			list = append(list, s.upstream)
		}
	}
	return list
}

// Tools are those of every server that is up, as calls of them would go.
func (c *Catalogue) Tools() iter.Seq[Route] {
	return func(yield func(Route) bool) {
		for _, s := range c.serving {
			for _, item := range s.listing[Tools] {
				if !yield(Route{Upstream: s.upstream, Name: item.Name, Item: item, Label: s.label}) {
					return
				}
			}
		}
	}
}

// HeldTools are the tools of every server that is up which wait for the owner to accept their definitions: server and
// name.
func (c *Catalogue) HeldTools() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, s := range c.serving {
			for _, name := range slices.Sorted(maps.Keys(s.held[Tools])) {
				if enabled(s.declared.Tools, name) && !yield(s.name, name) {
					return
				}
			}
		}
	}
}

// About is what a server says of itself and may be passed on.
type About struct {
	Instructions         string
	InstructionsReviewed bool // a person, or what pfar ships, has accepted them
	InfoReviewed         bool // likewise its name and version
}

// Down is the error of what needs a server that is not up.
type Down struct {
	Server  string
	refusal *failure.Error
}

func (d *Down) Error() string { return d.refusal.Error() }

// Unwrap returns what to tell the client.
func (d *Down) Unwrap() error { return d.refusal }

// shows are the lists as a client sees them.
func (s *served) shows() *Listing {
	if s.shown != nil {
		return s.shown
	}
	return s.listing
}

// State is where a server is, for those who ask for one that is not up.
type State struct {
	Up     bool
	Since  time.Time
	Reason failure.Fact // that it is not up

	Starting bool // it is about to come up
	Stopped  bool // it was told to end

	Offline bool          // pfar tries again and again to reach it
	Next    time.Time     // when it does, with Offline
	failed  failure.Class // of the last try, with Offline, or of the conversation that has ended; "": not known
	Login   bool          // it does not try before a person has signed in
	refusal error         // of a call, with Login
}
