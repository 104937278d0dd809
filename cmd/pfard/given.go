package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/cmd/pfard/vault/durable"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
)

// given is to which servers each secret of the vault is given, and on what terms. Those that name it when it is stored are its
// owner's word, or the first that does so later. What others say, and what these say later, waits until the owner gives it to
// them (CR-12): whoever can write a declaration has not got the secret by that.
type given struct {
	path string

	mu     sync.Mutex
	of     map[string]map[string]generator.Terms // by key and server; replaced, never changed
	broken error                                 // why the file cannot be read: then nothing is given
}

// newGiven begins with what is in the file at path.
func newGiven(path string, log *slog.Logger) *given {
	g := &given{path: path, of: map[string]map[string]generator.Terms{}}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &g.of)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.broken = fmt.Errorf("to which servers secrets are given cannot be read: %w; remove %s to have it begin anew", err, path)
		log.Error("reading to which servers secrets are given", "error", err)
	}
	if g.of == nil {
		g.of = map[string]map[string]generator.Terms{}
	}
	return g
}

// withheld is why a server is not given one secret that its plan names.
type withheld struct {
	key    string             // of the vault
	others []string           // it is given to these and not to the server
	excess []generator.Excess // what the server's terms are beyond those that it is given on
}

// String is for the owner, without the remedy.
func (w withheld) String() string {
	if len(w.others) > 0 {
		return fmt.Sprintf("%q is given to %s and not to it", w.key, listed(w.others))
	}
	var what []string
	for _, e := range w.excess {
		what = append(what, e.What)
	}
	return fmt.Sprintf("%q was given to it when it was another: %s", w.key, strings.Join(what, "; "))
}

// refusal says in words why a server gets no secret, and the remedy; "": it gets them.
func (g *given) refusal(p generator.Plan) string {
	list, err := g.check(p)
	switch {
	case err != nil:
		return err.Error()
	case len(list) == 0:
		return ""
	}
	return fmt.Sprintf("%s; if that is as you want it: pfar vault give %s", sentence(list), p.Name)
}

func sentence(list []withheld) string {
	var all []string
	for _, w := range list {
		all = append(all, w.String())
	}
	return strings.Join(all, "; ")
}

// check returns which secrets a server by this plan is not given, and why.
func (g *given) check(p generator.Plan) (list []withheld, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken != nil {
		return nil, g.broken
	}
	for _, key := range keysOf(p) {
		terms, known := g.of[key][p.Name]
		w := withheld{key: key}
		if known {
			w.excess = p.Terms(key).Beyond(terms)
		} else {
			w.others = slices.Sorted(maps.Keys(g.of[key]))
		}
		if len(w.others)+len(w.excess) > 0 {
			list = append(list, w)
		}
	}
	return list, nil
}

// first gives the secrets that nobody has to the first server that is about to get them. With an error it must not.
func (g *given) first(p generator.Plan) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	free := slices.DeleteFunc(keysOf(p), func(key string) bool { return len(g.of[key]) > 0 })
	if len(free) == 0 {
		return nil
	}
	return g.put(p, free...)
}

// give gives secrets to a server on the terms of its plan.
func (g *given) give(p generator.Plan, keys ...string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.put(p, keys...)
}

func (g *given) put(p generator.Plan, keys ...string) error {
	return g.change(func(of map[string]map[string]generator.Terms) {
		for _, key := range keys {
			servers := maps.Clone(of[key])
			if servers == nil {
				servers = map[string]generator.Terms{}
			}
			servers[p.Name] = p.Terms(key)
			of[key] = servers
		}
	})
}

// forget begins anew with a secret that is no more.
func (g *given) forget(key string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.of[key]; !ok {
		return nil
	}
	return g.change(func(of map[string]map[string]generator.Terms) { delete(of, key) })
}

// change is called with g.mu held. What it changes is in force once it is on the disk.
func (g *given) change(by func(map[string]map[string]generator.Terms)) error {
	if g.broken != nil {
		return g.broken
	}
	next := maps.Clone(g.of)
	by(next)
	text, err := json.Marshal(next)
	if err == nil {
		err = durable.WriteFile(g.path, text)
	}
	if err != nil {
		return fmt.Errorf("remembering to which servers secrets are given: %w", err)
	}
	g.of = next
	return nil
}

// keysOf are those of the vault that a plan names, each once.
func keysOf(p generator.Plan) (keys []string) {
	for _, c := range p.Credentials {
		if c.Key != "" && !slices.Contains(keys, c.Key) {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// holdBack has a server that runs go on as it was while its declaration asks for secrets that it is not given any more. One that
// does not run waits for them instead.
func (d *daemon) holdBack(s declaration.Server, p generator.Plan) (diags hcl.Diagnostics) {
	have := d.servers[s.Name]
	if have == nil {
		return nil
	}
	have.held = nil
	if have.started == nil || have.want == nil || !p.Enabled {
		return nil
	}
	switch have.status.State {
	case control.Running, control.Starting, control.BackOff:
	default:
		return nil
	}
	list, _ := d.delivery.given.check(p)
	for _, w := range list {
		place := "auth"
		if len(w.excess) > 0 {
			place = w.excess[0].Key
		}
		at := s.Place(place)
		diags = diags.Append(&hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Secret not given", Subject: &at,
			Detail: fmt.Sprintf("%s. It runs on as it was. If that is as you want it, run \"pfar vault give %s\".", w, s.Name),
		})
	}
	if diags.HasErrors() {
		have.held = &p
	}
	return diags
}

// receivers has a secret that is new given to the servers that name it, and one that is gone to none.
func (d *daemon) receivers(c vault.Change) error {
	switch c.Outcome {
	case vault.New:
		for _, name := range d.usersOf(c.Key) {
			if err := d.delivery.given.give(*d.servers[name].want, c.Key); err != nil {
				return err
			}
		}
	case removed:
		return d.delivery.given.forget(c.Key)
	}
	return nil
}

// give tells what a server is not given, and gives it if that is what digest is of.
func (d *daemon) give(name, digest string) (*control.Gift, error) {
	s := d.servers[name]
	if s == nil || s.want == nil {
		return nil, fmt.Errorf("%w: %q", control.ErrNoServer, name)
	}
	p := *s.want
	if s.held != nil {
		p = *s.held
	}
	list, err := d.delivery.given.check(p)
	if err != nil {
		return nil, err
	}
	g := &control.Gift{Server: name, Keys: []string{}, Why: []string{}}
	sum := sha256.New()
	for _, w := range list {
		g.Keys, g.Why = append(g.Keys, w.key), append(g.Why, w.String())
		text, err := json.Marshal(p.Terms(w.key))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(sum, "%q %q\n", w.key, text)
	}
	if len(list) == 0 {
		return g, nil
	}
	g.Digest = hex.EncodeToString(sum.Sum(nil))
	switch digest {
	case "":
		return g, nil
	case g.Digest:
	default:
		return nil, fmt.Errorf("%w: the declaration of %q has changed meanwhile; look at it again", control.ErrInvalid, name)
	}
	if err := d.delivery.given.give(p, g.Keys...); err != nil {
		return nil, err
	}
	g.Given = true
	d.reload()
	d.wakeWaiting()
	return g, nil
}
