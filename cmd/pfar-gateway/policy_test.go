package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/inspect"
	"github.com/pfar/pfar/cmd/pfar-gateway/notice"
	"github.com/pfar/pfar/cmd/pfar-gateway/operator"
	"github.com/pfar/pfar/cmd/pfar-gateway/registry"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
)

// undecided is a gateway that has not been told by what calls are decided.
func undecided(t *testing.T, log *slog.Logger) *gateway {
	t.Helper()
	point := enforcetest.New(t)
	point.Learn(nil, nil)
	return &gateway{
		point: point, approvals: point.Approvals, log: log,
		others: others{
			panel: new(inspect.Panel), teller: notice.New(t.TempDir(), log, notice.Wall()), signers: new(operator.Signers),
		},
		registry: registry.New(log, "test", registry.DefaultLimits()),
	}
}

// TestPolicyIsFollowed: the gateway has what pfard last said, and nothing of what cannot be a policy.
func TestPolicyIsFollowed(t *testing.T) {
	first := policies.Load(nil, "").Policy
	second := *first
	second.Rules = []gate.Rule{{Verdict: gate.Deny, Name: "all", Reason: "No.", At: "x.hcl:1"}}
	if err := second.Compile(); err != nil {
		t.Fatal(err)
	}
	f := followPolicies(t)
	inForce := func(p *gate.Policy) func() bool {
		return func() bool { now := f.point.Policy(); return now != nil && now.Digest == p.Digest }
	}
	if f.point.Policy() != nil {
		t.Error("a policy that nobody told")
	}
	b := marshal(t, first)
	f.tell(control.Response{Policy: b}, inForce(first))
	f.feed <- control.Response{Policy: bytes.Replace(b, []byte(`"deny"`), []byte(`"allow"`), 1)}
	f.tell(control.Response{Policy: marshal(t, &second)}, inForce(&second))
	if log := f.end(); !strings.Contains(log, "its digest is") {
		t.Errorf("the spoiled policy was not noticed: %s", log)
	}
}

// TestPolicyOfALaterVersion: while the gateway of the version before runs on, a later pfard tells it a policy with a
// member that it does not know. That may be a restriction, so the policy before stays in force, and says so in the log.
// Calls are decided all the time, by what servers may reach now.
func TestPolicyOfALaterVersion(t *testing.T) {
	p := policies.Load(nil, "").Policy
	b := marshal(t, p)
	notes := gate.Declared{Server: "notes"}
	declared := marshal(t, notes)
	inside := marshal(t, []gate.Sandbox{{Server: "notes", Declared: declared}})
	it := enforce.Item{Server: "notes", Name: "find", Declared: declared, Owner: t}
	audience := func(f *follower, want gate.Confidentiality) func() bool {
		return func() bool { return f.point.Policy() != nil && f.point.Facts(it).Audience == want }
	}
	later := map[string][]byte{
		"a policy":  bytes.Replace(b, []byte(`{"digest"`), []byte(`{"later":[{"name":"phone"}],"digest"`), 1),
		"a profile": bytes.Replace(b, []byte(`"rows":`), []byte(`"later":true,"rows":`), 1),
	}
	for name, policy := range later {
		f := followPolicies(t)
		f.tell(control.Response{Policy: b, Sandboxes: inside}, audience(f, gate.Sensitive))
		f.tell(control.Response{Policy: policy, Sandboxes: []byte("[]")}, audience(f, gate.Public))
		if now := f.point.Policy(); now.Digest != p.Digest {
			t.Errorf("%s with a later member is in force: %s", name, now.Digest)
		}
		f.tell(control.Response{Policy: b, Sandboxes: inside}, audience(f, gate.Sensitive))
		f.tell(control.Response{Policy: b, Sandboxes: []byte(`{"later":[]}`)}, audience(f, gate.Public))
		if log := f.end(); !strings.Contains(log, "unknown field") || !strings.Contains(log, "later") {
			t.Errorf("%s: the log does not say what is not known: %s", name, log)
		}
	}
	f := followPolicies(t)
	f.feed <- control.Response{Policy: later["a policy"], Sandboxes: inside}
	f.feed <- control.Response{Policy: later["a policy"], Sandboxes: inside} // the first has been read
	if f.point.Policy() != nil {
		t.Error("a gateway that has none takes a policy that it does not understand")
	}
	f.end()
}

// follower is a gateway that follows a pfard that says what a test feeds it.
type follower struct {
	*gateway
	feed chan control.Response
	t    *testing.T
	end  func() (log string)
}

func followPolicies(t *testing.T) *follower {
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	feed := make(chan control.Response)
	answer := func(ctx context.Context, _ control.Peer, q control.Request, send func(control.Response) error) error {
		for {
			select {
			case r := <-feed:
				if err := send(r); err != nil || q.Verb != control.Policy {
					return err
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	served, followed := make(chan error, 1), make(chan struct{})
	go func() { served <- control.Serve(ctx, l, answer) }()
	var log bytes.Buffer
	g := undecided(t, slog.New(slog.NewTextHandler(&log, nil)))
	g.pfard = &control.Client{Path: socket}
	go func() {
		defer close(followed)
		g.followPolicy(ctx)
	}()
	return &follower{g, feed, t, func() string {
		cancel()
		<-followed
		if err := <-served; err != nil {
			t.Error(err)
		}
		return log.String()
	}}
}

// tell repeats itself until it is heard: a connection that has been given up may take it as well.
func (f *follower) tell(r control.Response, heard func() bool) {
	f.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !heard(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("not told: %s", f.end())
		}
		select {
		case f.feed <- r:
		default:
		}
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPolicyIsHandedDown: the next gateway begins with what the one before it was told, if it is a policy.
func TestPolicyIsHandedDown(t *testing.T) {
	p := policies.Load(nil, "").Policy
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		stored []byte
		taken  bool
	}{{b, true}, {b[:len(b)-1], false}, {bytes.Replace(b, []byte(`"deny"`), []byte(`"allow"`), 1), false}, {nil, false}, {make([]byte, gate.MaxPolicy+1), false}} {
		f, err := units.Sealed(units.FDPolicy, c.stored)
		if err != nil {
			t.Fatal(err)
		}
		g := undecided(t, slog.New(slog.DiscardHandler))
		g.kept.policy = handedDown{name: units.FDPolicy, most: gate.MaxPolicy}
		g.takePolicy([]*os.File{f})
		if got := g.point.Policy(); (got != nil) != c.taken || c.taken && got.Digest != p.Digest {
			t.Errorf("of %d bytes: %+v", len(c.stored), got)
		}
		if !g.kept.policy.there {
			t.Error("what is stored will not be removed from the store")
		}
	}
}
