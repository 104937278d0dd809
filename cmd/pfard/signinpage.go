package main

import (
	"slices"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/plan"
)

// signInPage reports whether a one-time page can have a person sign in to what a server waits for: its provider takes
// a code of a device, and the vault has no token, or one that only a person can replace. A page asks for no more scopes
// than the provider's file does.
func signInPage(s *server, t *tokens) bool {
	w := s.status.Wait
	if s.want == nil || !s.status.State.Waits() || !w.NeedsLogin() || w.Remedy.Scopes != "" {
		return false
	}
	return slices.ContainsFunc(s.want.Credentials, func(c plan.Credential) bool {
		p, known := t.signIns.now().OfKey(c.Key)
		named := w.Remedy.Of == p.Name || w.Remedy.Of == s.name && c.Key == bearerOf(*s.want)
		due := w.For == units.WaitCredentials || t.spent(c.Key)
		return known && named && due && slices.Contains(p.Ways(), oauth.ByDevice)
	})
}
