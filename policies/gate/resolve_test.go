package gate

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
)

func pointer(b bool) *bool { return &b }

// TestPriority has every layer say something else, and takes away the one that counts.
func TestPriority(t *testing.T) {
	p := &Policy{
		Services: map[string]Service{"crm": {Words: []Word{
			{Effect: Reversible, Audience: Internal, Integrity: Raw, Confidentiality: Internal, From: "service: all"},
			{Tool: "get_*", Effect: None, From: "service: get"},
		}}},
		Words: []Word{
			{Service: "crm", Tool: "get_*", Effect: Reversible, From: "policy: get"},
			{Service: "crm", Tool: "get_x", Effect: Irreversible, From: "policy: x"},
			{Server: "sales", Audience: Public, From: "policy: sales"},
			{Server: "other", Forbidden: "no", From: "policy: other"},
		},
	}
	owner := Declared{Server: "sales", Service: "crm", Words: []Word{{Tool: "*_x", Effect: None, From: "owner: sales.hcl"}}}
	silent := Declared{Server: "sales", Service: "crm", Kept: true}
	for _, c := range []struct {
		server Declared
		kind   Kind
		name   string
		want   Effect
		from   string
	}{
		{owner, Tool, "get_x", Irreversible, "policy: x"},
		{owner, Tool, "put_x", None, "owner: sales.hcl"},
		{silent, Tool, "get_x", Irreversible, "policy: x"},
		{silent, Tool, "get_y", Reversible, "policy: get"},
		{silent, Tool, "put", Reversible, "service: all"},
		{silent, Prompt, "put", None, "protocol"},
		{owner, Resource, "get_x", None, "protocol"},
		{Declared{Server: "x"}, Tool, "get_x", None, "hint"},
	} {
		f := p.Resolve(Offer{Server: c.server, Kind: c.kind, Name: c.name, Hints: &Hints{ReadOnly: pointer(true)}})
		if f.Effect != c.want || f.From.Effect != c.from || f.Forbidden != "" {
			t.Errorf("%+v: %+v", c, f)
		}
		if c.server.Service != "" && (f.Audience != Public || f.From.Audience != "policy: sales" || f.From.Integrity != "service: all") {
			t.Errorf("%+v: %+v", c, f)
		}
	}
	if f := p.Resolve(Offer{Server: Declared{Server: "other"}, Name: "x"}); f.Forbidden != "no (policy: other)" {
		t.Errorf("%+v", f)
	}
	var none *Policy
	if f := none.Resolve(Offer{Server: owner, Name: "get_x"}); f != Worst {
		t.Errorf("without a policy: %+v", f)
	}
	for _, h := range []*Hints{
		nil, {}, {ReadOnly: pointer(false)}, {Destructive: pointer(false)}, {OpenWorld: pointer(true)},
		{ReadOnly: pointer(true), Destructive: pointer(true)},
	} {
		if f := p.Resolve(Offer{Server: Declared{Server: "x"}, Name: "x", Hints: h}); f != Worst {
			t.Errorf("hints %+v: %+v", h, f)
		}
	}
	if f := (Facts{Output: Label{Internal, Clean}}).Stained(Label{}); f.Output != (Label{Internal, Clean}) || f.From != (From{}) {
		t.Errorf("no stain: %+v", f)
	}
	f := Facts{Output: Label{Internal, Clean}}.Stained(Label{Secret, Raw})
	if f.Output != (Label{Secret, Raw}) || f.From.Integrity != "stain" || f.From.Confidentiality != "stain" {
		t.Errorf("stained: %+v", f)
	}
}

