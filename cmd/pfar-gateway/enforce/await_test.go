package enforce_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/audit/trail"
	"github.com/pfar/pfar/policies/gate"
)

// TestWaitsAtTheBeginning: a gateway that was started again holds requests until it has been told what they need, but
// not for ever.
func TestWaitsAtTheBeginning(t *testing.T) {
	whole := enforcetest.New(t)
	late := func(log enforce.Trail) *enforce.Point {
		return &enforce.Point{Sessions: whole.Sessions, Approvals: whole.Approvals, Trail: log, Log: whole.Log, Patience: time.Minute}
	}
	enter := func(ctx context.Context, p *enforce.Point) error {
		_, err := p.Enter(ctx, enforce.Identity{Client: access.Operator, Handle: access.DefaultSession, Profile: "operator"},
			enforce.Item{Server: "s", Kind: gate.Tool, Name: "t", Pin: "pin", Fits: true}, enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")})
		return err
	}
	p := late(whole.Trail)
	done := make(chan error, 1)
	go func() { done <- enter(t.Context(), p) }()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	p.Learn(whole.Policy(), nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
	p = late(trail.New(trail.Options{Writer: "gateway"})) // which never has a file
	p.Learn(whole.Policy(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if no, ok := errors.AsType[*enforce.Refused](enter(ctx, p)); !ok || !strings.Contains(no.Error(), "pfar does nothing that it cannot record") {
		t.Errorf("%v", no)
	}
	p.Patience = 0
	if err := enter(t.Context(), p); err == nil {
		t.Error("it has passed without a record")
	}
}
