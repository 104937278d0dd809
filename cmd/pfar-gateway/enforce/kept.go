package enforce

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/jsonrpc"
)

// kept is what the record has of a text of JSON: its digest, and the text if the profile keeps it. One that two parsers
// may read differently has no canonical form, which nothing else has either: of it that is what was sent.
func (p *Point) kept(profile string, text []byte) *audit.Arguments {
	canonical, err := jsonrpc.Canonical(make([]byte, 0, len(text)), text)
	if err != nil {
		canonical = text
	}
	sum := sha256.Sum256(canonical)
	a := &audit.Arguments{Bytes: len(text), SHA256: hex.EncodeToString(sum[:])}
	if p.policy.Load().Keeps(profile) {
		a.Text = p.shown(canonical)
	}
	return a
}

// shown is a text of JSON as it may lie in a file: without secrets of the vault, or in words why it may not, for what
// may hold another one, or be encoded so that it is not found, is not kept at all.
func (p *Point) shown(text []byte) string {
	if p.Vault != nil {
		if !p.Vault.Known() {
			return notKnown
		}
		text, _ = p.Vault.JSON(text)
	}
	builtin := inspect.Builtin{Vault: p.Vault}
	report := builtin.Inspect(inspector.Outbound, text)
	switch {
	case slices.ContainsFunc(report.Findings, inspect.Finding.Secret):
		return likeSecret
	case slices.ContainsFunc(report.Findings, isLimit):
		return "[not kept: it could not be searched for secrets]"
	}
	return audit.Bounded(string(text))
}

// What stands in the record in place of a text.
const (
	notKnown   = "[not kept: it is not known yet which secrets there are]"
	likeSecret = "[not kept: something in it looks like a secret]"
)

// said is a text that a client has chosen words of, a resource's address or what is wrong with one, as it may lie in a
// file.
func (p *Point) said(text string) string {
	if p.Vault != nil && !p.Vault.Known() {
		return notKnown
	}
	builtin := inspect.Builtin{Vault: p.Vault}
	if slices.ContainsFunc(builtin.Inspect(inspector.Outbound, jsonrpc.Quote(text)).Findings, inspect.Finding.Secret) {
		return likeSecret
	}
	return text
}

// isLimit reports whether a finding is that not all of a text was looked at, or that not all that was found is told.
func isLimit(f inspect.Finding) bool { return f.Kind == "work" || f.Kind == "findings" }

// labelled is a session's label for the record, with what has made it so.
func (p *Point) labelled(who Identity, l gate.Label) *audit.Label {
	known := &audit.Label{Label: l}
	if l == gate.Start {
		return known
	}
	for _, s := range p.Sessions.Sources(who.Client, who.Handle) {
		if s.Label.Below(l) { // others have come since
			known.Sources = append(known.Sources, s.String())
		}
	}
	return known
}
