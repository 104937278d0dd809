package serve

import (
	"context"
	"crypto/subtle"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/policies/access"
)

// Sessions knows the handles that the operator has minted for clients. access.DefaultSession is known without.
type Sessions interface {
	Known(client, handle string) bool
}

// Unmint ends what is open under handles that are known no more.
func (s *Server) Unmint() {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	if t := s.clients.table.Load(); t != nil {
		s.settle(t)
	}
}

// clients are those who are let in.
type clients struct {
	table atomic.Pointer[table] // nil: nobody has said yet

	mu        sync.Mutex
	declared  []access.Client
	own       *access.Digest // of the endpoint's own token
	operators []uint32
	heard     chan struct{} // closed when there is a table
	awaited   bool          // and it comes from elsewhere
	minted    Sessions      // nil: there is no handle but the default one

	requests requests
}

// table is who is let in at one moment. It does not change.
type table struct {
	members   map[string]*member // that are enabled, by name
	digests   []access.Digest
	owners    []*member // of digests
	uids      map[uint32]*member
	operators []uint32
}

// member is a client that is let in.
type member struct {
	access.Client
	rights *access.Rights
}

// binding is what a session belongs to: it is nobody's who comes with another, even of the same client (GC-54).
type binding struct {
	Client, Handle string
	Token          access.Digest // that was shown; zero: it is a peer of the Unix socket
	UID            uint32        // then
	Acting         bool          // it is an operator, who may speak in any client's name and has named this one
}

// proof is how the client has shown that it is that one: "token 1a2b3c4d" (of its digest), "uid 1000", "uid 0 for it"
// (the operator, in its name).
func (b binding) proof() string {
	switch uid := "uid " + strconv.FormatUint(uint64(b.UID), 10); {
	case b.Token != access.Digest{}:
		return "token " + b.Token.String()[:8]
	case b.Acting && b.Client != access.Operator:
		return uid + " for it"
	default:
		return uid
	}
}

// AwaitClients has requests wait until Learn says who is declared, from before the first. Without it, only the built-in
// clients are there.
func (s *Server) AwaitClients() {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	s.clients.awaited, s.clients.heard = true, make(chan struct{})
	s.clients.table.Store(nil)
}

// Learn replaces the declared clients. What is open of one that is gone ends at once, and one that may use other things
// now is told to look again.
func (s *Server) Learn(declared []access.Client) {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	s.clients.declared, s.clients.awaited = declared, false
	s.retable()
}

// let adds to who is let in without a declaration.
func (s *Server) let(own *access.Digest, operators []uint32) {
	s.clients.mu.Lock()
	defer s.clients.mu.Unlock()
	if own != nil {
		s.clients.own = own
	}
	s.clients.operators = append(s.clients.operators, operators...)
	s.retable()
}

// retable makes the table anew. s.clients.mu is held.
func (s *Server) retable() {
	c := &s.clients
	if c.awaited {
		return
	}
	old := c.table.Load()
	t := newTable(c.declared, c.own, c.operators, old)
	if s.gate != nil {
		s.gate.Sessions.Declare(slices.Collect(maps.Keys(t.members)))
	}
	c.table.Store(t)
	select {
	case <-c.heard:
	default:
		close(c.heard)
	}
	s.settle(t)
}

// newTable compiles what is declared. Rights that are as they were keep their place in memory, by which what was made
// for them is found again.
func newTable(declared []access.Client, own *access.Digest, operators []uint32, old *table) *table {
	t := &table{members: make(map[string]*member), uids: make(map[uint32]*member), operators: operators}
	shapes := make(map[string]*access.Rights)
	if old != nil {
		for _, m := range old.members {
			shapes[m.rights.Shape()] = m.rights
		}
	}
	all := slices.Clone(declared)
	for _, name := range [...]string{access.Default, access.Operator} {
		if !slices.ContainsFunc(all, func(c access.Client) bool { return c.Name == name }) {
			all = append(all, access.BuiltIn(name))
		}
	}
	for _, c := range all {
		if c.Name == access.Operator { // no token and no user is that: an operator names it
			c.Tokens, c.UIDs = nil, nil
		}
		m := &member{c, c.Rights()}
		if same := shapes[m.rights.Shape()]; same != nil {
			m.rights = same
		}
		shapes[m.rights.Shape()] = m.rights
		for _, uid := range c.UIDs {
			t.uids[uid] = nil // of a client that is disabled: nobody, and not the operator either
			if c.Enabled {
				t.uids[uid] = m
			}
		}
		if !c.Enabled {
			continue
		}
		t.members[c.Name] = m
		digests := c.Tokens
		if c.Name == access.Default && own != nil {
			digests = append(slices.Clone(digests), *own)
		}
		for _, d := range digests {
			t.digests, t.owners = append(t.digests, d), append(t.owners, m)
		}
	}
	return t
}

