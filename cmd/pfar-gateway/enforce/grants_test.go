package enforce_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/units/operator"
)

// minutes is what a session reads that nobody outside may see.
const minutes = "The board met on Tuesday. The merger with Acme closes on 14 March at 41.50 a share; the plant in Linz " +
	"shuts in autumn, and 310 people have not been told. Ms Huber signs for the bank, account AT61 1904 3002 3457 3201."

// heist is a client with a grant for a search that tells everybody what it looks for, after its session has read the
// minutes.
type heist struct {
	*enforce.Point
	t   *testing.T
	who enforce.Identity

	mu    sync.Mutex
	asked int
	got   []string // arguments that went out
	bytes int64
}

// item is a tool by its owner's word.
func item(
	t testing.TB, server, name string, output gate.Label, audience gate.Confidentiality, effect gate.Effect,
) enforce.Item {
	t.Helper()
	it := tool(t, server, effect)
	declared, err := json.Marshal(gate.Declared{Server: server, Words: []gate.Word{{
		Confidentiality: output.Confidentiality, Integrity: output.Integrity, Audience: audience, Effect: effect,
		From: "owner",
	}}})
	if err != nil {
		t.Fatal(err)
	}
	it.Declared, it.Name = declared, name
	return it
}

func search(t testing.TB, server, name string) enforce.Item {
	return item(t, server, name, gate.Start, gate.Public, gate.None)
}

// reads has a session read a text of some secrecy.
func (h *heist) reads(l gate.Label, text string) {
	h.t.Helper()
	pass := enter(h.t, h.Point, h.who, item(h.t, "files", "read", l, gate.Secret, gate.None))
	result, err := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}})
	if err == nil {
		err = pass.Seen(result)
	}
	if err == nil {
		err = pass.End("ok", len(result))
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// asks sends a call, and reports whether it went out.
func (h *heist) asks(it enforce.Item, arguments []byte) bool {
	params := fmt.Appendf(nil, `{"name":%q,"arguments":%s}`, it.Name, arguments)
	r := enforce.Request{Method: "tools/call", Arguments: arguments, Params: params}
	pass, err := h.Enter(h.t.Context(), h.who, it, r)
	if err != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got, h.bytes = append(h.got, string(arguments)), h.bytes+int64(len(arguments))
	return pass.End("ok", 0) == nil
}

// granted approves the first call of a search, with a grant.
func (h *heist) granted(it enforce.Item, terms operator.GrantTerms) error {
	h.t.Helper()
	h.asked++
	first := quoted(h.asked)
	if h.asks(it, first) {
		h.t.Fatal("nobody was asked")
	}
	for _, w := range h.Approvals.List() {
		if w.State != approval.Pending || w.Server != it.Server || w.Name != it.Name {
			continue
		}
		draft, err := h.Grants.Draft(&w.Request, terms, approval.Approver{Name: "op"})
		if err != nil {
			return err
		}
		yes := approval.Answer{Approve: true, Digest: w.Digest}
		if err := h.Approvals.Answer(w.ID, yes, approval.Approver{Name: "op"}); err != nil {
			h.t.Fatal(err)
		}
		if err := h.Grants.Add(draft); err != nil {
			h.t.Fatal(err)
		}
	}
	if !h.asks(it, first) {
		h.t.Fatal("what a person approved does not run")
	}
	h.got, h.bytes = nil, 0
	return nil
}

func newHeist(t *testing.T, profile string) *heist {
	h := &heist{Point: enforcetest.Impatient(t, "laptop", "phone"), t: t, who: laptop}
	h.who.Profile = profile
	return h
}

var bounds = operator.GrantTerms{Calls: 15, Bytes: 400}

// quoted is one argument.
func quoted(v any) []byte {
	b, _ := json.Marshal(map[string]any{"q": v})
	return b
}

// pieces cuts a text.
func pieces(text string, n int) (all []string) {
	for len(text) > n {
		all, text = append(all, text[:n]), text[n:]
	}
	return append(all, text)
}

// each makes arguments of pieces of the minutes.
func each(n int, how func(piece string) any) (all [][]byte) {
	for _, p := range pieces(minutes, n) {
		if n > 20 && len(p) < n {
			continue // the last one is too short to be found
		}
		all = append(all, quoted(how(p)))
	}
	return all
}

func as[T any](f func(T) string) func(T) any { return func(v T) any { return f(v) } }

// leaks are ways to send the minutes: each a list of the arguments of calls. Of long pieces nothing may go out.
var leaks = map[string]struct {
	calls [][]byte
	found bool // nothing of it goes out
}{
	"all at once":       {[][]byte{quoted(minutes)}, true},
	"sentences":         {each(60, func(p string) any { return p }), true},
	"byte by byte":      {each(1, func(p string) any { return p }), false},
	"pieces of 19":      {each(19, func(p string) any { return p }), false},
	"upper case":        {each(40, as(strings.ToUpper)), true},
	"two arguments":     {each(36, func(p string) any { return []string{p[:len(p)/2], p[len(p)/2:]} }), true},
	"a list of letters": {each(40, func(p string) any { return strings.Split(p, "") }), true},
	"names":             {each(40, func(p string) any { return map[string]int{p: 1} }), true},
	"base64":            {each(40, func(p string) any { return base64.StdEncoding.EncodeToString([]byte(p)) }), true},
	"hex":               {each(40, func(p string) any { return hex.EncodeToString([]byte(p)) }), true},
	"percent":           {each(40, as(url.QueryEscape)), true},
	"backwards":         {each(40, as(turned)), true},
	"rot13":             {each(40, as(rotated)), true},
	"no width":          {each(40, func(p string) any { return strings.Join(strings.Split(p, ""), "\u200b") }), true},
	"dashes":            {each(60, func(p string) any { return strings.Join(strings.Fields(p), " -- ") }), true},
	"numbers":           {each(40, func(p string) any { return strings.Trim(fmt.Sprint([]byte(p)), "[]") }), true},
	"sums":              {each(8, func(p string) any { return fmt.Sprintf("%x", shifted(p)) }), false}, // nobody can know
}

func turned(s string) string {
	b := []byte(s)
	for i, k := 0, len(b)-1; i < k; i, k = i+1, k-1 {
		b[i], b[k] = b[k], b[i]
	}
	return string(b)
}

func rotated(s string) string {
	return strings.Map(func(r rune) rune {
		if lower := r | 0x20; 'a' <= lower && lower <= 'z' {
			return (lower-'a'+13)%26 + 'a'
		}
		return r
	}, s)
}

func shifted(s string) []byte {
	b := []byte(s)
	for i := range b {
		b[i] += byte(7 + i)
	}
	return b
}

// asking are calls that each profile asks about once the session has read private data. everyday asks about no search:
// there only a change of something can be granted.
var asking = []struct {
	profile string
	effect  gate.Effect
}{
	{"strict", gate.None}, {"balanced", gate.None}, {"strict", gate.Irreversible}, {"everyday", gate.Reversible},
}

// private is what a session is that has read the minutes and no stranger's text.
var private = gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean}

