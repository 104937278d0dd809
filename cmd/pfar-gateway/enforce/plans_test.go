package enforce_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/consent"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// flowBench is a point, with a client whose runs pass it.
type flowBench struct {
	*enforce.Point
	consents consent.Store
	records  *opened
	who      enforce.Identity
	rights   *access.Rights
}

func newFlowBench(t *testing.T, dir string) *flowBench {
	t.Helper()
	p, consents := enforcetest.Consenting(t, dir, "laptop", "phone")
	b := &flowBench{Point: p, consents: consents, rights: access.BuiltIn("laptop").Rights()}
	b.records = &opened{Trail: p.Trail}
	p.Trail = b.records
	b.who = enforce.Identity{Client: "laptop", Handle: label.Default, Proof: "flow", Profile: "strict", Rights: b.rights}
	p.Now = func(who enforce.Identity) (enforce.Identity, bool) {
		who.Profile, who.Rights = b.who.Profile, b.rights
		return who, b.rights != nil
	}
	return b
}

// searchAndPost is a plan that reads what strangers wrote and posts something of it, which needs a person.
func searchAndPost(t *testing.T) enforce.Plan {
	t.Helper()
	public := gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}
	search := item(t, "github", "search", public, gate.Public, gate.None)
	return enforce.Plan{
		Flow: "digest", Run: "run1", Digest: "d1", Floor: gate.Start, Steps: []enforce.Planned{
			{ID: "search", Item: search, Known: []byte(`{"query":"x"}`), Next: []int{1}},
			{ID: "post", Item: item(t, "slack", "post", gate.Start, gate.Public, gate.Irreversible),
				Known: []byte(`{"channel":"dev"}`), From: []string{"text"}},
		},
	}
}

func (b *flowBench) decide(t *testing.T, plan enforce.Plan) (consent.Yes, approval.Outcome) {
	t.Helper()
	y, o, err := enforce.Plans{Point: b.Point}.Decide(t.Context(), b.who, plan)
	if err != nil {
		t.Fatal(err)
	}
	return y, o
}

