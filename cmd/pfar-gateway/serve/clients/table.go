package clients

import (
	"crypto/subtle"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/policies/access"
)

// Table says which clients are let in at one moment. It does not change.
type Table struct {
	members   map[string]*Member // that are enabled, by name
	digests   []access.Digest
	owners    []*Member // of digests
	uids      map[uint32]*Member
	operators []uint32
	proved    map[[2]string]bool // pairs of a client and how it can show that it is that one
}

// Member is a client that is let in.
type Member struct {
	access.Client
	Rights *access.Rights
}

// Binding is what a session belongs to: it opens to nobody who comes with another, even of the same client.
type Binding struct {
	Client, Handle string
	Token          access.Digest // that was shown; zero: it is a peer of the Unix socket
	UID            uint32        // then
	Acting         bool          // it is an operator, who may speak in any client's name and has named this one
	Flow           bool          `json:"-"` // it is a run of a flow of the client's, which shows nothing
	Begun          string        `json:"-"` // Proof of whoever began the run
}

// FlowProof is how runs of flows are a client: its declaration lets them be, as long as it is there, and lets in
// whoever began them.
const FlowProof = "flow"

// Proof is how the client has shown that it is that one: "token 1a2b3c4d" (of its digest), "uid 1000", "uid 0 for it"
// (the operator, in its name).
func (b Binding) Proof() string {
	switch uid := "uid " + strconv.FormatUint(uint64(b.UID), 10); {
	case b.Flow:
		return FlowProof
	case b.Token != access.Digest{}:
		return "token " + hex.EncodeToString(b.Token[:4])
	case b.Acting && b.Client != access.Operator:
		return uid + " for it"
	default:
		return uid
	}
}

// Share is how many of limit places one client may take: an eighth is for others.
func Share(limit int) int { return limit - limit/8 }

// newTable compiles what is declared. Rights that are as they were keep their place in memory, by which what was made
// for them is found again.
func newTable(declared []access.Client, own *access.Digest, operators []uint32, old *Table) *Table {
	t := &Table{members: make(map[string]*Member), uids: make(map[uint32]*Member), operators: operators}
	shapes := make(map[string]*access.Rights)
	if old != nil {
		for _, m := range old.members {
			shapes[m.Rights.Shape()] = m.Rights
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
		m := &Member{c, c.Rights()}
		if same := shapes[m.Rights.Shape()]; same != nil {
			m.Rights = same
		}
		shapes[m.Rights.Shape()] = m.Rights
		for _, uid := range c.UIDs {
			t.uids[uid] = nil // a disabled client's user is not let in, and does not become the operator either
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
	t.proved = t.proofs()
	return t
}

// Proves reports whether a client is let in by a proof (Binding.Proof).
func (t *Table) Proves(client, proof string) bool { return t.proved[[2]string{client, proof}] }

// Uses reports whether some client has these rights.
func (t *Table) Uses(rights *access.Rights) bool {
	for _, m := range t.members {
		if m.Rights == rights {
			return true
		}
	}
	return false
}

// bearer returns the client that a token belongs to, nil for none. It takes the same time for every token, right or
// wrong: the digests make lengths equal, and all are compared.
func (t *Table) bearer(digest access.Digest) *Member {
	found := -1
	for i := range t.digests {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(t.digests[i][:], digest[:]), i, found)
	}
	if found < 0 {
		return nil
	}
	return t.owners[found]
}

// peer returns the client that a user of the Unix socket is who names none, nil for none. Any program of an operator's
// could be there, so it is the default client, like the owner of the endpoint's token.
func (t *Table) peer(uid uint32) *Member {
	if m, declared := t.uids[uid]; declared {
		return m
	}
	if t.operates(uid) {
		return t.members[access.Default]
	}
	return nil
}

// operates reports whether a user of the Unix socket is an operator. A declared client is not.
func (t *Table) operates(uid uint32) bool {
	_, declared := t.uids[uid]
	return !declared && (uid == 0 || slices.Contains(t.operators, uid))
}

// acts reports whether a user of the Unix socket may speak in any client's name.
func (t *Table) acts(uid uint32) bool { return t.members[access.Operator] != nil && t.operates(uid) }

// member returns the client that is let in by a binding, nil for none any more.
func (t *Table) member(b Binding) *Member {
	var shown *Member
	switch {
	case b.Flow:
		if b.Begun != FlowProof && t.Proves(b.Client, b.Begun) {
			shown = t.members[b.Client]
		}
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

// allows reports whether a call that waits for an approval may still be made: its client is there, shows who it is in
// the same way, may use it, and is judged by the same profile.
func (t *Table) allows(r *approval.Request) bool {
	m := t.members[r.Client]
	switch {
	case m == nil, !t.Proves(r.Client, r.Proof), m.Profile != r.Decision.Profile:
		return false
	case r.Server == "": // a grant for tools of any
		return true
	case r.Proof == FlowProof && r.Server == access.Own: // a whole plan: each of its calls is judged for itself
		return true
	case mcp.MCPMethod(r.Method) == mcp.MethodToolsCall:
		return m.Rights.Tool(r.Server, r.Name)
	}
	return m.Rights.Server(r.Server)
}

// proofs are all pairs of a client and how it can show that it is that one.
func (t *Table) proofs() map[[2]string]bool {
	all := make(map[[2]string]bool)
	add := func(b Binding) { all[[2]string{b.Client, b.Proof()}] = true }
	for i, d := range t.digests {
		add(Binding{Client: t.owners[i].Name, Token: d})
	}
	for name := range t.members {
		if name != access.Operator {
			add(Binding{Client: name, Flow: true})
		}
	}
	for uid, m := range t.uids {
		if m != nil {
			add(Binding{Client: m.Name, UID: uid})
		}
	}
	for _, uid := range append([]uint32{0}, t.operators...) {
		if m := t.peer(uid); m != nil {
			add(Binding{Client: m.Name, UID: uid})
		}
		for name := range t.members {
			if t.acts(uid) {
				add(Binding{Client: name, UID: uid, Acting: true})
			}
		}
	}
	return all
}