// TestGrantedReads: after the session has read private data, whatever it tries through a grant, no more calls and bytes
// go out than were granted, nothing that is found, and nothing at all through another tool, client or session.
func TestGrantedReads(t *testing.T) {
	for _, c := range asking {
		profile := fmt.Sprintf("%s, effect %v", c.profile, c.effect)
		search := func(t testing.TB, server, name string) enforce.Item {
			return item(t, server, name, gate.Start, gate.Public, c.effect)
		}
		for name, leak := range leaks {
			h := newHeist(t, c.profile)
			h.reads(private, minutes)
			it := search(t, "web", "search")
			if err := h.granted(it, bounds); err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for range 3 { // each time at once
				for _, call := range leak.calls {
					all.Go(func() { h.asks(it, call) })
				}
			}
			all.Wait()
			for _, other := range []enforce.Item{search(t, "web", "find"), search(t, "net", "search")} {
				if h.asks(other, quoted("other")) {
					t.Errorf("%s, %s: another tool is covered", profile, name)
				}
			}
			if len(h.got) > bounds.Calls || h.bytes > bounds.Bytes {
				t.Errorf("%s, %s: %d calls with %d bytes went out", profile, name, len(h.got), h.bytes)
			}
			if leak.found && len(h.got) > 0 {
				t.Errorf("%s, %s: %q went out", profile, name, h.got)
			}
			if !leak.found && len(h.got) == 0 {
				t.Errorf("%s, %s: nothing went out, so nothing is tested", profile, name)
			}
			for _, got := range h.got {
				for i := range len(minutes) - 20 {
					if strings.Contains(got, minutes[i:i+20]) {
						t.Errorf("%s, %s: %q went out", profile, name, got)
					}
				}
			}
		}
	}
}

