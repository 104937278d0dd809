package gate

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// open is a policy that allows all that a profile can: what is denied by it is denied by the code.
func open(t testing.TB) *Policy {
	t.Helper()
	row := func(d Data) Row {
		return Row{
			Sessions: []Integrity{Clean, Extracted, Raw}, Data: d,
			Outcomes: [3]Outcome{{Verdict: Allow}, {Verdict: Allow}, {Verdict: Allow}}, At: "open.hcl:1",
		}
	}
	p := &Policy{Profiles: map[string]Profile{"open": {At: "open.hcl:1", Inspect: Inspect}}}
	var rows []Row
	for d := Fits; d <= SecretPattern; d++ {
		rows = append(rows, row(d))
	}
	open := p.Profiles["open"]
	open.Rows = rows
	p.Profiles["open"] = open
	if err := p.Compile(); err != nil {
		t.Fatal(err)
	}
	return p
}

func sound() (Session, Call) {
	facts := Facts{Output: Label{Public, Clean}, Audience: Public, Effect: None}
	return Session{Label: Start, Profile: "open"}, Call{
		Client: "editor", Server: "notes", Name: "read", Method: "tools/call",
		Pinned: true, Schema: true, Audit: true, Facts: facts,
	}
}

// TestZeroDenies takes each thing away that a decision needs.
func TestZeroDenies(t *testing.T) {
	p := open(t)
	s, c := sound()
	if d := p.Decide(s, c); d.Verdict != Allow || d.Rule == "" || d.Policy != p.Digest {
		t.Fatalf("a sound call: %+v", d)
	}
	cases := map[string]func(*Session, *Call){
		"session":            func(s *Session, _ *Call) { *s = Session{} },
		"profile":            func(s *Session, _ *Call) { s.Profile = "" },
		"unknown profile":    func(s *Session, _ *Call) { s.Profile = "opem" },
		"label":              func(s *Session, _ *Call) { s.Label = Label{} },
		"confidentiality":    func(s *Session, _ *Call) { s.Label.Confidentiality = 0 },
		"no confidentiality": func(s *Session, _ *Call) { s.Label.Confidentiality = Secret + 1 },
		"integrity":          func(s *Session, _ *Call) { s.Label.Integrity = 0 },
		"no integrity":       func(s *Session, _ *Call) { s.Label.Integrity = Raw + 1 },
		"call":               func(_ *Session, c *Call) { *c = Call{} },
		"audit":              func(_ *Session, c *Call) { c.Audit = false },
		"pin":                func(_ *Session, c *Call) { c.Pinned = false },
		"schema":             func(_ *Session, c *Call) { c.Schema = false },
		"facts":              func(_ *Session, c *Call) { c.Facts = Facts{} },
		"output":             func(_ *Session, c *Call) { c.Facts.Output.Integrity = 0 },
		"no output":          func(_ *Session, c *Call) { c.Facts.Output.Confidentiality = 200 },
		"audience":           func(_ *Session, c *Call) { c.Facts.Audience = 0 },
		"no audience":        func(_ *Session, c *Call) { c.Facts.Audience = 6 },
		"effect":             func(_ *Session, c *Call) { c.Facts.Effect = 0 },
		"no effect":          func(_ *Session, c *Call) { c.Facts.Effect = 4 },
		"forbidden":          func(_ *Session, c *Call) { c.Facts.Forbidden = "no" },
		"tier":               func(_ *Session, c *Call) { c.Facts.Tier = "browser/vision" },
		"vault value":        func(_ *Session, c *Call) { c.Arguments.Vault = "notion_token" },
		"address":            func(_ *Session, c *Call) { c.Arguments.Address = "url leads elsewhere" },
		"no argument label":  func(_ *Session, c *Call) { c.Arguments.Confidentiality = Secret + 1 },
	}
	for name, spoil := range cases {
		s, c := sound()
		spoil(&s, &c)
		for _, p := range []*Policy{p, nil, {}, {Profiles: p.Profiles}} {
			d := p.Decide(s, c)
			if d.Verdict != Deny || d.Reason == "" || d.Rule == "" || d.Inspect || d.Once ||
				len(d.Fired) == 0 || d.Fired[0] != d.Rule {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
	var zero Decision
	if zero.Verdict != Deny {
		t.Error("a decision that nobody made allows")
	}
	empty := &Policy{Profiles: map[string]Profile{"open": {Inspect: Inspect}}}
	if err := empty.Compile(); err != nil {
		t.Fatal(err)
	}
	if d := empty.Decide(s, c); d.Verdict != Deny || !strings.Contains(d.Rule, "no row") {
		t.Errorf("a profile without rows: %+v", d)
	}
}

func TestAllThatFires(t *testing.T) {
	p := open(t)
	p.Rules = []Rule{
		{Verdict: Ask, Name: "slowly", Reason: "Somebody looks.", Servers: []Pattern{"no*"}, At: "l.hcl:1"},
		{Verdict: Deny, Name: "never", Reason: "Never.", Tools: []Pattern{"re*"}, Methods: []Pattern{"tools/*"},
			Clients: []Pattern{"editor"}, Profiles: []string{"open"}, At: "l.hcl:2"},
		{Verdict: Deny, Name: "elsewhere", Reason: "Not here.", Clients: []Pattern{"other"}, At: "l.hcl:3"},
	}
	if err := p.Compile(); err != nil {
		t.Fatal(err)
	}
	s, c := sound()
	c.Pinned, c.Arguments.Pattern = false, "github token"
	d := p.Decide(s, c)
	want := []string{
		"gate: not pinned", "l.hcl:2: deny never", "l.hcl:1: ask slowly", "open.hcl:1: clean, fits, none",
		"open.hcl:1: clean, fits, typed arguments, none", "open.hcl:1: clean, secret-like pattern, none",
	}
	if !reflect.DeepEqual(d.Fired, want) || d.Verdict != Deny || d.Rule != want[0] {
		t.Errorf("%q, want %q", d.Fired, want)
	}
	again := p.Decide(sound())
	if len(again.Fired) != 4 || again.Rule != "l.hcl:2: deny never" {
		t.Errorf("a decision left its mark on the next: %q", again.Fired)
	}
	p.Rules = []Rule{{Verdict: Allow, Name: "all"}}
	if err := p.Compile(); err == nil || p.Decide(sound()).Verdict != Deny {
		t.Errorf("a rule that allows: %v", err)
	}
}

func TestFlows(t *testing.T) {
	p := open(t)
	open := p.Profiles["open"]
	for i := range open.Rows {
		if open.Rows[i].Data >= InternalToPublic {
			open.Rows[i].Outcomes = [3]Outcome{}
		}
	}
	p.Profiles["open"] = open
	p.Flows = []Flow{{From: "notion", To: "search", Tool: "web_*", Reason: "It is asked for.", At: "l.hcl:4"}}
	if err := p.Compile(); err != nil {
		t.Fatal(err)
	}
	s, c := sound()
	s.Label = Label{Sensitive, Clean}
	s.Sources = []Source{{"notion", Label{Sensitive, Clean}}, {"docs", Label{Public, Clean}}}
	c.Server, c.Name = "search", "web_search"
	if d := p.Decide(s, c); d.Verdict != Allow || len(d.Flows) != 1 || d.Data.Confidentiality != Sensitive {
		t.Errorf("the declared flow: %+v", d)
	}
	for name, spoil := range map[string]func(*Session, *Call){
		"no sources":       func(s *Session, _ *Call) { s.Sources = nil },
		"a source as well": func(s *Session, _ *Call) { s.Sources[1] = Source{"mail", Label{Internal, Clean}} },
		"unknown source":   func(s *Session, _ *Call) { s.Sources[1].Label = Label{} },
		"of another":       func(s *Session, _ *Call) { s.Sources[0].Server = "notion2" },
		"of nobody":        func(s *Session, _ *Call) { s.Sources[1] = Source{"", Label{Sensitive, Clean}} },
		"unattributed":     func(s *Session, _ *Call) { s.Sources[0].Label.Confidentiality = Internal },
		"extracted":        func(s *Session, _ *Call) { s.Label.Integrity = Extracted },
		"raw":              func(s *Session, _ *Call) { s.Label.Integrity = Raw },
		"regulated": func(s *Session, _ *Call) {
			s.Label.Confidentiality, s.Sources[0].Label.Confidentiality = Regulated, Regulated
		},
		"arguments":         func(_ *Session, c *Call) { c.Arguments.Confidentiality = Internal },
		"to another":        func(_ *Session, c *Call) { c.Server = "mail" },
		"by another tool":   func(_ *Session, c *Call) { c.Name = "post" },
		"by another method": func(_ *Session, c *Call) { c.Method = "prompts/get" },
	} {
		s, c := s, c
		s.Sources = append([]Source(nil), s.Sources...)
		spoil(&s, &c)
		if d := p.Decide(s, c); d.Verdict != Deny {
			t.Errorf("%s: %+v", name, d)
		}
	}
	for i := range open.Rows { // where what is internal may go, still nothing of another's makes the rest go with it
		if open.Rows[i].Data == InternalToPublic {
			open.Rows[i].Outcomes = [3]Outcome{{Verdict: Allow}, {Verdict: Allow}, {Verdict: Allow}}
		}
	}
	if err := p.Compile(); err != nil {
		t.Fatal(err)
	}
	s.Sources[1] = Source{"mail", Label{Internal, Clean}}
	if d := p.Decide(s, c); d.Verdict != Deny || len(d.Flows) > 0 {
		t.Errorf("a source of what is internal as well: %+v", d)
	}
}

// TestLooserProfile has profiles that differ from another one in each thing that counts.
func TestLooserProfile(t *testing.T) {
	rows := func(o Outcome) []Row {
		var list []Row
		for d := Fits; d <= SecretPattern; d++ {
			list = append(list, Row{Sessions: []Integrity{Clean, Extracted, Raw}, Data: d, Outcomes: [3]Outcome{o, o, o}})
		}
		return list
	}
	inspects := Profile{Inspect: Ask, Rows: rows(Outcome{Verdict: Inspect})}
	for name, c := range map[string]struct {
		change func(*Profile)
		looser bool
	}{
		"nothing":          {func(*Profile) {}, false},
		"strangers":        {func(p *Profile) { p.Clean = false }, true},
		"one tier more":    {func(p *Profile) { p.Tiers = []string{"a/b", "a/c"} }, true},
		"one tier less":    {func(p *Profile) { p.Tiers = nil }, false},
		"no inspector":     {func(p *Profile) { p.Inspectors = nil }, true},
		"another":          {func(p *Profile) { p.Inspectors = []string{"model"} }, true},
		"one more":         {func(p *Profile) { p.Inspectors = []string{"model", "scan"} }, false},
		"it is inspected":  {func(p *Profile) { p.Inspect = Inspect }, true},
		"it is denied":     {func(p *Profile) { p.Inspect = Deny }, false},
		"a row more":       {func(p *Profile) { p.Rows = append(rows(Outcome{Verdict: Ask}), p.Rows...) }, false},
		"another row":      {func(p *Profile) { p.Rows = rows(Outcome{Verdict: Allow}) }, true},
		"it is remembered": {func(p *Profile) { p.Rows = rows(Outcome{Verdict: Ask}) }, false},
		"asked once":       {func(p *Profile) { p.Rows = rows(Outcome{Ask, true}) }, false},
	} {
		than := inspects
		than.Clean, than.Tiers, than.Inspectors = true, []string{"a/b"}, []string{"scan"}
		profile := than
		c.change(&profile)
		p := &Policy{Profiles: map[string]Profile{"than": than, "it": profile}}
		if got := p.Looser("it", "than"); got != c.looser {
			t.Errorf("%s: %t", name, got)
		}
	}
	p := &Policy{Profiles: map[string]Profile{"than": inspects, "it": inspects}, Rules: []Rule{{Verdict: Ask, Profiles: []string{"than"}}}}
	if !p.Looser("it", "than") || p.Looser("than", "it") {
		t.Error("a rule that one profile is free of")
	}
}

func TestJoined(t *testing.T) {
	raw := Facts{Output: Label{Internal, Raw}, Audience: Public, Effect: None}
	typed := raw
	typed.Extract = true
	for _, c := range []struct {
		session Label
		facts   Facts
		want    Label
	}{
		{Start, raw, Label{Internal, Raw}},
		{Start, typed, Label{Internal, Extracted}},
		{Label{Sensitive, Raw}, typed, Label{Sensitive, Raw}},
		{Label{Sensitive, Clean}, Facts{Output: Start}, Label{Sensitive, Clean}},
		{Start, Facts{}, Label{Secret, Raw}},
		{Start, Facts{Extract: true}, Label{Secret, Raw}},
		{Start, Facts{Output: Label{Public, 9}, Extract: true}, Label{Public, Raw}},
		{Label{}, Facts{Output: Start}, Label{Secret, Raw}},
		{Start, Facts{Output: Start}.Stained(Label{Regulated, Raw}), Label{Regulated, Raw}},
		{Start, typed.Stained(Label{}), Label{Internal, Extracted}},
		{Start, typed.Stained(Label{Sensitive, Extracted}), Label{Sensitive, Extracted}},
		{Start, typed.Stained(Label{Public, Raw}), Label{Internal, Raw}},
		{Start, typed.Stained(Label{Public, Raw}).Stained(Label{}), Label{Internal, Raw}},
		{Start, typed.Stained(Label{Public, 9}), Label{Internal, Raw}},
	} {
		if got := Joined(Session{Label: c.session}, c.facts); got != c.want {
			t.Errorf("%v after %+v: %v, want %v", c.session, c.facts, got, c.want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		p    Pattern
		name string
		want bool
	}{
		{"", "", false}, {"", "a", false}, {"*", "", true}, {"*", "a", true}, {"a", "a", true}, {"a", "ab", false},
		{"a*", "a", true}, {"a*a", "a", false},
		{"send_*", "send_mail", true}, {"send_*", "resend_mail", false}, {"*_mail", "send_mail", true},
		{"s*_*l", "send_mail", true}, {"a**b", "ab", true}, {"*ab", "aab", true},
		{"SEND_*", "send_mail", false},
	} {
		if got := c.p.Match(c.name); got != c.want {
			t.Errorf("%q.Match(%q) = %t", c.p, c.name, got)
		}
	}
	// Against regexp, and each overlap against all short names.
	random := rand.New(rand.NewPCG(1, 2))
	text := func(alphabet string, most int) string {
		b := make([]byte, random.IntN(most+1))
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
		}
		return string(b)
	}
	var names []string
	for n := range 1 << 7 {
		for length := range 7 {
			if n < 1<<length {
				digits := ("000000" + strings.TrimLeft(binary(n), ""))[6+len(binary(n))-length:]
				names = append(names, strings.Map(func(r rune) rune { return r + 'a' - '0' }, digits))
			}
		}
	}
	for range 3000 {
		p, q := Pattern(text("ab*", 5)), Pattern(text("ab*", 5))
		re := regexp.MustCompile("^" + strings.ReplaceAll(string(p), "*", ".*") + "$")
		both := false
		for _, name := range names {
			if p != "" && p.Match(name) != re.MatchString(name) {
				t.Fatalf("%q.Match(%q) = %t", p, name, p.Match(name))
			}
			both = both || p.Match(name) && q.Match(name)
		}
		if both && !p.Overlaps(q) || p.Overlaps(q) != q.Overlaps(p) {
			t.Fatalf("%q.Overlaps(%q) = %t", p, q, p.Overlaps(q))
		}
		if stars := strings.Count(string(p+q), "*"); !both && p.Overlaps(q) && len(p)+len(q)-stars <= 6 {
			t.Fatalf("%q and %q have no name in common", p, q)
		}
	}
}

func binary(n int) string {
	s := ""
	for ; n > 0; n /= 2 {
		s = string(rune('0'+n%2)) + s
	}
	return s
}

func TestPolicyAsJSON(t *testing.T) {
	p := open(t)
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var q Policy
	if err := json.Unmarshal(b, &q); err != nil || !reflect.DeepEqual(p, &q) {
		t.Fatalf("another policy came back: %v", err)
	}
	for _, spoiled := range []string{
		strings.Replace(string(b), `"allow"`, `"deny"`, 1), strings.Replace(string(b), `"inspect":"inspect"`, `"inspect":"allow"`, 1),
		strings.Replace(string(b), p.Digest, strings.Repeat("0", 64), 1), `{}`, `{"digest":""}`, `null`, `[]`, `{"profile":{}}`,
	} {
		q := Policy{}
		if err := json.Unmarshal([]byte(spoiled), &q); spoiled != "null" && err == nil {
			t.Errorf("accepted: %.100s", spoiled)
		}
		if d := q.Decide(sound()); d.Verdict != Deny {
			t.Errorf("%.100s: %+v", spoiled, d)
		}
	}
}

func FuzzPolicyJSON(f *testing.F) {
	b, _ := json.Marshal(open(f))
	f.Add(b)
	f.Add([]byte(`{"profiles":{"open":{"at":"","inspect":"allow","rows":[` +
		`{"sessions":["raw"],"data":"fits","outcomes":["allow","ask once","deny"],"at":"x"}]}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p Policy
		if json.Unmarshal(b, &p) != nil {
			if d := p.Decide(sound()); d.Verdict != Deny {
				t.Fatalf("a policy that cannot be read allows: %+v", d)
			}
			return
		}
		again, err := json.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		var q Policy
		if err := json.Unmarshal(again, &q); err != nil || q.Digest != p.Digest {
			t.Fatalf("%v: %s", err, again)
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	p := open(b)
	s, c := sound()
	b.ReportAllocs()
	for b.Loop() {
		if d := p.Decide(s, c); d.Verdict != Allow {
			b.Fatal(d)
		}
	}
}

// TestOwners: the owner can lift what the owner's words deny, and no other denial.
func TestOwners(t *testing.T) {
	for _, c := range []struct {
		verdict Verdict
		rule    string
		want    bool
	}{
		{Deny, "strict.hcl:30: any, regulated to lower", true}, {Deny, "mine.hcl:3: deny x", true},
		{Deny, pinRule, true}, {Deny, forbidRule, true}, {Deny, addressRule, true},
		{Deny, VaultRule, false}, {Deny, "gate: no audit", false}, {Deny, "gate: schema", false},
		{Deny, "gate: unknown session", false}, {Deny, "", false}, {Ask, "mine.hcl:3: ask x", false},
	} {
		if got := (Decision{Verdict: c.verdict, Rule: c.rule}).Owners(); got != c.want {
			t.Errorf("%s %q: %t", c.verdict, c.rule, got)
		}
	}
}