// approve has a person approve the plan, as it is shown.
func (b *flowBench) approve(t *testing.T, plan enforce.Plan) consent.Yes {
	t.Helper()
	y, o := b.decide(t, plan)
	if o.State != approval.Pending {
		t.Fatalf("%+v", o)
	}
	shown, err := b.Approvals.Show(o.ID)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Approvals.Answer(o.ID, approval.Answer{Approve: true, Digest: shown.Digest}, approval.Approver{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	plan.Call = y.Call
	y, o = b.decide(t, plan)
	if o.State != approval.Approved || y.Approval != shown.ID || y.By.Name != "ann" {
		t.Fatalf("%+v, %+v", y, o)
	}
	if err := b.consents.Put(plan.Run, y); err != nil {
		t.Fatal(err)
	}
	return y
}

// call makes the call of a step, and ends it. It returns the id of the approval that it waits for.
func (b *flowBench) call(t *testing.T, y consent.Yes, s enforce.Planned, arguments string) (
	pass *enforce.Passage, waits string) {
	t.Helper()
	run := &enforce.Run{ID: "run1", Step: s.ID, Floor: gate.Start, Yes: y, Consents: b.consents}
	pass, err := b.Enter(t.Context(), b.who, s.Item, enforce.Request{
		Method: "tools/call", Arguments: []byte(arguments), Params: []byte(`{"arguments":` + arguments + `}`), Run: run,
	})
	no, _ := errors.AsType[*enforce.Refused](err)
	switch {
	case no != nil && no.State == approval.Pending:
		return nil, no.ID
	case err != nil:
		t.Fatal(err)
	}
	if err := pass.End("ok", 0); err != nil {
		t.Fatal(err)
	}
	return pass, ""
}

func (b *flowBench) last() audit.Record { return b.records.all[len(b.records.all)-1] }

// TestPlanIsShownWhole: a plan is judged without a call, and a person is asked once, who sees each step with its
// arguments, the worst label before it, and who sees what goes there.
func TestPlanIsShownWhole(t *testing.T) {
	b := newFlowBench(t, t.TempDir())
	plan := searchAndPost(t)
	y, o := b.decide(t, plan)
	if o.State != approval.Pending || y.Steps != nil {
		t.Fatalf("%+v, %+v", y, o)
	}
	want(t, b.Point, b.who, gate.Start)
	if r := b.last(); len(b.records.all) != 1 || r.Tool != "flow:digest" || r.Outcome != "planned" || r.ID != y.Call {
		t.Errorf("recorded: %+v", b.records.all)
	}
	shown, err := b.Approvals.Show(o.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"step":"search","calls":"github.search","arguments":{"query":"x"}`, `"step":"post","calls":"slack.post"`,
		`"arguments":{"channel":"dev"}`, `"arguments from earlier steps":["text"]`, `"verdict":"ask"`, `"verdict":"allow"`,
		`"session has seen at worst":"public raw"`, `"who sees its arguments":"public (owner)"`,
		`"effect":"irreversible (owner)"`,
		`"plan":"d1"`, `"run":"run1"`, `"session has seen":"public clean"`,
	} {
		var canonical any
		if json.Unmarshal(shown.Arguments, &canonical) != nil || !containsJSON(string(shown.Arguments), part) {
			t.Errorf("not shown: %s\n%s", part, shown.Arguments)
		}
	}
	if shown.Server != "pfar" || shown.Name != "flow:digest" || shown.Pin != "d1" || shown.Facts.Audience != gate.Public ||
		shown.Facts.Effect != gate.Irreversible || shown.Decision.Data.Integrity != gate.Raw || shown.Left < 6*24*3600 {
		t.Errorf("%+v", shown)
	}
	plan.Call = y.Call
	if again, same := b.decide(t, plan); same.ID != o.ID || again.Call != y.Call || len(b.records.all) != 1 {
		t.Errorf("asked again: %+v, %d records", same, len(b.records.all))
	}
}

// containsJSON reports whether each member of a part is in a text of canonical JSON, whose members have another order.
func containsJSON(text, part string) bool {
	for member := range strings.SplitSeq(part, `,"`) {
		if !strings.Contains(text, strings.TrimPrefix(member, `"`)) {
			return false
		}
	}
	return true
}

// TestPlanThatIsDenied: a plan that ends in a denial never begins, and the answer names the step and the reason.
func TestPlanThatIsDenied(t *testing.T) {
	regulated := gate.Label{Confidentiality: gate.Regulated, Integrity: gate.Clean}
	for name, tt := range map[string]struct {
		change func(*flowBench, *enforce.Plan)
		want   string
	}{
		"regulated data to the public": {func(_ *flowBench, p *enforce.Plan) {
			p.Steps[0].Item = item(t, "bank", "read", regulated, gate.Regulated, gate.None)
		}, "the step post would be denied: the session has read no strangers' text. The call may carry regulated data"},
		"a definition that nobody has accepted": {
			func(_ *flowBench, p *enforce.Plan) { p.Steps[1].Item.Pin = "" },
			"the step post would be denied: nobody has accepted"},
		"arguments that do not fit": {
			func(_ *flowBench, p *enforce.Plan) { p.Steps[0].Item.Fits = false }, "the step search would be denied: the schema"},
		"a tool that the client does not have": {func(b *flowBench, _ *enforce.Plan) {
			b.rights = access.Client{Servers: []string{"github"}}.Rights()
		}, "the step post would be denied"},
		"a client that is gone": {
			func(b *flowBench, _ *enforce.Plan) { b.rights = nil }, "may not ask for this any more"},
		"a session that nobody made": {func(b *flowBench, _ *enforce.Plan) { b.who.Handle = "none" }, "no such session"},
		"a run that holds nobody knows what": {
			func(_ *flowBench, p *enforce.Plan) { p.Floor = gate.Label{} }, "what the session has seen is not known"},
		"no steps": {func(_ *flowBench, p *enforce.Plan) { p.Steps = nil }, "no steps"},
		"a yes in vain": {func(_ *flowBench, p *enforce.Plan) {
			p.Steps[1].Item.Vain = errors.New("its token lacks the scope chat:write")
		}, "in vain: its token lacks"},
		"a secret of the vault": {func(_ *flowBench, p *enforce.Plan) {
			p.Steps[1].Known = []byte(`{"channel":"hunter2"}`)
		}, "it was denied; the person who runs pfar sees why"},
	} {
		b := newFlowBench(t, t.TempDir())
		b.Vault = hunter{}
		plan := searchAndPost(t)
		tt.change(b, &plan)
		_, _, err := enforce.Plans{Point: b.Point}.Decide(t.Context(), b.who, plan)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "bank_pin") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if len(b.Approvals.List()) != 0 {
			t.Errorf("%s: somebody is asked", name)
		}
		if r := b.last(); r.Outcome != "denied" || !strings.HasPrefix(r.Tool, "flow:") || r.Reason == "" {
			t.Errorf("%s: recorded %+v", name, r)
		}
	}
}

// TestYesCoversOneCall: the yes to a plan covers one call of each step. The next turn asks for itself, also after a
// restart.
func TestYesCoversOneCall(t *testing.T) {
	dir := t.TempDir()
	b := newFlowBench(t, dir)
	plan := searchAndPost(t)
	plan.Steps[1].Next = []int{0} // round and round
	y := b.approve(t, plan)
	if pass, waits := b.call(t, y, plan.Steps[0], `{"query":"x"}`); waits != "" || pass.Approved() {
		t.Errorf("a step that needs no yes: %s", waits)
	}
	pass, waits := b.call(t, y, plan.Steps[1], `{"channel":"dev","text":"hello"}`)
	if waits != "" || !pass.Approved() {
		t.Fatalf("the first turn waits for %s", waits)
	}
	r := b.last()
	if r.Subject != y.Approval || r.Approver != "ann" || r.Channel != "plan" || r.Decision.Verdict != gate.Ask {
		t.Errorf("recorded %+v", r)
	}
	if _, waits := b.call(t, y, plan.Steps[1], `{"channel":"dev","text":"hello"}`); waits == "" {
		t.Error("the second turn is covered")
	}
	kept, err := b.consents.Get("run1")
	if err != nil || kept.Approval != y.Approval {
		t.Fatalf("%+v, %v", kept, err)
	}
	if _, waits := b.call(t, kept, plan.Steps[1], `{"channel":"dev","text":"later"}`); waits == "" {
		t.Error("a turn after a restart is covered")
	}
}

// TestYesIsVoid: whatever was shown otherwise than it is now ends the yes, and the call asks for itself.
func TestYesIsVoid(t *testing.T) {
	for name, change := range map[string]func(*flowBench, *enforce.Planned){
		"another definition":  func(_ *flowBench, s *enforce.Planned) { s.Item.Pin = "other" },
		"another declaration": func(_ *flowBench, s *enforce.Planned) { s.Item.Declared = append(s.Item.Declared, ' ') },
		"a declaration edited meanwhile": func(_ *flowBench, s *enforce.Planned) {
			declared := append(s.Item.Declared[:len(s.Item.Declared):len(s.Item.Declared)], '\n')
			s.Item.Now = func() (any, []byte) { return nil, declared }
		},
		"other rights": func(b *flowBench, _ *enforce.Planned) {
			c := access.BuiltIn("laptop")
			c.Hide = []string{"x.y"}
			b.rights = c.Rights()
			b.who.Rights = b.rights
		},
		"another profile": func(b *flowBench, _ *enforce.Planned) { b.who.Profile = "balanced" },
		"a session that has seen more": func(b *flowBench, _ *enforce.Planned) {
			taint(t, b.Point, b.who, gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw})
		},
		"a server that holds more": func(b *flowBench, _ *enforce.Planned) {
			phone := b.who
			phone.Client = "phone"
			taint(t, b.Point, phone, raw)
			if err := b.Sessions.Stain("slack", raw, label.Source{Client: "phone", Handle: label.Default}); err != nil {
				t.Fatal(err)
			}
		},
		"another policy": func(b *flowBench, _ *enforce.Planned) {
			other := *b.Policy()
			other.Rules = []gate.Rule{{Verdict: gate.Ask, Name: "r", Reason: "r.", Servers: []gate.Pattern{"none"}, At: "x"}}
			if err := other.Compile(); err != nil {
				t.Fatal(err)
			}
			b.Learn(&other, nil)
		},
		"an inspector that finds something": func(b *flowBench, s *enforce.Planned) { s.Item.Fits = true; s.From = nil },
	} {
		b := newFlowBench(t, t.TempDir())
		plan := searchAndPost(t)
		y := b.approve(t, plan)
		b.call(t, y, plan.Steps[0], `{"query":"x"}`)
		arguments := `{"channel":"dev","text":"hello"}`
		if strings.Contains(name, "inspector") {
			arguments = `{"channel":"dev","text":"ghp_16C7e42F292c6912E7710c838347Ae178B4a"}`
		}
		change(b, &plan.Steps[1])
		if _, waits := b.call(t, y, plan.Steps[1], arguments); waits == "" {
			t.Errorf("%s: the call is covered", name)
		}
	}
}