// TestEverydaySearches: everyday asks about no search until strangers' text comes in, whatever grant was given before.
// From then on none passes. Nor does a grant of another tool cover any.
func TestEverydaySearches(t *testing.T) {
	for name, leak := range leaks {
		h := newHeist(t, "everyday")
		h.reads(private, minutes)
		it := search(t, "web", "search")
		for _, call := range leak.calls {
			if !h.asks(it, call) {
				t.Fatalf("%s: a search waits: %s", name, call)
			}
		}
		if err := h.granted(item(t, "web", "post", gate.Start, gate.Public, gate.Reversible), bounds); err != nil {
			t.Fatal(err)
		}
		taint(t, h.Point, h.who, raw)
		for _, call := range leak.calls[:min(2, len(leak.calls))] { // each waits for an answer that does not come
			for _, tool := range []string{"search", "post"} {
				if h.asks(item(t, "web", tool, gate.Start, gate.Public, gate.None), call) {
					t.Fatalf("%s: after strangers' text %s goes out by %s", name, call, tool)
				}
			}
		}
	}
}

// TestGrantedTogether: who has grants for several tools, in several sessions, sends no more than all of them say
// together, and by each no more than that one says.
func TestGrantedTogether(t *testing.T) {
	for _, c := range asking {
		first := newHeist(t, c.profile)
		all := []*heist{first}
		for range 2 {
			other := &heist{Point: first.Point, t: t, who: first.who}
			other.who.Handle = label.Handle()
			if err := first.Sessions.New("laptop", other.who.Handle); err != nil {
				t.Fatal(err)
			}
			all = append(all, other)
		}
		tools := []string{"search", "find", "look"}
		post := func(tool string) enforce.Item { return item(t, "web", tool, gate.Start, gate.Public, c.effect) }
		for _, h := range all {
			h.reads(private, minutes)
			for _, tool := range tools {
				if err := h.granted(post(tool), bounds); err != nil {
					t.Fatal(err)
				}
			}
		}
		by := map[string]*heist{} // what goes out, by session and tool
		var sent sync.WaitGroup
		for n, h := range all {
			for _, tool := range tools {
				it, one := post(tool), &heist{Point: h.Point, t: t, who: h.who}
				by[fmt.Sprint(n, tool)] = one
				for _, name := range []string{"byte by byte", "pieces of 19", "sums"} {
					for _, call := range leaks[name].calls {
						sent.Go(func() { one.asks(it, call) })
					}
				}
			}
		}
		sent.Wait()
		for of, h := range by {
			if len(h.got) == 0 || len(h.got) > bounds.Calls || h.bytes > bounds.Bytes {
				t.Errorf("%s, effect %v, %s: %d calls, %d bytes went out", c.profile, c.effect, of, len(h.got), h.bytes)
			}
		}
		for _, g := range first.Grants.List() {
			if g.Calls < 0 || g.Bytes < 0 || g.Used > bounds.Calls || g.UsedBytes > bounds.Bytes {
				t.Errorf("%s, effect %v: %+v", c.profile, c.effect, g)
			}
		}
	}
}

// TestGrantedElsewhere: another session or client of the same tool has no part in a grant, and many sessions have no
// more than their own.
func TestGrantedElsewhere(t *testing.T) {
	h := newHeist(t, "strict")
	it := search(t, "web", "search")
	h.reads(private, minutes)
	if err := h.granted(it, bounds); err != nil {
		t.Fatal(err)
	}
	for _, who := range []enforce.Identity{
		{Client: "laptop", Handle: label.Handle()}, {Client: "phone", Handle: label.Default},
	} {
		other := &heist{Point: h.Point, t: t, who: who}
		other.who.Profile = "strict"
		if who.Client == "laptop" {
			if err := h.Sessions.New("laptop", who.Handle); err != nil {
				t.Fatal(err)
			}
		}
		other.reads(private, minutes)
		if other.asks(it, quoted("x")) {
			t.Errorf("%+v is covered", who)
		}
	}
	if !h.asks(it, quoted("x")) {
		t.Error("the session itself is not covered any more")
	}
}

// TestGrantedTrifecta: a grant is neither given nor used where private data and strangers' text have met, for the tool
// or for reads of public sources.
func TestGrantedTrifecta(t *testing.T) {
	for _, c := range asking {
		for _, public := range []bool{false, true} {
			if public && c.effect != gate.None {
				continue
			}
			profile := fmt.Sprintf("%s, effect %v", c.profile, c.effect)
			h := newHeist(t, c.profile)
			search := func(t testing.TB, server, name string) enforce.Item {
				return item(t, server, name, gate.Start, gate.Public, c.effect)
			}
			it := search(t, "web", "search")
			h.reads(private, minutes)
			terms := operator.GrantTerms{Public: public}
			if err := h.granted(it, terms); err != nil {
				t.Fatal(err)
			}
			if !h.asks(it, quoted("weather")) || public != h.asks(search(t, "docs", "find"), quoted("weather")) {
				t.Errorf("%s, public %v: another part is covered than was granted", profile, public)
			}
			h.got = nil
			taint(t, h.Point, h.who, raw)
			mail := item(t, "mail", "send", gate.Start, gate.Public, gate.Irreversible)
			for _, to := range []enforce.Item{it, search(t, "docs", "find"), mail} {
				if h.asks(to, quoted("weather")) {
					t.Errorf("%s: a grant lets %s.%s out after strangers' text", profile, to.Server, to.Name)
				}
			}
			for _, w := range h.Approvals.List() {
				if _, err := h.Grants.Draft(&w.Request, terms, approval.Approver{}); w.Decision.Data == raw && err == nil {
					t.Errorf("%s: %s.%s can be granted", profile, w.Server, w.Name)
				}
			}
		}
	}
}