// TestFolderTightensOwner wants the folder's words without relax to hold against the owner's, and those with relax not
// to.
func TestFolderTightensOwner(t *testing.T) {
	owner := []Word{
		{Confidentiality: Public, Integrity: Clean, Audience: Sensitive, Effect: Reversible, From: "owner: web.hcl"},
		{Tool: "get_*", Semantics: Reads, From: "owner: web.hcl"},
	}
	for name, c := range map[string]struct {
		words []Word // of the folder
		tool  string
		want  Facts
	}{
		"nothing": {nil, "put", Facts{Output: Label{Public, Clean}, Audience: Sensitive, Effect: Reversible}},
		"a flag": {[]Word{{Server: "web", Trust: Trust{SecretData: Yes}}}, "put",
			Facts{Output: Label{Sensitive, Clean}, Audience: Sensitive, Effect: Reversible}},
		"all of it": {[]Word{{Server: "web", Confidentiality: Secret, Integrity: Raw, Audience: Public, Effect: Irreversible}}, "put",
			Facts{Output: Label{Secret, Raw}, Audience: Public, Effect: Irreversible}},
		"laxer": {[]Word{{Server: "web", Audience: Secret, Effect: None}}, "put",
			Facts{Output: Label{Public, Clean}, Audience: Sensitive, Effect: Reversible}},
		"writes, not of a read": {[]Word{{Server: "web", Trust: Trust{DangerousWrites: Yes}}}, "get_x",
			Facts{Output: Label{Public, Clean}, Audience: Sensitive, Effect: None}},
		"writes": {[]Word{{Server: "web", Trust: Trust{DangerousWrites: Yes}}}, "put",
			Facts{Output: Label{Public, Clean}, Audience: Sensitive, Effect: Irreversible}},
		"of the service": {[]Word{{Service: "site", Integrity: Raw}}, "put",
			Facts{Output: Label{Public, Raw}, Audience: Sensitive, Effect: Reversible}},
		"relaxed": {[]Word{{Server: "web", Integrity: Raw, Relax: "why"}}, "put",
			Facts{Output: Label{Public, Clean}, Audience: Sensitive, Effect: Reversible}},
		"relaxed for a tool alone": {[]Word{
			{Server: "web", Integrity: Raw}, {Server: "web", Tool: "put", Integrity: Extracted, Relax: "why"},
		}, "put",
			Facts{Output: Label{Public, Clean}, Audience: Sensitive, Effect: Reversible}},
		"relaxed for the server": {[]Word{{Service: "site", Integrity: Raw}, {Server: "web", Integrity: Extracted, Relax: "why"}}, "put",
			Facts{Output: Label{Public, Clean}, Audience: Sensitive, Effect: Reversible}},
		"of another server": {[]Word{{Server: "other", Integrity: Raw}}, "put",
			Facts{Output: Label{Public, Clean}, Audience: Sensitive, Effect: Reversible}},
	} {
		p := &Policy{Services: map[string]Service{"site": {}}, Words: c.words}
		f := p.Resolve(Offer{Server: Declared{Server: "web", Service: "site", Words: owner}, Name: c.tool})
		f.From = From{}
		if f != c.want {
			t.Errorf("%s: %+v, want %+v", name, f, c.want)
		}
	}
}

// TestStarOutweighsServer wants tool "*" to say more than what is said of the server as a whole, as every pattern does.
func TestStarOutweighsServer(t *testing.T) {
	words := []Word{{Trust: Trust{DangerousWrites: Yes}, From: "owner"}, {Tool: "*", Semantics: Reads, From: "owner"}}
	for range 2 {
		if f := (&Policy{}).Resolve(Offer{Server: Declared{Server: "web", Words: words}, Name: "x"}); f.Effect != None {
			t.Errorf("%+v: %s", words, f.Effect)
		}
		words[0], words[1] = words[1], words[0]
	}
}

// random makes words about few tools, so that they meet. None forbids.
func random(r *rand.Rand, from string) Word {
	patterns := []Pattern{"", "*", "a*", "*a", "ab", "b*", "a", "*b*"}
	w := Word{Tool: patterns[r.IntN(len(patterns))], From: from}
	if r.IntN(2) == 0 {
		w.Confidentiality = Confidentiality(r.IntN(6))
	}
	if r.IntN(2) == 0 {
		w.Integrity = Integrity(r.IntN(4))
	}
	if r.IntN(2) == 0 {
		w.Audience = Confidentiality(r.IntN(6))
	}
	if r.IntN(2) == 0 {
		w.Effect = Effect(r.IntN(4))
	}
	if r.IntN(3) == 0 {
		w.Semantics = Semantics(r.IntN(3))
	}
	if w.Tool == "" && r.IntN(3) == 0 {
		w.Trust = Trust{Flag(r.IntN(3)), Flag(r.IntN(3)), Flag(r.IntN(3)), Flag(r.IntN(3))}
	}
	return w
}

// laxer reports whether f allows more than g.
func laxer(f, g Facts) bool {
	return !g.Output.Below(f.Output) || f.Audience > g.Audience || f.Effect < g.Effect || g.Forbidden != "" && f.Forbidden == ""
}