// TestYesAsShown: a plan is not approved if it, or what its session has seen, has changed between question and answer.
func TestYesAsShown(t *testing.T) {
	for name, change := range map[string]func(*flowBench, *enforce.Plan){
		"another plan": func(_ *flowBench, p *enforce.Plan) { p.Digest = "d2" },
		"another run":  func(_ *flowBench, p *enforce.Plan) { p.Run = "run2" },
		"another argument": func(_ *flowBench, p *enforce.Plan) {
			p.Steps[1].Known = []byte(`{"channel":"all"}`)
		},
		"another definition":           func(_ *flowBench, p *enforce.Plan) { p.Steps[0].Item.Pin = "other" },
		"a session that has seen more": func(b *flowBench, _ *enforce.Plan) { taint(t, b.Point, b.who, raw) },
	} {
		b := newFlowBench(t, t.TempDir())
		plan := searchAndPost(t)
		_, o := b.decide(t, plan)
		shown, err := b.Approvals.Show(o.ID)
		if err != nil {
			t.Fatal(err)
		}
		err = b.Approvals.Answer(o.ID, approval.Answer{Approve: true, Digest: shown.Digest}, approval.Approver{Name: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		change(b, &plan)
		if _, again := b.decide(t, plan); again.State != approval.Pending || again.ID == o.ID {
			t.Errorf("%s: %+v", name, again)
		}
	}
}

// TestFloor: a reset of its session does not wash what a run holds. The session has seen it again before the gate
// decides, and a run of which that is not known calls nothing.
func TestFloor(t *testing.T) {
	b := newFlowBench(t, t.TempDir())
	taint(t, b.Point, b.who, raw)
	if err := b.Sessions.Reset(b.who.Client, b.who.Handle, "op"); err != nil {
		t.Fatal(err)
	}
	post := searchAndPost(t).Steps[1]
	request := func(floor gate.Label) enforce.Request {
		return enforce.Request{
			Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}"),
			Run: &enforce.Run{ID: "run1", Step: "post", Floor: floor, Consents: b.consents},
		}
	}
	_, err := b.Enter(t.Context(), b.who, post.Item, request(raw))
	no, _ := errors.AsType[*enforce.Refused](err)
	if no == nil || no.State != approval.Pending {
		t.Fatalf("%v", err)
	}
	if d := b.last().Decision; d.Data != raw || !d.Once {
		t.Errorf("decided by %s: %+v", d.Data, d)
	}
	want(t, b.Point, b.who, raw)
	if _, err = b.Enter(t.Context(), b.who, post.Item, request(gate.Label{})); err == nil ||
		!strings.Contains(err.Error(), "the label of the run is not known") {
		t.Errorf("a floor that is not known: %v", err)
	}
}

// resetting resets the session while it keeps what a call may overwrite.
type resetting struct{ b *flowBench }

func (r resetting) Keep(context.Context, string, handover.Call) error {
	return r.b.Sessions.Reset(r.b.who.Client, r.b.who.Handle, "op")
}

// TestFloorHolds: nor does a reset while the gate decides.
func TestFloorHolds(t *testing.T) {
	b := newFlowBench(t, t.TempDir())
	b.Keeper = resetting{b}
	post := searchAndPost(t).Steps[1]
	var declared gate.Declared
	if err := json.Unmarshal(post.Item.Declared, &declared); err != nil {
		t.Fatal(err)
	}
	declared.Keeps = true
	post.Item.Declared, _ = json.Marshal(declared)
	run := &enforce.Run{ID: "run1", Step: "post", Floor: raw, Consents: b.consents}
	_, err := b.Enter(t.Context(), b.who, post.Item, enforce.Request{
		Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}"), Run: run,
	})
	if d := b.last().Decision; err == nil || d.Data != raw || !d.Once {
		t.Errorf("decided by %s, %v", d.Data, err)
	}
}

