package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/pfar/pfar/policies/audit"
	"github.com/pfar/pfar/units/control"
)

// asked records what is asked of the vault before it is done: without a record it is not.
func (a *auditor) asked(p control.Peer, q control.Request) error {
	if q.Verb == control.Secrets || q.Verb == control.Give && q.Gift == "" {
		return nil
	}
	keys := q.Keys
	if q.Key != "" {
		keys = []string{q.Key}
	}
	err := a.append(audit.Record{Kind: audit.Vault, Method: string(q.Verb), Subject: strings.Join(keys, ", "),
		Server: q.Server, New: q.Gift, User: fmt.Sprintf("uid %d", p.UID), Outcome: "asked"})
	if err != nil {
		return fmt.Errorf("%w; without a record nothing is done with the vault", err)
	}
	return nil
}

// vaultRecords is a log whose entries about the vault are recorded as well, after what they are about. What may not be
// done without a record is recorded before, by who does it: requests (asked), and what processes are given (handing).
type vaultRecords struct {
	slog.Handler
	audit *auditor
}

func (h vaultRecords) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "vault" {
		h.audit.record(vaultRecord(r))
	}
	return h.Handler.Handle(ctx, r)
}

func (h vaultRecords) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h vaultRecords) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// vaultRecord is the record of an entry about the vault.
func vaultRecord(r slog.Record) audit.Record {
	v := audit.Record{Kind: audit.Vault, Time: r.Time}
	r.Attrs(func(a slog.Attr) bool {
		switch text := a.Value.String(); a.Key {
		case "operation":
			v.Method = text
		case "key":
			v.Subject = text
		case "uid":
			v.User = "uid " + text
		case "server":
			v.Server = text
		case "deliver":
			v.Channel = text
		case "to":
			v.To = text
		case "outcome":
			v.Outcome = text
		case "error", "why":
			v.Reason = text
		case "expiry":
			v.New = "expires " + text
		}
		return true
	})
	return v
}
