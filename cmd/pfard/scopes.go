package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// comparison is what comes of comparing the scopes that a server requires with those that its token sets were granted.
type comparison struct {
	lacking []string     // required, and in no set
	sets    []string     // keys of its token sets
	silent  []string     // of these, those that do not say what they were granted
	renewal units.Remedy // that stores another one of the first of them
	absent  bool         // a secret is not there, or cannot be read, which is said elsewhere
}

// compare reads the token sets of a server that requires scopes. Of a plain token nobody knows what it was granted.
func (d delivery) compare(p plan.Plan) comparison { return d.comparing(p, p.Scopes) }

// comparing does it for some scopes.
func (d delivery) comparing(p plan.Plan, required []string) (c comparison) {
	if len(required) == 0 {
		return c
	}
	var granted [][]string
	for _, k := range p.Credentials {
		if k.Key == "" || slices.Contains(c.sets, k.Key) {
			continue
		}
		set, _, ok, err := d.vault.Tokens(k.Key)
		c.absent = c.absent || err != nil
		if !ok {
			continue
		}
		c.sets, granted = append(c.sets, k.Key), append(granted, set.Scopes)
		if len(set.Scopes) == 0 {
			c.silent = append(c.silent, k.Key)
		}
	}
	if len(c.sets) > 0 {
		c.renewal = d.signIns.renewal(c.sets[0])
	}
	c.lacking = oauth.Lacking(required, granted...)
	return c
}

// scoped is p with what the tokens of now were granted, and lack, for the calls of single tools.
func (d delivery) scoped(p plan.Plan) plan.Plan {
	p.Gateway.Tools = maps.Clone(p.Gateway.Tools)
	for name, t := range p.Gateway.Tools {
		c := d.comparing(p, t.Scopes)
		t.Lacks, t.Granted = "", slices.DeleteFunc(slices.Clone(t.Scopes), func(scope string) bool {
			return slices.Contains(c.lacking, scope)
		})
		if c.mismatch() != "" {
			t.Lacks = fmt.Sprintf("%s: its owner can %s", listed(c.lacking), c.again())
		}
		p.Gateway.Tools[name] = t
	}
	return p
}

// scopesOf are all that a server or a tool of it requires.
func scopesOf(p plan.Plan) []string {
	all := slices.Clone(p.Scopes)
	for _, name := range slices.Sorted(maps.Keys(p.Gateway.Tools)) {
		all = append(all, p.Gateway.Tools[name].Scopes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// mismatch says in words which scopes the server lacks for certain, and the remedy; "": none, or nobody knows. Only the
// declaration's own words are quoted.
func (c comparison) mismatch() string {
	if len(c.lacking) == 0 || c.absent || len(c.sets) == 0 || len(c.silent) > 0 {
		return ""
	}
	return fmt.Sprintf("%s not granted %s: %s, or correct scopes in the declaration",
		tokensOf(c.sets), listed(c.lacking), c.again())
}

// unknown says in words why it is not known whether the server lacks scopes, and the remedy; "": it is known.
func (c comparison) unknown() string {
	switch {
	case len(c.lacking) == 0 || c.absent:
		return ""
	case len(c.sets) == 0:
		return fmt.Sprintf("whether %s was granted is not known: no credential of it is an OAuth token set (pfar vault set "+
			"KEY --oauth)", listed(c.lacking))
	case len(c.silent) > 0:
		return fmt.Sprintf("whether %s was granted is not known: the OAuth token %q does not say its scopes; store it with "+
			"them with pfar vault set %s --oauth",
			listed(c.lacking), c.silent[0], c.silent[0])
	}
	return ""
}

// again says how another set is stored.
func (c comparison) again() string {
	if c.renewal.Act == units.SignIn {
		return "run " + c.renewal.Command + " --scope " + strings.Join(c.lacking, " --scope ")
	}
	return "obtain one that was and store it with " + c.renewal.Command
}

func tokensOf(keys []string) string {
	if len(keys) == 1 {
		return fmt.Sprintf("the OAuth token %q was", keys[0])
	}
	return "the OAuth tokens " + listed(keys) + " were"
}

func listed(words []string) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, fmt.Sprintf("%q", w))
	}
	return strings.Join(quoted, ", ")
}
