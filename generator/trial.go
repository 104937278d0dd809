package generator

import (
	"slices"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/handover"
)

// trial is the call that shows whether the server's secrets are right, nil if none is known. That of a service is for
// servers that certainly are of the service, as its facts are.
func trial(of declaration.Server, h Host, d gate.Declared) *handover.Trial {
	if len(of.Credentials) == 0 || h.Services == nil || d.Service == "" && len(d.Packages) == 0 {
		return nil
	}
	entry, ok := entryOf(h.Services(), d)
	if !ok || entry.Test == nil {
		return nil
	}
	t := &handover.Trial{Tool: entry.Test.Tool, Arguments: entry.Test.Arguments, Answer: entry.Test.Answer}
	value, secret := wrong(entry, of.Credentials)
	if value.Key != "" && h.SignIn != nil {
		if t.Remedy = h.SignIn(value.Key); t.Remedy.Act != "" {
			return t
		}
	}
	switch {
	case value.Key != "":
		t.Remedy = handover.StoreSecret(value.Key)
	case value.From != "":
		t.Remedy = handover.SetVariable(value.From)
	}
	t.Where = secret.Where
	if secret.URL != "" {
		t.Where += " (" + secret.URL + ")"
	}
	return t
}

// entryOf finds what is known of the server's service: of the one that its declaration names, or of its package.
func entryOf(known catalog.Set, d gate.Declared) (catalog.Service, bool) {
	if d.Service != "" {
		return known.Find(d.Service)
	}
	for _, s := range known.All() {
		if p, err := source.ParseExact(s.Program.Package); err == nil && slices.Contains(d.Packages, p.Key()) {
			return s, true
		}
	}
	return catalog.Service{}, false
}

// wrong is the credential that another value is stored for if the service refuses what the server has: the first that
// the entry knows, or the first there is.
func wrong(entry catalog.Service, of []declaration.Credential) (declaration.Credential, catalog.Secret) {
	for _, secret := range entry.Secrets {
		for _, k := range of {
			if k.Env == secret.Env {
				return k, secret
			}
		}
	}
	return of[0], catalog.Secret{}
}
