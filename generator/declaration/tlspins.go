package declaration

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/broker"
)

// maxTLSPins bounds what one host of tls_pins may have.
const maxTLSPins = 16

const (
	pinExample = `"sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="`
	tlsForm    = `tls_pins = { "api.notion.com" = [` + pinExample + `] }`
)

// tlsPins keeps the table until it is known which hosts the bridge opens.
func (d *decoder) tlsPins(f *field) {
	switch f.val.kind {
	case table:
		d.pinned = f
	case broken:
	default:
		d.hidden.all(f.val)
		d.report(problem(f.val.rng, "Wrong type", "tls_pins is a table from hosts to public keys, not %s. Write %s.", f.val.kind, tlsForm))
	}
}

// checkTLSPins reads tls_pins.
func (d *decoder) checkTLSPins() {
	if d.pinned == nil {
		return
	}
	fields := d.pinned.val.fields
	if len(fields) > maxDomains {
		d.hidden.add(d.pinned.val.rng)
		d.report(problem(fields[maxDomains].rng, "Too many names", "tls_pins has %d names, and allowed_domains room for %d. Write those of brokered credentials.", len(fields), maxDomains))
		return
	}
	opened, seen := d.openedHosts(), map[string]hcl.Range{}
	for _, f := range fields {
		host, ok := d.pinnedHost(f, opened)
		if host == "" {
			continue
		}
		pins := d.pinsOf(f)
		if !ok || len(pins) == 0 {
			continue
		}
		if first, twice := seen[host]; twice {
			d.report(problem(f.rng, "Duplicate name", "%s was given already in line %d. Write all its pins in one list.", quote(host), first.Start.Line))
			continue
		}
		seen[host] = f.rng
		if d.server.TLSPins == nil {
			d.server.TLSPins = map[string][]broker.Pin{}
		}
		d.server.TLSPins[host] = pins
	}
}

// pinnedHost reads a key of tls_pins and reports whether it is among the hosts to which the bridge opens connections:
// of others it sees no certificate.
func (d *decoder) pinnedHost(f *field, opened map[string]bool) (string, bool) {
	fault := func(summary, format string, args ...any) {
		d.hidden.unread(f) // a credential that strayed in
		d.report(problem(f.rng, summary, format, args...))
	}
	if secretWithin(f.key) || strings.Contains(f.key, "@") {
		d.hidden.add(f.rng)
		fault("Invalid name", `The key is not a host name. Write the host of a brokered credential, such as "api.notion.com".`)
		return "", false
	}
	e, err := parseEndpoint(f.key)
	switch {
	case f.val.kind == table && !strings.Contains(f.key, "."): // api.notion.com = [...] in TOML
		fault("Name without quotes", "%s is one part of a name and so begins a nested table. Write the whole name in quotes: %s.", quoteName(f.key), tlsForm)
		return "", false
	case err != nil:
		fault("Invalid name", "%s", domainFault(err))
		return "", false
	case e.Host != "" && (e.Port != 0 || e.AnyPort):
		fault("Port in a name", "%s has a port, and a pin is for all ports of its host. Write %s.", quote(f.key), quote(e.Host))
		return e.Host, false
	case e.Host != "" && !e.Wildcard && opened[e.Host]:
		return e.Host, true
	case d.hostsUnknown || !d.domainsKnown() || d.meant["auth"]:
		return e.Host, false
	}
	fault("Host not opened", "%s gets no brokered secret, so the bridge does not open its connections and sees no certificate of it. %s", quote(e.String()), pinnable(opened))
	return e.Host, false
}

// openedHosts are those of brokered credentials.
func (d *decoder) openedHosts() map[string]bool {
	hosts := map[string]bool{}
	for _, c := range d.server.Credentials {
		for _, h := range c.Hosts {
			hosts[h.Host] = true
		}
	}
	return hosts
}

func pinnable(opened map[string]bool) string {
	if len(opened) == 0 || len(opened) > 3 {
		return `Give it a credential with deliver = "broker", or remove it.`
	}
	var quoted []string
	for _, h := range slices.Sorted(maps.Keys(opened)) {
		quoted = append(quoted, quote(h))
	}
	return "Write " + oneOf(quoted) + `, give it a credential with deliver = "broker", or remove it.`
}

// pinsOf reads the pins of a host: a list, or a single one.
func (d *decoder) pinsOf(f *field) []broker.Pin {
	entries := []*node{f.val}
	if f.val.kind == list {
		entries = f.val.items
	}
	switch {
	case len(entries) == 0:
		d.report(problem(f.val.rng, "Empty value", "%s has no pin, so nothing could be its certificate. Write %s = [%s], or leave it out.", quoteName(f.key), quoteName(f.key), pinExample))
		return nil
	case len(entries) > maxTLSPins:
		d.report(problem(entries[maxTLSPins].rng, "Too many pins", "%s has %d pins, and room for %d. Pin the key of an authority instead of each host's own.", quoteName(f.key), len(entries), maxTLSPins))
		return nil
	}
	var pins []broker.Pin
	places := map[broker.Pin]hcl.Range{}
	for _, n := range entries {
		if n.kind == broken {
			continue
		}
		p, err := broker.ParsePin(n.text)
		if n.kind != text || err != nil {
			d.hidden.all(n)
			d.report(problem(n.rng, "Invalid pin", "The entry is no pin: \"sha256/\" and the SHA-256 of a public key in Base64, 44 characters. Write %s, for example.", pinExample))
			continue
		}
		if first, twice := places[p]; twice {
			d.report(caution(n.rng, "Duplicate pin", "The pin is in the list already, in line %d. Remove one of the two.", first.Start.Line))
			continue
		}
		places[p] = n.rng
		pins = append(pins, p)
	}
	return pins
}
