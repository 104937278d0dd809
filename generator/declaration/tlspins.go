package declaration

import (
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
	"github.com/pfar/pfar/policies/broker"
)

// maxTLSPins bounds what one host of tls_pins may have.
const maxTLSPins = 16

// tlsPins reads the public keys that certificates of brokered hosts must have.
type tlsPins struct {
	*deliveries
	given *block.Field // read once it is known which hosts the bridge opens
}

func (d *tlsPins) read(f *block.Field) {
	switch f.Val.Kind {
	case block.Table:
		d.given = f
	case block.Broken:
	default:
		d.Hidden.All(f.Val)
		d.Problem(f.Val.At, "Wrong type", "tls_pins is a table from hosts to public keys, not %s. Write %s.", f.Val.Kind, tlsForm)
	}
}

// check reads tls_pins.
func (d *tlsPins) check() {
	if d.given == nil {
		return
	}
	fields := d.given.Val.Fields
	if len(fields) > maxDomains {
		d.Hidden.Add(d.given.Val.At)
		d.Problem(fields[maxDomains].At, "Too many names", "tls_pins has %d names, and allowed_domains room for %d. Write "+
			"those of brokered credentials.", len(fields), maxDomains)
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
			d.Problem(f.At, "Duplicate name", "%s was given already in line %d. Write all its pins in one list.",
				block.Quote(host), first.Start.Line)
			continue
		}
		seen[host] = f.At
		if d.server.TLSPins == nil {
			d.server.TLSPins = map[string][]broker.Pin{}
		}
		d.server.TLSPins[host] = pins
	}
}

// pinnedHost reads a key of tls_pins and reports whether it is among the hosts to which the bridge opens connections:
// of others it sees no certificate.
func (d *tlsPins) pinnedHost(f *block.Field, opened map[string]bool) (string, bool) {
	fault := func(summary, format string, args ...any) {
		d.Hidden.Unread(f) // a credential that strayed in
		d.Problem(f.At, summary, format, args...)
	}
	if block.SecretWithin(f.Key) || strings.Contains(f.Key, "@") {
		d.Hidden.Add(f.At)
		fault("Invalid name", `The key is not a host name. Write the host of a brokered credential, such as "api.notion.com".`)
		return "", false
	}
	e, err := parseEndpoint(f.Key)
	switch {
	case f.Val.Kind == block.Table && !strings.Contains(f.Key, "."): // api.notion.com = [...] in TOML
		fault("Name without quotes", "%s is one part of a name and so begins a nested table. Write the whole name in "+
			"quotes: %s.", block.QuoteName(f.Key), tlsForm)
		return "", false
	case err != nil:
		fault("Invalid name", "%s", domainFault(err))
		return "", false
	case e.Host != "" && (e.Port != 0 || e.AnyPort):
		fault("Port in a name", "%s has a port, and a pin is for all ports of its host. Write %s.", block.Quote(f.Key), block.Quote(e.Host))
		return e.Host, false
	case e.Host != "" && !e.Wildcard && opened[e.Host]:
		return e.Host, true
	case !d.brokersKnown():
		return e.Host, false
	}
	fault("Host not opened", "%s gets no brokered secret, so the bridge does not open its connections and sees no "+
		"certificate of it. %s", block.Quote(e.String()), pinnable(opened))
	return e.Host, false
}

func pinnable(opened map[string]bool) string {
	if len(opened) == 0 || len(opened) > 3 {
		return `Give it a credential with deliver = "broker", or remove it.`
	}
	var quoted []string
	for _, h := range slices.Sorted(maps.Keys(opened)) {
		quoted = append(quoted, block.Quote(h))
	}
	return "Write " + block.OneOf(quoted) + `, give it a credential with deliver = "broker", or remove it.`
}

// pinsOf reads the pins of a host: a list, or a single one.
func (d *tlsPins) pinsOf(f *block.Field) []broker.Pin {
	entries := []*block.Node{f.Val}
	if f.Val.Kind == block.List {
		entries = f.Val.Items
	}
	switch {
	case len(entries) == 0:
		d.Problem(f.Val.At, "Empty value", "%s has no pin, so nothing could be its certificate. Write %s = [%s], or "+
			"leave it out.", block.QuoteName(f.Key), block.QuoteName(f.Key), pinExample)
		return nil
	case len(entries) > maxTLSPins:
		d.Problem(entries[maxTLSPins].At, "Too many pins", "%s has %d pins, and room for %d. Pin the key of an authority "+
			"instead of each host's own.", block.QuoteName(f.Key), len(entries), maxTLSPins)
		return nil
	}
	return block.Entries[broker.Pin]{
		Read: d.pin, Twice: "Duplicate pin",
		Again: "The pin is in the list already, in line %[2]d. Remove one of the two.",
	}.Of(d.Reader, entries)
}

func (d *tlsPins) pin(n *block.Node) (broker.Pin, bool) {
	p, err := broker.ParsePin(n.Text)
	if n.Kind == block.Text && err == nil {
		return p, true
	}
	if n.Kind != block.Broken {
		d.Hidden.All(n)
		d.Problem(n.At, "Invalid pin", "The entry is not a pin: \"sha256/\" and the SHA-256 of a public key in Base64, 44 "+
			"characters. Write %s, for example.", pinExample)
	}
	return p, false
}
