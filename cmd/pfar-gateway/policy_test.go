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

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/inspect"
	"github.com/pfar/pfar/cmd/pfar-gateway/notice"
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
		others:   others{new(inspect.Panel), notice.New(t.TempDir(), log, notice.Wall())},
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
	feed := make(chan []byte)
	socket := filepath.Join(t.TempDir(), "control.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- control.Serve(ctx, l, func(ctx context.Context, _ control.Peer, q control.Request, send func(control.Response) error) error {
			for {
				select {
				case b := <-feed:
					if err := send(control.Response{Policy: b}); err != nil || q.Verb != control.Policy {
						return err
					}
				case <-ctx.Done():
					return nil
				}
			}
		})
	}()
	var log bytes.Buffer
	g := undecided(t, slog.New(slog.NewTextHandler(&log, nil)))
	g.pfard = &control.Client{Path: socket}
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		g.followPolicy(ctx)
	}()
	// tell repeats itself until it is heard: a connection that has been given up may take it as well.
	tell := func(b []byte, digest string) {
		t.Helper()
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			if p := g.point.Policy(); p != nil && p.Digest == digest {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("not told: %s", log.String())
			}
			select {
			case feed <- b:
			default:
			}
		}
	}
	marshal := func(p *gate.Policy) []byte {
		t.Helper()
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if g.point.Policy() != nil {
		t.Error("a policy that nobody told")
	}
	b := marshal(first)
	tell(b, first.Digest)
	feed <- bytes.Replace(b, []byte(`"deny"`), []byte(`"allow"`), 1)
	tell(marshal(&second), second.Digest)
	cancel()
	<-followed
	if err := <-served; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "its digest is") {
		t.Errorf("the spoiled policy was not noticed: %s", log.String())
	}
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
