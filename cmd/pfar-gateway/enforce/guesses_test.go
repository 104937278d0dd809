package enforce_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/enforce/enforcetest"
	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
)

// hunter is a vault with one secret.
type hunter struct{}

func (hunter) Known() bool           { return true }
func (hunter) Told() <-chan struct{} { return nil }
func (hunter) Names(text []byte) []string {
	if strings.Contains(string(text), "hunter2") {
		return []string{"bank_pin"}
	}
	return nil
}
func (hunter) JSON(text []byte) ([]byte, []string) { return text, nil }

// opened keeps the records that are opened.
type opened struct {
	enforce.Trail
	all []audit.Record
}

func (o *opened) Open(r *audit.Record) error {
	err := o.Trail.Open(r)
	o.all = append(o.all, *r)
	return err
}

// TestGuesses has a client guess at the vault's values: it hears of no key, its session is frozen as by denials, and
// all its sessions together have a limit.
func TestGuesses(t *testing.T) {
	p := enforcetest.New(t, "laptop", "phone")
	p.Vault = hunter{}
	records := &opened{Trail: p.Trail}
	p.Trail = records
	it := tool(t, "notes", gate.None)
	try := func(who enforce.Identity, arguments string) (*enforce.Refused, error) {
		_, err := p.Enter(context.Background(), who, it, enforce.Request{Method: "tools/call", Arguments: []byte(arguments), Params: []byte(arguments)})
		no, _ := errors.AsType[*enforce.Refused](err)
		return no, err
	}
	const right, wrong = `{"a":"hunter2"}`, `{"a":"x"}`
	guessed := 0
	for i := 0; i < 16; i += 5 {
		who := laptop
		who.Handle = label.Handle()
		if err := p.Sessions.New(who.Client, who.Handle); err != nil {
			t.Fatal(err)
		}
		for range min(5, 16-i) {
			no, err := try(who, right)
			if no == nil || strings.Contains(no.Error(), "bank_pin") || strings.Contains(no.Error(), "secret") || !strings.Contains(no.Error(), "denied") || !strings.Contains(no.Error(), no.Call) {
				t.Fatalf("guess %d: %v", guessed, err)
			}
			if last := records.all[len(records.all)-1]; !strings.Contains(last.Decision.Reason, "bank_pin") {
				t.Errorf("the record says %q", last.Decision.Reason)
			}
			guessed++
		}
		if _, err := p.Sessions.Label(who.Client, who.Handle); errors.Is(err, label.ErrFrozen) != (guessed%5 == 0) {
			t.Errorf("after %d guesses: %v", guessed, err)
		}
	}
	var said []string
	for _, arguments := range []string{right, wrong} {
		no, err := try(laptop, arguments)
		if no == nil {
			t.Fatalf("a client that has guessed %d times may go on: %v", guessed, err)
		}
		said = append(said, no.Reason)
	}
	if len(slices.Compact(said)) != 1 {
		t.Errorf("it is told apart: %q", said)
	}
	if _, err := try(phone, wrong); err != nil {
		t.Errorf("another client: %v", err)
	}
	person := enforce.Identity{Client: "operator", Handle: label.Default, Profile: "operator", Person: true}
	if no, _ := try(person, right); no == nil || !strings.Contains(no.Reason, "bank_pin") {
		t.Errorf("a person hears %v", no)
	}
}

// TestFrozen: who calls in a frozen session is told that it is frozen, why, and what the operator can do about it.
func TestFrozen(t *testing.T) {
	p := enforcetest.New(t, "laptop")
	other := laptop
	other.Handle = label.Handle()
	if err := p.Sessions.New(other.Client, other.Handle); err != nil {
		t.Fatal(err)
	}
	for who, command := range map[enforce.Identity]string{laptop: "pfar sessions thaw laptop", other: "pfar sessions thaw laptop/" + other.Handle} {
		for range 5 {
			if _, err := p.Sessions.Answered(who.Client, who.Handle, false); err != nil {
				t.Fatal(err)
			}
		}
		_, err := p.Enter(t.Context(), who, tool(t, "notes", gate.None), enforce.Request{Method: "tools/call", Arguments: []byte("{}"), Params: []byte("{}")})
		no, _ := errors.AsType[*enforce.Refused](err)
		if no == nil || !strings.HasSuffix(no.Reason, command) || !strings.HasPrefix(no.Reason, "the session is frozen: 5 of its calls were denied in a row; ") {
			t.Errorf("got %v, want %s", err, command)
		}
	}
}

// TestToldWhoCanAllow: a client hears that the owner can allow what the owner's words deny, and by which record to find
// that, and hears it of nothing else.
func TestToldWhoCanAllow(t *testing.T) {
	p := enforcetest.New(t, "laptop")
	p.Vault = hunter{}
	clean := laptop
	clean.Profile = "clean-room"
	nobody := laptop
	nobody.Profile = "none"
	read := tool(t, "notes", gate.None)
	unpinned, unfit := read, read
	unpinned.Pin, unfit.Fits = "", false
	unknown := read
	unknown.Declared = nil // and so strangers may write there
	for name, c := range map[string]struct {
		who       enforce.Identity
		it        enforce.Item
		arguments string
		allows    bool
	}{
		"a profile":          {clean, unknown, "{}", true},
		"not accepted":       {laptop, unpinned, "{}", true},
		"unfit arguments":    {laptop, unfit, "{}", false},
		"an unknown profile": {nobody, read, "{}", false},
		"a secret":           {laptop, read, `{"a":"hunter2"}`, false},
	} {
		r := enforce.Request{Method: "tools/call", Arguments: []byte(c.arguments), Params: []byte(c.arguments)}
		_, err := p.Enter(t.Context(), c.who, c.it, r)
		no, ok := errors.AsType[*enforce.Refused](err)
		if !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		hint := "; the person who runs pfar can allow it: pfar explain " + no.Call
		if strings.Contains(no.Reason, hint) != c.allows {
			t.Errorf("%s: %s", name, no.Reason)
		}
	}
}
