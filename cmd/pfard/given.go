package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/pfar/pfar/cmd/pfard/vault"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/units/durable"
	"github.com/pfar/pfar/units/plan"
)

// given says to which servers each secret of the vault is given, and on what terms. A new secret is
// given to the servers that name it when it is stored, or else to the first that names it later. Other servers and
// wider terms wait until the owner gives the secret: it is not enough that a declaration names it.
type given struct {
	path string

	mu     sync.Mutex
	of     map[string]map[string]generator.Terms // by key and server; replaced, never changed
	newest map[string]string                     // by server: digest of the plan that the owner last gave secrets to
	broken error                                 // why the file cannot be read: then nothing is given
	none   bool                                  // there was no file
}

// newGiven reads the file at path.
func newGiven(path string, log *slog.Logger) *given {
	g := &given{path: path, of: map[string]map[string]generator.Terms{}, newest: map[string]string{}}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &g.of)
	}
	if g.none = errors.Is(err, fs.ErrNotExist); err != nil && !g.none {
		const format = "the list of given secrets cannot be read: %w; " +
			"to begin anew, remove %s and start pfar again"
		g.broken = fmt.Errorf(format, err, path)
		log.Error("reading the list of given secrets", "error", err)
	}
	if g.of == nil {
		g.of = map[string]map[string]generator.Terms{}
	}
	return g
}

// withheld is a secret that a plan names and that is not given to its server, with the reason.
type withheld struct {
	key    string             // of the vault
	others []string           // it is given to these, and not to the server
	terms  generator.Terms    // that the server asks for
	excess []generator.Excess // how these terms exceed those on which it was given
}

// String tells the owner why the secret is withheld, without the remedy.
func (w withheld) String() string {
	if len(w.others) > 0 {
		return fmt.Sprintf("%q is given to %s, not to this server, which %s", w.key, listed(w.others), w.terms)
	}
	var what []string
	for _, e := range w.excess {
		what = append(what, e.What)
	}
	return fmt.Sprintf("%q was given to an earlier version of this server: %s", w.key, strings.Join(what, "; "))
}

// refusal returns why a server does not get its secrets, and the remedy; "": it gets them.
func (g *given) refusal(p plan.Plan) string {
	list, err := g.check(p)
	if err != nil {
		return err.Error()
	}
	return refused(p, list)
}

func refused(p plan.Plan, list []withheld) string {
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%s; to give it: pfar vault give %s", sentence(list), p.Name)
}

func sentence(list []withheld) string {
	var all []string
	for _, w := range list {
		all = append(all, w.String())
	}
	return strings.Join(all, "; ")
}

// check returns the secrets that a plan asks for and that are not given to its server, and why.
func (g *given) check(p plan.Plan) (list []withheld, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.judge(p)
}

// judge is check, called with g.mu held.
func (g *given) judge(p plan.Plan) (list []withheld, err error) {
	keys := g.concerned(p)
	if g.broken != nil && len(keys) > 0 {
		return nil, g.broken
	}
	for _, key := range keys {
		terms, known := g.of[key][p.Name]
		w := withheld{key: key, terms: g.terms(p, key)}
		if known {
			w.excess = w.terms.Beyond(terms)
		} else {
			w.others = slices.Sorted(maps.Keys(g.of[key]))
		}
		if len(w.others)+len(w.excess) > 0 {
			list = append(list, w)
		}
	}
	return list, nil
}

// concerned returns the secrets that a plan names. If the server has a persistent home, it adds those that it was
// given before: an earlier version may have stored them there.
func (g *given) concerned(p plan.Plan) []string {
	keys := keysOf(p)
	if !p.State {
		return keys
	}
	for _, key := range slices.Sorted(maps.Keys(g.of)) {
		if _, was := g.of[key][p.Name]; was && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// only reports whether a secret is given to one server alone.
func (g *given) only(key, server string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, has := g.of[key][server]
	return g.broken == nil && has && len(g.of[key]) == 1
}

// terms returns the terms on which a plan asks for a secret. If the plan does not name the secret, the delivery
// stays that it had before.
func (g *given) terms(p plan.Plan, key string) generator.Terms {
	t := generator.TermsOf(p, key)
	if old, ok := g.of[key][p.Name]; ok && !slices.Contains(keysOf(p), key) {
		t.Names, t.Wire, t.Pins = old.Names, old.Wire, old.Pins
	}
	return t
}

// claim is called before a server gets these secrets. It gives a secret that no server holds, and records terms that
// have become narrower. refusal says why the server gets none; "": it gets them. On an error it must not get them. A
// process of an earlier plan does not narrow what the owner has given for the next plan.
func (g *given) claim(p plan.Plan, keys []string) (refusal string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list, err := g.judge(p)
	if err != nil || len(list) > 0 {
		return refused(p, list), err
	}
	newest, is := g.newest[p.Name]
	outdated := is && newest != plan.Digest(p)
	keys = slices.DeleteFunc(keys, func(key string) bool {
		old, known := g.of[key][p.Name]
		return known && (outdated || reflect.DeepEqual(old, generator.TermsOf(p, key)))
	})
	if len(keys) == 0 {
		return "", nil
	}
	return "", g.put(p, keys...)
}

// give gives secrets to a server on the terms of its plan.
func (g *given) give(p plan.Plan, keys ...string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.put(p, keys...); err != nil {
		return err
	}
	g.newest[p.Name] = plan.Digest(p)
	return nil
}

// declared takes the plans of the present declarations. If a declaration has changed since the owner last gave it
// secrets, its server may narrow the terms again.
func (g *given) declared(plans map[string]plan.Plan) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.newest, func(name, digest string) bool {
		p, ok := plans[name]
		return !ok || plan.Digest(p) != digest
	})
}

func (g *given) put(p plan.Plan, keys ...string) error {
	return g.change(func(of map[string]map[string]generator.Terms) {
		for _, key := range keys {
			servers := maps.Clone(of[key])
			if servers == nil {
				servers = map[string]generator.Terms{}
			}
			servers[p.Name] = g.terms(p, key)
			of[key] = servers
		}
	})
}

// begin gives each stored secret to all servers that name it. It does so once, for a vault that is older than the
// file.
func (g *given) begin(plans map[string]plan.Plan, list func() ([]vault.Entry, error)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.none {
		return nil
	}
	stored, err := list()
	if err != nil {
		return err
	}
	err = g.change(func(of map[string]map[string]generator.Terms) {
		for _, e := range stored {
			servers := map[string]generator.Terms{}
			for name, p := range plans {
				if slices.Contains(keysOf(p), e.Key) {
					servers[name] = generator.TermsOf(p, e.Key)
				}
			}
			if len(servers) > 0 {
				of[e.Key] = servers
			}
		}
	})
	g.none = err != nil
	return err
}

// anew gives a secret to these servers alone.
func (g *given) anew(key string, plans []plan.Plan) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(plans) == 0 && g.broken == nil && len(g.of[key]) == 0 {
		return nil
	}
	return g.change(func(of map[string]map[string]generator.Terms) {
		delete(of, key)
		for _, p := range plans {
			if of[key] == nil {
				of[key] = map[string]generator.Terms{}
			}
			of[key][p.Name] = generator.TermsOf(p, key)
		}
	})
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
		return fmt.Errorf("writing the list of given secrets: %w", err)
	}
	g.of = next
	return nil
}

// keysOf returns the vault keys that a plan names, each once.
func keysOf(p plan.Plan) (keys []string) {
	for _, c := range p.Credentials {
		if c.Key != "" && !slices.Contains(keys, c.Key) {
			keys = append(keys, c.Key)
		}
	}
	return keys
}
