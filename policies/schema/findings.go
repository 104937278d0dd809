package schema

import (
	"cmp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// finding is one violation in the library's terms.
type finding struct {
	err     *jsonschema.ValidationError
	path    []string
	within  string // the name of the member whose name is at fault
	closest int    // of so many alternatives, of which none conforms
}

// collection is the violations of a value or of one alternative. It keeps the first few only: there may be 100,000.
type collection struct {
	first    []finding // in order
	total    int
	depth    int // of the part of the value that has alternatives
	distance int // from conforming
}

// Distances of one violation: a wrong type or constant means that another alternative was meant.
const (
	wrongDetail = 1
	wrongValue  = 100
	wrongType   = 1000
)

// collect adds the leaves of an error, and of alternatives those of the closest.
func (c *collection) collect(e *jsonschema.ValidationError) {
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		c.alternatives(e)
	case *kind.OneOf:
		if len(k.Subschemas) == 0 {
			c.alternatives(e)
			return
		}
		c.add(finding{err: e, path: e.InstanceLocation})
	case *kind.PropertyNames:
		var sub collection
		sub.all(e.Causes)
		for i := range sub.first {
			sub.first[i].path, sub.first[i].within = e.InstanceLocation, k.Property
		}
		c.merge(sub)
	case *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		c.all(e.Causes)
	default:
		c.add(finding{err: e, path: e.InstanceLocation})
	}
}

func (c *collection) all(list []*jsonschema.ValidationError) {
	for _, e := range list {
		c.collect(e)
	}
}

func (c *collection) add(f finding) {
	switch f.err.ErrorKind.(type) {
	case *kind.Type, alternativeTypes, *kind.FalseSchema:
		if len(f.path) == c.depth {
			c.distance += wrongType
			break
		}
		c.distance += wrongDetail
	case *kind.Const, *kind.Enum:
		c.distance += wrongValue
	default:
		c.distance += wrongDetail
	}
	c.insert(f)
}

// insert keeps f if it is among the first, and counts it if it is not one of those.
func (c *collection) insert(f finding) {
	at, twice := slices.BinarySearchFunc(c.first, f, compare)
	if twice {
		return
	}
	c.total++
	if at == maxTold {
		return
	}
	c.first = slices.Insert(c.first, at, f)
	c.first = c.first[:min(len(c.first), maxTold)]
}

// merge adds what was collected apart.
func (c *collection) merge(sub collection) {
	for _, f := range sub.first {
		c.insert(f)
	}
	c.total += sub.total - len(sub.first)
	if sub.depth != c.depth {
		sub.distance = min(sub.distance, wrongValue)
	}
	c.distance += sub.distance
}

// alternatives adds the violations of the closest alternative, or one that names all types if the value has none.
func (c *collection) alternatives(e *jsonschema.ValidationError) {
	var best collection
	var types []string
	got, onlyTypes := "", true
	for i, cause := range e.Causes {
		sub := collection{depth: len(e.InstanceLocation)}
		sub.collect(cause)
		if i == 0 || sub.distance < best.distance {
			best = sub
		}
		t := typesOf(sub.first[0])
		if onlyTypes = onlyTypes && t != nil && sub.total == 1 && len(sub.first[0].path) == sub.depth; onlyTypes {
			types, got = append(types, t.Want...), t.Got
		}
	}
	if onlyTypes {
		slices.Sort(types)
		sum := *e
		sum.ErrorKind = alternativeTypes{&kind.Type{Want: slices.Compact(types), Got: got}, e.ErrorKind.KeywordPath()}
		c.add(finding{err: &sum, path: e.InstanceLocation})
		return
	}
	for i := range best.first {
		best.first[i].closest = len(e.Causes)
	}
	c.merge(best)
}

// alternativeTypes is that a value has the type of no alternative.
type alternativeTypes struct {
	*kind.Type
	keyword []string
}

func (a alternativeTypes) KeywordPath() []string { return a.keyword }

func typesOf(f finding) *kind.Type {
	switch k := f.err.ErrorKind.(type) {
	case *kind.Type:
		return k
	case alternativeTypes:
		return k.Type
	}
	return nil
}

// compare orders findings as a reader would: what is before what is in it, item 2 before item 10. The library goes over
// members in any order.
func compare(a, b finding) int {
	byPath := slices.CompareFunc(a.path, b.path, compareTokens)
	if byPath != 0 {
		return byPath
	}
	return cmp.Or(cmp.Compare(a.rule(), b.rule()), cmp.Compare(a.within, b.within))
}

func compareTokens(a, b string) int {
	if isIndex(a) && isIndex(b) {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

func isIndex(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