// TestRunWaitsForNobody: the call of a run that a person has to decide about returns at once, and one whose run was
// given up uses no approval up.
func TestRunWaitsForNobody(t *testing.T) {
	b := newFlowBench(t, t.TempDir()) // whose clients wait for 50 s
	post := searchAndPost(t).Steps[1]
	_, waits := b.call(t, consent.Yes{}, post, "{}")
	shown, err := b.Approvals.Show(waits)
	if err != nil || shown.Left < 6*24*3600 {
		t.Fatalf("%+v, %v", shown, err)
	}
	err = b.Approvals.Answer(waits, approval.Answer{Approve: true, Digest: shown.Digest}, approval.Approver{Name: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	run := &enforce.Run{ID: "run1", Step: "post", Floor: gate.Start, Consents: b.consents}
	if _, err = b.Enter(ctx, b.who, post.Item, enforce.Request{
		Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}"), Run: run,
	}); err == nil {
		t.Error("a run that was given up makes its call")
	}
	if pass, again := b.call(t, consent.Yes{}, post, "{}"); again != "" || !pass.Approved() {
		t.Errorf("the approval is used up: %s", again)
	}
	if _, again := b.call(t, consent.Yes{}, post, "{}"); again == "" {
		t.Error("one approval lets two calls through")
	}
}

// TestSecretInAFlow: a secret of the vault in a flow is a guess as in a call: denied, without its name, and counted
// until the session is frozen.
func TestSecretInAFlow(t *testing.T) {
	b := newFlowBench(t, t.TempDir())
	b.Vault = hunter{}
	plans := enforce.Plans{Point: b.Point}
	if err := plans.Secret(t.Context(), b.who, "", []byte(`"search --query x"`)); err != nil {
		t.Fatal(err)
	}
	for n := range 16 {
		err := plans.Secret(t.Context(), b.who, "", []byte(`"search --query hunter2"`))
		if err == nil || strings.Contains(err.Error(), "bank_pin") || strings.Contains(err.Error(), "hunter2") {
			t.Fatalf("%d: %v", n, err)
		}
		if r := b.last(); r.Outcome != "denied" || !strings.Contains(r.Reason, "bank_pin") || r.Tool != "flow:line" {
			t.Fatalf("%d: recorded %+v", n, r)
		}
	}
	if _, err := b.Sessions.Label(b.who.Client, b.who.Handle); !errors.Is(err, label.ErrFrozen) {
		t.Errorf("the session: %v", err)
	}
	err := plans.Secret(t.Context(), b.who, "", []byte(`"x"`))
	if err == nil || !strings.Contains(err.Error(), "too many") {
		t.Errorf("after 16 guesses: %v", err)
	}
}

// TestYesOfARunGivenUp: a run that is cancelled while the gate decides does not use its plan's yes up, and is not let
// through.
func TestYesOfARunGivenUp(t *testing.T) {
	b := newFlowBench(t, t.TempDir())
	plan := searchAndPost(t)
	y := b.approve(t, plan)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const arguments = `{"channel":"dev","text":"x"}`
	_, err := b.Enter(ctx, b.who, plan.Steps[1].Item, enforce.Request{
		Method: "tools/call", Arguments: []byte(arguments), Params: []byte(`{"arguments":` + arguments + `}`),
		Run: &enforce.Run{ID: "run1", Step: "post", Floor: gate.Start, Yes: y, Consents: b.consents},
	})
	if err == nil || !strings.Contains(err.Error(), "the run was given up") {
		t.Errorf("a call of a run that was cancelled: %v", err)
	}
	if n := len(b.Approvals.List()); n != 0 {
		t.Errorf("%d wait for a person", n)
	}
	if err := b.consents.Use("run1", "post", "call"); err != nil {
		t.Errorf("the yes is used up: %v", err)
	}
}
