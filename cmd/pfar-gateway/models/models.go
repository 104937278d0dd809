// Package models asks the models that the owner has declared: a client's prompt in, a stranger's text out.
package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/native"
	"github.com/pfar/pfar/cmd/pfar-gateway/serve/clients"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/question"
)

// A client asks so many questions at once, and on average one in so long a time.
const (
	askedAtOnce = 30
	askedEvery  = 2 * time.Second
)

// maxAnswer bounds the answer of the process that asks a model, in bytes of JSON: inspector.MaxSaid may be escaped.
const maxAnswer = 8 << 20

// Models are all that are declared. The zero value has none.
type Models struct {
	Dir   string        // of the sockets of the processes that ask them, each called as its model is
	Vault enforce.Vault // finds secrets in what models say; nil: there are none

	mu    sync.Mutex
	all   []*model // by name
	rates map[string]*rate.Limiter
}

// model is one of them, as it was declared.
type model struct {
	gate.Model
	pin      string          // digest of its declaration
	declared json.RawMessage // what the gate goes by, a gate.Declared
	slots    chan struct{}   // that questions have on their way
}

// Learn takes those that are declared from now on.
func (m *Models) Learn(declared []gate.Model) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.all
	m.all = nil
	for _, d := range declared {
		same := func(o *model) bool { return reflect.DeepEqual(o.Model, d) }
		if i := slices.IndexFunc(before, same); i >= 0 {
			m.all = append(m.all, before[i])
			continue
		}
		if d.Chat == nil || d.Parallel < 1 { // it was declared, so this is none
			continue
		}
		one := &model{Model: d, slots: make(chan struct{}, d.Parallel)}
		whole, err := json.Marshal(d)
		if err == nil {
			one.declared, err = json.Marshal(gate.Declared{Server: gate.ModelServer, Words: []gate.Word{d.Word()}})
		}
		if err != nil {
			continue
		}
		sum := sha256.Sum256(whole)
		one.pin = hex.EncodeToString(sum[:])
		m.all = append(m.all, one)
	}
}

// For returns the model of a name that may be asked for that, or with "" the first. The error says what to write.
func (m *Models) For(use gate.Use, name string) (gate.Model, error) {
	one, err := m.find(use, name)
	if err != nil {
		return gate.Model{}, err
	}
	return one.Model, nil
}

func (m *Models) find(use gate.Use, name string) (*model, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var serve []string
	for _, one := range m.all {
		if one.Serves(use) {
			if name == "" || one.Name == name {
				return one, nil
			}
			serve = append(serve, one.Name)
		}
	}
	write := map[gate.Use]string{
		gate.ForPlan: `phases = ["plan"]`, gate.ForAnswer: `phases = ["answer"]`, gate.ForNode: "nodes = true",
	}[use]
	for _, one := range m.all {
		if one.Name == name {
			return nil, fmt.Errorf("the model %q may not be asked for this: its owner can write %s into %s in models.d", name,
				write, name+".hcl")
		}
	}
	switch {
	case len(serve) > 0:
		return nil, fmt.Errorf("there is no model %.50q: name %s", name, block.OneQuoted(serve))
	default:
		return nil, &None{use, write}
	}
}

// None is the error where no model may be asked for a use.
type None struct {
	Use   gate.Use
	Write string // what a file of models.d has to have
}

func (n *None) Error() string {
	return "no model may be asked for this: the owner can declare one with " + n.Write + " in models.d (pfar models)"
}

// Near returns the name of a model that nodes may ask for clients on the Unix socket alone: of this name, or with "" of
// any. "" if there is none. Whoever begins a run for a client that is elsewhere asks for it: a run does not know where
// its client is.
func (m *Models) Near(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.all {
		if one.Nodes && one.Local && (name == "" || name == one.Name) {
			return one.Name
		}
	}
	return ""
}

// Forbidden is the error where a client may not ask a model.
type Forbidden struct{ why string }

func (f *Forbidden) Error() string { return f.why }

// Model is the model of a name that steps of flows may ask. "" is the first one.
func (m *Models) Model(name string) (native.Model, error) {
	one, err := m.find(gate.ForNode, name)
	if err != nil {
		return nil, err
	}
	return &found{m, one}, nil
}

// found is a model that was looked up once: the one that is judged is the one that is asked.
type found struct {
	models *Models
	one    *model
}

// Item is the model as the gate judges a question to it.
func (f *found) Item() enforce.Item { return f.one.item() }

func (one *model) item() enforce.Item {
	return enforce.Item{
		Server: gate.ModelServer, Declared: one.declared, Kind: gate.Tool, Name: one.Name, Pin: one.pin, Fits: true,
	}
}

