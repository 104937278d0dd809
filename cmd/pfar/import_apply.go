package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pfar/pfar/units/control"
)

// apply imports one server after the other. It returns the error that stopped the import. The error of a single server
// is in its Failed.
func (v importVerb) apply(ctx context.Context, out *imported) error {
	before, err := v.vaultKeys(ctx)
	if err != nil {
		return unchanged(err)
	}
	report, err := v.report(ctx)
	if err != nil {
		return unchanged(err)
	}
	book, err := v.newBook(out)
	if err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	out.Record, book.dir = book.path, report.Directory
	defer book.close()
	for _, s := range out.wanted() {
		err := v.install(ctx, s)
		var one *entry
		if err == nil {
			one, err = v.begin(book, s, before)
		}
		if err == nil {
			err = v.importOne(ctx, book, s, one)
		}
		if err != nil {
			s.Failed, s.half = err.Error(), errors.Is(err, errHalf)
			if ctx.Err() != nil || errors.Is(err, control.ErrNotRunning) || errors.Is(err, errUnrecorded) {
				return stopped(out, s, err)
			}
		}
	}
	return nil
}

// install installs the package of a server: a declaration is invalid without it. The package stays if the import is
// undone.
func (v importVerb) install(ctx context.Context, s *planned) error {
	if !s.Absent {
		return nil
	}
	if _, err := packageVerb(v).fetch(ctx, control.Wish{Package: s.Package}); err != nil {
		return fmt.Errorf("installing %s: %w", s.Package, err)
	}
	return nil
}

// stopped says with which server an import ended early.
func stopped(out *imported, at *planned, err error) error {
	for _, s := range out.wanted() {
		if s.File == "" && s.Failed == "" {
			s.Failed = "not begun"
		}
	}
	code, _ := classify(err)
	return fail(code, "importing %q: %w", at.Server, err).
		withHint("pfar import --undo takes back what was imported; or import the rest again")
}

// vaultKeys returns the secrets of the vault, by key.
func (v importVerb) vaultKeys(ctx context.Context) (map[string]control.Secret, error) {
	list, err := vaultVerb(v).secrets(ctx)
	all := map[string]control.Secret{}
	for _, s := range list {
		all[s.Key] = s
	}
	return all, err
}

// begin records the steps for a server before the first of them.
func (v importVerb) begin(book *book, s *planned, before map[string]control.Secret) (*entry, error) {
	one := &entry{Server: s.Server, Digest: control.DigestOf([]byte(s.Text)), Begun: v.now().UTC(), State: begun}
	for _, secret := range s.Secrets {
		if _, there := before[secret.Key]; !secret.Waits && !there {
			one.Secrets = append(one.Secrets, storedKey{Key: secret.Key})
		}
	}
	book.Entries = append(book.Entries, one)
	return one, book.write()
}

// importOne stores the secrets of a server, and then writes its declaration. If that fails, it removes the secrets
// again.
func (v importVerb) importOne(ctx context.Context, book *book, s *planned, one *entry) error {
	if err := v.storeAll(ctx, s, one); err != nil {
		return v.withdraw(ctx, book, one, err, false)
	}
	d, err := v.control().Declare(ctx, s.Server, control.Text{New: []byte(s.Text)})
	if err != nil {
		_, answered := errors.AsType[*control.Refused](err)
		return v.withdraw(ctx, book, one, err, !answered)
	}
	if !d.Done {
		s.judged(d)
		err = fmt.Errorf("pfard refuses the declaration: %s", s.Refused)
		s.Refused = ""
		return v.withdraw(ctx, book, one, err, false)
	}
	s.File, one.File, one.State = d.File, d.File, imports
	return book.write()
}

// storeAll stores the secrets of a server. It replaces none.
func (v importVerb) storeAll(ctx context.Context, s *planned, one *entry) error {
	for _, secret := range s.Secrets {
		if secret.Waits {
			continue
		}
		r, err := v.control().Do(ctx, control.Request{Verb: control.Store, Key: secret.Key, Secret: string(secret.Value)})
		if errors.Is(err, control.ErrExists) {
			one.forget(secret.Key)
			return fmt.Errorf("the vault has another value of %s; pfar vault rotate %s changes it, or rename the server",
				secret.Key, secret.Key)
		}
		if err != nil {
			return fmt.Errorf("storing %s: %w", secret.Key, err)
		}
		if !slices.ContainsFunc(r.Changes, func(c control.Change) bool { return c.Result == "new" }) {
			one.forget(secret.Key)
		}
	}
	return v.datesOf(ctx, one)
}

// datesOf notes when the secrets were stored. A secret that somebody has stored again since does not belong to this
// import.
func (v importVerb) datesOf(ctx context.Context, one *entry) error {
	if len(one.Secrets) == 0 {
		return nil
	}
	now, err := v.vaultKeys(ctx)
	for i := range one.Secrets {
		one.Secrets[i].Stored = now[one.Secrets[i].Key].Stored
	}
	return err
}

// withdraw undoes the steps of a server that could not be imported. written says that pfard may have written the
// declaration without an answer. A declaration that pfard refused stays: it may be somebody else's. An error says what
// is left.
func (v importVerb) withdraw(ctx context.Context, book *book, one *entry, why error, written bool) error {
	if ctx.Err() != nil {
		return why // the record has it: undo takes it back
	}
	var err error
	if written {
		_, err = v.undoOne(ctx, book, one)
	} else if _, err = v.removeSecrets(ctx, one); err == nil {
		one.State = undone
		err = book.write()
	}
	if err != nil {
		return fmt.Errorf("%w; %w: %w; %s", why, errHalf, err, book.rewrite(one, false).outcome())
	}
	return why
}

// errHalf is about a server that was imported in part.
var errHalf = errors.New("pfar could not undo what it had done")

// removeSecrets removes the secrets that the import stored, if nobody has changed them and nothing else uses them.
func (v importVerb) removeSecrets(ctx context.Context, one *entry) (kept []string, err error) {
	if len(one.Secrets) == 0 {
		return nil, nil
	}
	now, err := v.vaultKeys(ctx)
	if err != nil {
		return nil, err
	}
	for _, secret := range one.Secrets {
		s, there := now[secret.Key]
		used := slices.ContainsFunc(s.Servers, func(name string) bool { return name != one.Server })
		switch {
		case !there:
		case used || !one.made(secret, s.Stored):
			kept = append(kept, secret.Key)
		default:
			_, err := v.control().Do(ctx, control.Request{Verb: control.Remove, Key: secret.Key})
			if err != nil && !errors.Is(err, control.ErrNoKey) {
				return kept, err
			}
		}
	}
	return kept, nil
}