// bearer returns whose token it is, nil for nobody's. It takes the same time for every token, right or wrong: the
// digests make lengths equal, and all are compared.
func (t *table) bearer(digest access.Digest) *member {
	found := -1
	for i := range t.digests {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(t.digests[i][:], digest[:]), i, found)
	}
	if found < 0 {
		return nil
	}
	return t.owners[found]
}

// peer returns who a user of the Unix socket is that names nobody, nil for nobody. Any program of an operator's could
// be there, so that it is the default client, as who has the endpoint's token.
func (t *table) peer(uid uint32) *member {
	if m, declared := t.uids[uid]; declared {
		return m
	}
	if t.operates(uid) {
		return t.members[access.Default]
	}
	return nil
}

// operates reports whether a user of the Unix socket is an operator's. Who is a declared client is none.
func (t *table) operates(uid uint32) bool {
	_, declared := t.uids[uid]
	return !declared && (uid == 0 || slices.Contains(t.operators, uid))
}

// acts reports whether a user of the Unix socket may speak in any client's name.
func (t *table) acts(uid uint32) bool { return t.members[access.Operator] != nil && t.operates(uid) }

// member returns the client that is let in by this, nil for none any more.
func (t *table) member(b binding) *member {
	var shown *member
	switch {
	case b.Token != access.Digest{}:
		shown = t.bearer(b.Token)
	case !b.Acting:
		shown = t.peer(b.UID)
	case t.acts(b.UID):
		shown = t.members[b.Client]
	}
	if shown == nil || shown.Name != b.Client {
		return nil
	}
	return shown
}

// clientsWait is how long a request waits for the first word of who is declared.
const clientsWait = 10 * time.Second

// admitted returns who is let in now, nil if nobody has said in time.
func (s *Server) admitted(ctx context.Context) *table {
	if t := s.clients.table.Load(); t != nil {
		return t
	}
	wait, cancel := context.WithTimeout(ctx, clientsWait)
	defer cancel()
	select {
	case <-s.clients.heard:
	case <-wait.Done():
	}
	return s.clients.table.Load()
}

// knows reports whether there is a session of a client's of that handle.
func (s *Server) knows(client, handle string) bool {
	if handle == access.DefaultSession {
		return true
	}
	return access.ValidHandle(handle) && s.clients.minted != nil && s.clients.minted.Known(client, handle)
}

// admits returns the client that is let in by this, under a handle that it has; nil for none any more.
func (s *Server) admits(t *table, b binding) *member {
	if !s.knows(b.Client, b.Handle) {
		return nil
	}
	return t.member(b)
}

// identity is who the exchange is with, for the gate. A person is the operator, on the Unix socket and by name: neither
// a client's name nor its profile makes it that.
func (x *exchange) identity() enforce.Identity {
	id := enforce.Identity{
		Client: x.bound.Client, Handle: x.bound.Handle, Profile: x.member.Profile, Proof: x.bound.proof(), Rights: x.member.rights,
		Person: x.bound.Acting && x.bound.Client == access.Operator,
	}
	if x.session != nil && x.session.handle != "" {
		id.Handle = x.session.handle
	}
	return id
}

var errDismissed = errors.New("the client may not be here any more")

// settle ends what is open of clients that are gone, and tells those of whom something changed. s.clients.mu is held.
func (s *Server) settle(t *table) {
	for _, open := range s.sessions.all() {
		m := s.admits(t, open.bound)
		if m == nil || open.endpoint != "" && !m.rights.Server(open.endpoint) || s.unlabelled(open) {
			s.sessions.remove(open)
			continue
		}
		if s.turn(open.sub, m.rights) {
			s.release(open, m.rights)
		}
	}
	for _, sub := range s.hub.listening() {
		if m := s.admits(t, sub.bound); m == nil || sub.endpoint != "" && !m.rights.Server(sub.endpoint) {
			sub.dismiss()
		} else {
			s.turn(sub, m.rights)
		}
	}
	s.clients.requests.dismiss(func(b binding) bool { return s.admits(t, b) == nil })
	s.dismissParked(t)
	if s.gate != nil {
		s.gate.Approvals.Dismiss(s.gone(t))
	}
	s.registry.Retain(func(r *access.Rights) bool {
		for _, m := range t.members {
			if m.rights == r {
				return true
			}
		}
		return false
	})
}

