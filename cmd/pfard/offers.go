package main

import (
	"cmp"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/units/attach"
)

// offersOf is the catalogue as a console shows it, without the services that pfar cannot set up.
func offersOf(set catalog.Set) (list []attach.Offer) {
	for _, s := range set.All() {
		s = s.AsAdded()
		if s.Program.Gone != "" {
			continue
		}
		runs := cmp.Or(s.Program.Package, s.Program.Command, "elsewhere, at "+s.Program.URL)
		o := attach.Offer{
			Name: s.Name, Title: s.Title, Summary: s.Summary, Runs: runs, Reaches: s.Domains, Page: notOnPage(s) == "",
		}
		for _, k := range s.Secrets {
			words := k.Env
			if k.Optional {
				words += " (optional)"
			}
			if k.Where != "" {
				words += ": " + k.Where
			}
			o.Secrets = append(o.Secrets, words)
		}
		list = append(list, o)
	}
	return list
}

// notOnPage says why a one-time page cannot set up a service; "": it can.
func notOnPage(s catalog.Service) string {
	s = s.AsAdded()
	for _, p := range s.Parameters {
		if !p.Optional {
			return "it needs more than secrets"
		}
	}
	for _, k := range s.Secrets {
		if k.Login {
			return "it needs a sign-in after it is declared"
		}
	}
	return strings.TrimSuffix(s.Program.Gone, ".")
}