// TestFolderOnlyTightens: whatever the folder says without a reason, no fact is laxer than what is shipped says. And
// where Looser finds nothing, what is said with a reason is not laxer either, so that no loosening goes unrecorded.
func TestFolderOnlyTightens(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "b", "ab", "ba", "abc", "aa", "c", "cab"}
	loosened := 0
	for range 20000 {
		shipped := &Policy{Services: map[string]Service{"s": {}}}
		s := Service{}
		for range r.IntN(4) {
			s.Words = append(s.Words, random(r, "service: s"))
		}
		shipped.Services["s"] = s
		local := random(r, "policy: l")
		local.Service = "s"
		if r.IntN(2) == 0 {
			local.Service, local.Server = "", "x"
		}
		reason := local
		reason.Relax = "because"
		found := local.Looser(s.Words)
		for _, name := range names {
			for _, hints := range []*Hints{nil, {ReadOnly: pointer(true)}} {
				o := Offer{Server: Declared{Server: "x", Service: "s"}, Name: name, Hints: hints}
				was := shipped.Resolve(o)
				now := (&Policy{Services: shipped.Services, Words: []Word{local}}).Resolve(o)
				relaxed := (&Policy{Services: shipped.Services, Words: []Word{reason}}).Resolve(o)
				said := saidBy(s.Words, name)
				if said && laxer(now, was) && !unsaid(was, now) {
					t.Fatalf("%s: %+v made %+v of %+v, over %+v", name, local, now, was, s.Words)
				}
				if laxer(relaxed, was) && !unsaid(was, relaxed) {
					if loosened++; len(found) == 0 {
						t.Fatalf("%s: unseen, %+v made %+v of %+v, over %+v", name, reason, relaxed, was, s.Words)
					}
				}
			}
		}
	}
	if loosened < 1000 {
		t.Errorf("only %d loosenings", loosened)
	}
}

// TestServiceHoldsForServer: what the folder says of one server takes nothing back of what it says of the service, but
// with a reason.
func TestServiceHoldsForServer(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	loosened := 0
	for range 20000 {
		services := map[string]Service{"s": {Words: []Word{random(r, "service: s")}}}
		ofService, ofServer := random(r, "policy: s"), random(r, "policy: x")
		ofService.Service, ofServer.Server = "s", "x"
		reason := ofServer
		reason.Relax = "because"
		for _, name := range []string{"a", "ab", "ba", "c"} {
			o := Offer{Server: Declared{Server: "x", Service: "s"}, Name: name}
			was := (&Policy{Services: services, Words: []Word{ofService}}).Resolve(o)
			if now := (&Policy{Services: services, Words: []Word{ofService, ofServer}}).Resolve(o); laxer(now, was) {
				t.Fatalf("%s: %+v made %+v of %+v", name, ofServer, now, was)
			}
			if laxer((&Policy{Services: services, Words: []Word{ofService, reason}}).Resolve(o), was) {
				loosened++
			}
		}
	}
	if loosened < 1000 {
		t.Errorf("only %d loosenings", loosened)
	}
}

func saidBy(words []Word, name string) bool {
	for _, w := range words {
		if w.Tool == "" || w.Tool.Match(name) {
			return true
		}
	}
	return false
}

// unsaid reports whether each fact that is laxer is one of which what is shipped says nothing: there the folder is the
// first to know.
func unsaid(was, now Facts) bool {
	shipped := func(from string) bool { return from == "service: s" }
	return !(shipped(was.From.Confidentiality) && now.Output.Confidentiality < was.Output.Confidentiality ||
		shipped(was.From.Integrity) && now.Output.Integrity < was.Output.Integrity ||
		shipped(was.From.Audience) && now.Audience > was.Audience ||
		shipped(was.From.Effect) && now.Effect < was.Effect ||
		was.Forbidden != "" && now.Forbidden == "")
}

// TestOrderOfWordsIsNone: what counts does not depend on the order in which words of one layer are given.
func TestOrderOfWordsIsNone(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		var words []Word
		for range 4 {
			words = append(words, random(r, "service: s"))
		}
		p := &Policy{Services: map[string]Service{"s": {Words: words}}}
		shuffled := append([]Word(nil), words...)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		q := &Policy{Services: map[string]Service{"s": {Words: shuffled}}}
		for _, name := range []string{"a", "ab", "ba", "c"} {
			o := Offer{Server: Declared{Server: "s"}, Name: name}
			if f, g := p.Resolve(o), q.Resolve(o); f.Output != g.Output || f.Audience != g.Audience || f.Effect != g.Effect {
				t.Fatalf("%s: %+v and %+v of %+v", name, f, g, words)
			}
		}
	}
}

func TestDeclaredAsJSON(t *testing.T) {
	d := Declared{Server: "notion", Service: "notion", Packages: []string{"a"}, Words: []Word{{
		Tool: "send_*", Confidentiality: Sensitive, Integrity: Raw, Audience: Public, Effect: Irreversible, Semantics: Writes,
		Trust: Trust{Yes, No, Forbidden, Yes}, From: "owner: x",
	}, {From: "owner: x"}}}
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var e Declared
	if err := json.Unmarshal(b, &e); err != nil || !reflect.DeepEqual(d, e) {
		t.Errorf("%v: %s", err, b)
	}
}

func TestParseLabel(t *testing.T) {
	for text, want := range map[string]Label{
		"sensitive raw": {Sensitive, Raw}, "raw sensitive": {Sensitive, Raw}, "raw": {0, Raw}, "public": {Public, 0},
		" internal  clean ": {Internal, Clean},
	} {
		if got, err := ParseLabel(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "unknown", "unknown raw", "raw raw", "public secret", "raw public clean", "Raw"} {
		if got, err := ParseLabel(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}