// unlabelled reports whether what a connection has seen is not known any more: the operator has ended it, or the
// gateway before this one had not written it down. Its client has to connect again, for nothing is called without a
// label.
func (s *Server) unlabelled(t *session) bool {
	return t.handle != "" && (s.gate == nil || !s.gate.Sessions.Known(t.bound.Client, t.handle))
}

// turn has a subscriber see with other rights, and reports whether they are others: its client is told that all lists
// may have changed, and hears no more of resources that it may not read.
func (s *Server) turn(sub *subscriber, rights *access.Rights) bool {
	before := sub.rights.Swap(rights)
	if before == rights {
		return false
	}
	var lost map[string]string
	sub.mu.Lock()
	for uri, server := range sub.uris {
		if !rights.Server(server) {
			if lost == nil {
				lost = make(map[string]string)
			}
			lost[uri] = server
			delete(sub.uris, uri)
		}
	}
	if before != nil {
		sub.changed |= sub.kinds
		sub.poke()
	}
	sub.mu.Unlock()
	if len(lost) > 0 {
		s.unwatch(lost, sub.tag)
	}
	return true
}

// release ends a session's own processes of servers that are not its client's any more.
func (s *Server) release(open *session, rights *access.Rights) {
	for _, p := range open.processes() {
		if !rights.Server(p.up.Server().Name) {
			s.registry.End(p.own)
		}
	}
	s.noted()
}

// requests are those in flight that belong to no session (2026-07-28).
type requests struct {
	mu  sync.Mutex
	all map[*exchange]context.CancelCauseFunc
}

func (r *requests) add(x *exchange, cancel context.CancelCauseFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[*exchange]context.CancelCauseFunc)
	}
	r.all[x] = cancel
}

func (r *requests) remove(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, x)
}

func (r *requests) dismiss(gone func(binding) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for x, cancel := range r.all {
		if gone(x.bound) {
			cancel(errDismissed)
		}
	}
}

// dismissParked gives up the calls that wait for clients who may not come back, or not to those servers.
func (s *Server) dismissParked(t *table) {
	s.parking.mu.Lock()
	var states []string
	for state, p := range s.parking.byState {
		if m := s.admits(t, p.bound); m == nil || !m.rights.Server(p.conversation.target.Upstream.Server().Name) {
			states = append(states, state)
		}
	}
	s.parking.mu.Unlock()
	for _, state := range states {
		if p := s.unpark(state); p != nil {
			p.pass.Deny()
			p.conversation.cancel(errDismissed)
		}
	}
}

// gone returns what says of a call that waits for an approval that it may not be made any more: its client is not
// there, shows who it is in another way, or may not use it, or is judged by another profile.
func (s *Server) gone(t *table) func(*approval.Request) bool {
	proofs := t.proofs()
	return func(r *approval.Request) bool {
		m := t.members[r.Client]
		switch {
		case m == nil, !proofs[[2]string{r.Client, r.Proof}], !s.knows(r.Client, r.Session), m.Profile != r.Decision.Profile:
			return true
		case mcp.MCPMethod(r.Method) == mcp.MethodToolsCall:
			return !m.rights.Tool(r.Server, r.Name)
		}
		return !m.rights.Server(r.Server)
	}
}

// proofs are all pairs of a client and how it can show that it is that one.
func (t *table) proofs() map[[2]string]bool {
	all := make(map[[2]string]bool)
	add := func(b binding) { all[[2]string{b.Client, b.proof()}] = true }
	for i, d := range t.digests {
		add(binding{Client: t.owners[i].Name, Token: d})
	}
	for uid, m := range t.uids {
		if m != nil {
			add(binding{Client: m.Name, UID: uid})
		}
	}
	for _, uid := range append([]uint32{0}, t.operators...) {
		if m := t.peer(uid); m != nil {
			add(binding{Client: m.Name, UID: uid})
		}
		for name := range t.members {
			if t.acts(uid) {
				add(binding{Client: name, UID: uid, Acting: true})
			}
		}
	}
	return all
}