// Ask puts a prompt to a model for a step of a flow, after the gate has let the question pass. params may have
// temperature and max_tokens. The label is that of the answer alone: the session that gets it has one no lower.
func (f *found) Ask(ctx context.Context, who enforce.Identity, prompt string, params map[string]json.RawMessage) (
	text string, label gate.Label, err error) {
	label = gate.Label{Confidentiality: gate.Public, Integrity: gate.Raw}
	p := inspector.Prompt{Version: 1, Messages: []inspector.Message{{Role: inspector.User, Text: prompt}}}
	for key, to := range map[string]any{"temperature": &p.Temperature, "max_tokens": &p.Tokens} {
		if given := params[key]; given != nil && json.Unmarshal(given, to) != nil {
			err := fmt.Errorf("%s is not a number that a model takes", key)
			return "", label, failure.As(failure.Schema, gate.ModelServer, err)
		}
	}
	if err := f.models.may(f.one, who, p); err != nil {
		return "", label, err
	}
	text, err = f.models.put(ctx, f.one, p)
	return text, label, err
}

// may returns why a client may not ask that, or not now. It counts the question.
func (m *Models) may(one *model, who enforce.Identity, p inspector.Prompt) error {
	switch {
	case who.Client == "" || who.Person || who.Client == access.Operator:
		return &Forbidden{"the operator asks no model: name a declared client"}
	case one.Local && !near(who):
		return &Forbidden{fmt.Sprintf("the model %q may be asked on the Unix socket alone: local = false in its file "+
			"lets clients with a token ask it", one.Name)}
	}
	if err := p.Check(one.External); err != nil {
		return failure.As(failure.Schema, gate.ModelServer, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.rates[who.Client]
	if l == nil {
		if m.rates == nil {
			m.rates = make(map[string]*rate.Limiter) // there are no more than clients are declared
		}
		l = rate.NewLimiter(rate.Every(askedEvery), askedAtOnce)
		m.rates[who.Client] = l
	}
	if !l.Allow() {
		often := failure.As(failure.RateLimited, gate.ModelServer, failure.Fact("the client asks models too often"))
		often.After = int64(askedEvery / time.Second)
		return often
	}
	return nil
}

// near reports whether a client is on the Unix socket, or whoever began the run that is the client.
func near(who enforce.Identity) bool {
	proof := who.Proof
	if proof == clients.FlowProof {
		proof = who.Begun
	}
	return strings.HasPrefix(proof, "uid ")
}

// errOther is why a question is not put to a model that the gate has judged as it was declared before.
var errOther = failure.Fact("its declaration has changed: ask again")

// stands reports whether a model is declared as it was when it was found.
func (m *Models) stands(one *model) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.all, one)
}

// put has the process of a model ask it. The answer has no secrets of the vault in it.
func (m *Models) put(ctx context.Context, one *model, p inspector.Prompt) (string, error) {
	fails := func(class failure.Class, err error) (string, error) {
		return "", failure.As(class, gate.ModelServer, fmt.Errorf("asking the model %q: %w", one.Name, err))
	}
	late := fmt.Errorf("the model did not answer within %s", one.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, one.Timeout, late)
	defer cancel()
	select {
	case one.slots <- struct{}{}:
		defer func() { <-one.slots }()
	case <-ctx.Done():
		return fails(failure.Timeout, context.Cause(ctx))
	}
	asked, err := json.Marshal(p)
	if err != nil {
		return fails(failure.Schema, err)
	}
	if !m.stands(one) { // the gate, or a person, took its time
		return fails("", errOther)
	}
	b, err := question.Ask(ctx, filepath.Join(m.Dir, one.Name+".sock"), asked, maxAnswer)
	var said inspector.Said
	switch {
	case ctx.Err() != nil:
		return fails(failure.Timeout, context.Cause(ctx))
	case err != nil:
		return fails(failure.Died, errors.New("the model's process cannot be reached"))
	case json.Unmarshal(b, &said) != nil:
		return fails(failure.Died, errors.New("the model's process gave no answer"))
	case said.Error != "":
		e := failure.As("", gate.ModelServer, fmt.Errorf("asking the model %q: %s", one.Name, said.Error))
		e.Failure = failure.Read(said.Failure)
		return "", e
	case strings.TrimSpace(said.Text) == "" || len(said.Text) > inspector.MaxSaid:
		return fails(failure.Schema, errors.New("the model's answer is empty or too long"))
	}
	return m.clean(said.Text)
}

// clean takes secrets of the vault out of a text.
func (m *Models) clean(text string) (string, error) {
	if m.Vault == nil {
		return text, nil
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return "", err
	}
	quoted, _ = m.Vault.JSON(quoted)
	if err := json.Unmarshal(quoted, &text); err != nil {
		return "", failure.As(failure.Schema, gate.ModelServer, errors.New("what a model has said cannot be read"))
	}
	return text, nil
}
