package declaration

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/egress"
)

// Unallowed is the error of a host that pfar does not add to a declaration: only the owner's own hand may.
type Unallowed struct{ Why, Hint string }

func (u *Unallowed) Error() string { return u.Why }

// MayAllow returns an error if pfar may not add a host to allowed_domains: the owner has blocked it, it is a special
// address, or the list stands in a file that is not the owner's own declaration. folder is the folder of those.
func (s Server) MayAllow(e egress.Endpoint, folder string) error {
	for _, b := range s.Blocked {
		port := cmp.Or(e.Port, b.Port, 443)
		blocks := (egress.Policy{Endpoints: []egress.Endpoint{b}}).Decide(bare(e), port).Verdict == egress.Allow
		if b == e || !e.Wildcard && blocks {
			return &Unallowed{fmt.Sprintf("blocked_domains names %s", b), "remove it there first, in " + s.File}
		}
	}
	if e.Prefix.IsValid() {
		kind, ok := egress.Vet(e.Prefix.Addr().Unmap())
		if ok && !e.Prefix.IsSingleIP() {
			kind, ok = "more than one address", false
		}
		if !ok {
			const hint = "if you know what answers there, add it to allowed_domains in %s yourself"
			return &Unallowed{fmt.Sprintf("%s is a special address (%s)", e, kind), fmt.Sprintf(hint, s.File)}
		}
	}
	return s.mayExtend(folder)
}

// mayExtend refuses what a package has installed, and a list that a drop-in replaces: a change of the declaration would
// be lost, or change nothing.
func (s Server) mayExtend(folder string) error {
	giver, folder := s.Place("allowed_domains").Filename, filepath.Clean(folder)
	if filepath.Dir(s.File) == folder && giver == s.File {
		return nil
	}
	_, ext := block.SplitName(s.File)
	dropIn := filepath.Join(folder, filepath.Base(s.File)+".d", "90-hosts"+ext)
	if filepath.Dir(filepath.Dir(giver)) == folder {
		dropIn = giver
	}
	return &Unallowed{
		"pfar does not change " + giver, "write the whole list, allowed_domains = [...], in " + dropIn,
	}
}

// bare is an endpoint's host, or its address.
func bare(e egress.Endpoint) string {
	if e.Prefix.IsValid() {
		return e.Prefix.Addr().String()
	}
	return e.Host
}