// TestGrantedUnknown: what the session read before this gateway was started is not known, so a grant covers only what
// the audience may see.
func TestGrantedUnknown(t *testing.T) {
	h := newHeist(t, "strict")
	taint(t, h.Point, h.who, gate.Label{Confidentiality: gate.Sensitive, Integrity: gate.Clean})
	err := h.granted(search(t, "web", "search"), bounds)
	if err == nil || !strings.Contains(err.Error(), "not all that the session has read is known") {
		t.Errorf("a search that tells everybody: %v", err)
	}
	mine := item(t, "calendar", "create", gate.Start, gate.Sensitive, gate.Irreversible)
	if err := h.granted(mine, bounds); err != nil || !h.asks(mine, quoted(minutes[:40])) {
		t.Errorf("what its audience may see: %v", err)
	}
}

// TestGrantRevoked: a call that was let through by a grant that is revoked before it goes out does not go out.
func TestGrantRevoked(t *testing.T) {
	h := newHeist(t, "strict")
	it := item(t, "calendar", "create", gate.Start, gate.Sensitive, gate.Irreversible)
	if err := h.granted(it, bounds); err != nil {
		t.Fatal(err)
	}
	r := enforce.Request{Method: "tools/call", Arguments: quoted("x"), Params: quoted("x")}
	pass, err := h.Enter(t.Context(), h.who, it, r)
	if err != nil || pass.Stands() != nil || !pass.Approved() {
		t.Fatal(err)
	}
	h.Grants.RevokeAll()
	if pass.Stands() == nil || h.asks(it, quoted("x")) {
		t.Error("it goes out")
	}
	var never *enforce.Passage
	if never.Stands() != nil {
		t.Error("what no grant is about does not go out")
	}
	answer := enforce.Request{Method: "tools/call", Arguments: quoted("y"), Params: quoted("y"), Answer: true, Stays: true}
	if err := h.granted(it, bounds); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Enter(t.Context(), h.who, it, answer); err == nil {
		t.Error("a grant covers the answer to a server's question")
	}
}

// TestGrantedInspected: a grant answers for the person, and for no inspector of the owner's: those look at each call
// that it covers, also in a session that has read nothing of strangers, and what they flag or do not answer a person
// decides.
func TestGrantedInspected(t *testing.T) {
	for _, profile := range []string{"strict", "balanced"} {
		for name, c := range map[string]struct {
			says inspect.Report
			runs bool
		}{
			"clean":   {inspect.Report{Outcome: inspect.Clean}, true},
			"flagged": {inspect.Report{Outcome: inspect.Flagged, Findings: []inspect.Finding{{Inspector: "model"}}}, false},
			"silent":  {inspect.Report{Outcome: inspect.Flagged}, false},
			"missing": {inspect.Report{Reason: "timeout"}, false},
		} {
			h := newHeist(t, profile)
			k := &looker{says: inspect.Report{Outcome: inspect.Clean}}
			h.Inspectors = k
			needs(t, h.Point, "model")
			h.reads(private, minutes)
			it := search(t, "web", "search")
			if err := h.granted(it, bounds); err != nil {
				t.Fatal(err)
			}
			k.says = c.says
			if h.asks(it, quoted("weather")) != c.runs {
				t.Errorf("%s, %s: a granted call runs: %t", profile, name, !c.runs)
			}
		}
	}
}

// TestGrantedUnkept: a grant for what can be taken back covers no call whose writes could not be kept.
func TestGrantedUnkept(t *testing.T) {
	h := newHeist(t, "strict")
	s := &shelf{}
	h.Keeper = s
	h.reads(gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}, "a stranger's text")
	it := undoable(t, gate.Reversible)
	if err := h.granted(it, bounds); err != nil {
		t.Fatal(err)
	}
	if !h.asks(it, quoted("weather")) {
		t.Fatal("what was granted does not run, so that this shows nothing")
	}
	s.err = errors.New("the shelf is full")
	if h.asks(it, quoted("weather again")) {
		t.Error("it runs, though nothing was kept")
	}
}
