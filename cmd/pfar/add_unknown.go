package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/setup"
)

// exact asks pfard for the newest version of a package that was named without one. The registry's answer is untrusted
// text, which pfard reads in a process of its own.
func (a *adding) exact(ctx context.Context) error {
	named := a.service.Program.Package
	if p, err := source.Parse(named); err != nil || p.Version != "" {
		return nil
	}
	exact, err := a.control().Newest(ctx, named)
	if err != nil {
		return noVersion(named, err)
	}
	a.service.Program.Package, a.service.Title, a.choices.Origin = exact, exact, "From pfar add: "+exact
	return nil
}

// unknown sets up a server that the catalogue does not have: it stores the secrets, installs the package, declares the
// server without hosts of its own, and runs it in learning mode. Then the person chooses which of the requested hosts
// the server may reach. unknown skips what is already done, so the same command goes on where an earlier one was cut
// off.
func (a *adding) unknown(ctx context.Context) error {
	left, err := a.entrust(ctx)
	if err != nil {
		return err
	}
	if pkg := a.service.Program.Package; pkg != "" {
		if _, err := (packageVerb{a.pfar}).fetch(ctx, control.Wish{Package: pkg}); err != nil {
			code, _ := classify(err)
			return fail(code, "%w", err).withHint("%s", left)
		}
	}
	if a.service.Program.URL != "" { // a remote server has the one host
		return meeting{a}.meet(ctx, left)
	}
	if err := writeDeclaration(ctx, a, "", left); err != nil {
		return err
	}
	if err := a.learned(ctx); err != nil {
		return err
	}
	for _, k := range a.service.Secrets {
		if k.Deliver == broker.InEnvironment {
			const hint = `the server can read %s; to give it a placeholder, write deliver = "broker": pfar edit %s`
			a.hintAt(fmt.Sprintf(hint, k.Env, a.server()))
		}
	}
	return a.carry(ctx, &control.SetUp{Server: a.server(), Page: a.page})
}

// entrust asks for the secrets of an unknown server, and stores those that the vault does not have: the server needs
// them in learning mode. left says what stays if nothing more is done.
func (a *adding) entrust(ctx context.Context) (left string, err error) {
	const untouched = "nothing was changed"
	left = untouched
	if len(a.service.Secrets) == 0 {
		return left, nil
	}
	if err := units.NoCore(); err != nil { // values pass through this process
		return left, err
	}
	stored, err := vaultVerb{a.pfar}.secrets(ctx)
	if err != nil {
		return left, err
	}
	values := newSecretValues(a)
	for _, k := range a.service.Secrets {
		if slices.ContainsFunc(stored, func(s control.Secret) bool { return s.Key == k.Key }) {
			fmt.Fprintf(a.stderr, "the vault has %s already; pfar vault rotate %[1]s changes it\n", k.Key)
			continue
		}
		wanted := control.Wanted{Key: k.Key, Variable: k.Env, Prefixes: k.Prefixes, Where: k.Where, URL: k.URL}
		got := values.read(ctx, control.Flow{State: control.AwaitingCredential, Wants: &wanted})
		switch {
		case got.err != nil:
			return left, got.err
		case got.skip:
			return left, fail(exitFailed, "%s needs %s; give it with --secret-file %[2]s=FILE", a.server(), k.Key)
		case setup.Cancels(got.value):
			return left, fail(exitFailed, "cancelled").withHint("%s", left)
		}
		_, err := a.control().Do(ctx, control.Request{Verb: control.Store, Key: k.Key, Secret: got.value})
		if err != nil {
			code, _ := classify(err)
			switch {
			case cutOff(err):
				left = "nothing is declared; the vault may keep the secret, and the same command goes on"
			case left == untouched:
				left += "; the same command tries again"
			}
			return left, fail(code, "storing %s: %w", k.Key, err).withHint("%s", left)
		}
		left = "nothing is declared; the vault keeps the secret, and the same command goes on"
	}
	return left, nil
}

// learned runs the server in learning mode, and allows the hosts that the person agrees to. With --yes it allows none,
// because nobody has looked at them.
func (a *adding) learned(ctx context.Context) error {
	result, why, err := learnVerb{a.pfar}.lesson(ctx, a.server(), a.learn)
	switch {
	case ctx.Err() != nil:
		a.hintAt("it is declared; go on with: pfar learn " + a.server() + " --write")
		return context.Cause(ctx)
	case err != nil:
		why = err
	}
	if why != nil { // the set-up says more about it
		a.tellFault(why)
	}
	hosts := result.Entries()
	switch {
	case len(hosts) == 0:
		return nil
	case a.yes:
		fmt.Fprintf(
			a.stderr,
			"%s asked for %s\n",
			escape(a.server(), oneLine),
			escape(strings.Join(hosts, ", "), oneLine),
		)
		a.hintAt("to allow some of them: pfar allow " + a.server() + " HOST...")
		return nil
	}
	if a.json() {
		return nil
	}
	fmt.Fprintln(a.stderr)
	e, unused, err := (allowVerb{a.pfar}).extend(ctx, a.server(), hosts, false)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		a.tellFault(err)
		a.hintAt("to allow them later: pfar allow " + a.server() + " HOST...")
		return nil
	}
	if len(e.Added) > 0 {
		fmt.Fprintf(a.stderr, "wrote %s\n", escape(e.File, oneLine))
	}
	return a.given(ctx, unused)
}

// given asks whether the server gets its secrets although it may reach more hosts now. Until then it runs as before.
// unused is why the hosts are not in force yet.
func (a *adding) given(ctx context.Context, unused error) error {
	v := vaultVerb{a.pfar}
	gift, err := v.gift(ctx, control.Request{Verb: control.Give, Server: a.server()})
	switch {
	case err == nil && len(gift.Keys) > 0:
		fmt.Fprintln(a.stderr)
		err = v.vaultGive(ctx, a.server(), false)
	case err == nil && unused != nil:
		a.tellFault(fmt.Errorf("not in force yet: %w", unused))
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		a.tellFault(err)
		a.hintAt("to give them later: pfar vault give " + a.server())
	}
	return nil
}

// writeDeclaration writes the declaration in place of that with the digest old. left says what stays if it cannot.
func writeDeclaration(ctx context.Context, a *adding, old, left string) error {
	done, err := a.control().Declare(ctx, a.server(), control.Text{New: a.text, Old: old})
	if err != nil {
		return undeclared(err, left, "", rewrite{a.file, old, control.DigestOf(a.text)})
	}
	writeDiagnostics(a.stderr, done.Diagnostics)
	if !done.Done {
		return fail(exitFailed, "the declaration has mistakes").withHint("%s", left)
	}
	fmt.Fprintf(a.stderr, "wrote %s\n", escape(done.File, oneLine))
	return nil
}

// meeting is a set-up of a remote server. Its first connection shows whether the server speaks MCP, by which transport,
// and whether a person has to sign in.
type meeting struct{ *adding }

// meets reports whether the set-up of a server is a meeting, and pfar asks for no secret before it.
func meets(s catalog.Service) bool {
	return s.Program.URL != "" && !slices.ContainsFunc(s.Secrets, func(k catalog.Secret) bool { return !k.Login })
}

// meet declares a remote server, connects, and writes into the declaration what learns finds. Only the server's
// confined adapter connects, not pfar itself. left is the hint if nothing is declared.
func (a meeting) meet(ctx context.Context, left string) error {
	s, err := a.connect(ctx, "", left)
	if old := control.DigestOf(a.text); err == nil && a.learns(s) {
		if err = a.declare(); err == nil {
			s, err = a.connect(ctx, old, "it is declared, but without what its first connection has shown")
		}
	}
	switch {
	case err != nil:
		return err
	case s.NotMCP && !a.known:
		return a.notMCP(ctx, s)
	case mustLogin(s):
		return a.awaitLogin(s)
	case s.State != control.Running && meets(a.service):
		return fail(exitFailed, "%s is declared, and it is %s", a.server(), describe(s)).withHint("%s", remedy(s))
	}
	return a.carry(ctx, &control.SetUp{Server: a.server(), Service: a.serviceName(), Page: a.page})
}

// learns takes over what the first connection has shown, and reports whether the declaration changes. A server that
// wants a sign-in gets a place for its token. A server with a token keeps its declaration: with another transport it
// would need the token again, and the adapter finds the transport anyway.
func (a meeting) learns(s control.Server) bool {
	p, found := &a.service.Program, declaration.Transport(s.Transport)
	declared := cmp.Or(p.Transport, declaration.StreamHTTP)
	switch {
	case s.State == control.NeedsLogin && len(a.service.Secrets) == 0:
		a.service.Secrets = []catalog.Secret{a.service.LoginToken(a.server())}
		return true
	case s.State == control.Running && meets(a.service) && found != "" && found != declared:
		p.Transport = found
		return true
	}
	return false
}

// notMCP takes a declaration back, because no MCP server is at its address, and proposes a server that opens pages of
// that host. A token that the person has given is for an MCP server, so then it ends.
func (a meeting) notMCP(ctx context.Context, s control.Server) error {
	_, err := a.control().Undeclare(ctx, s.Name, control.Text{Old: control.DigestOf(a.text)})
	if err == nil {
		err = removeVerb{a.pfar}.awaitGone(ctx, s.Name)
	}
	none := fmt.Errorf("no MCP server is at %s: %s", a.service.Program.URL, s.Words)
	if err != nil {
		return fail(exitFailed, "%w; removing its declaration: %w", none, err).withHint("pfar remove %s", s.Name)
	}
	switch {
	case len(a.variables) > 0:
		const hint = "nothing is declared; the vault keeps the secret. For a web API with a token, add a program that " +
			"calls it: pfar add npm:PACKAGE --secret VARIABLE@%s"
		return fail(exitFailed, "%w", none).withHint(hint, a.service.Domains[0])
	case a.yes: // that was said of another program
		return fail(exitFailed, "%w", none).withHint("nothing is declared; for a server that opens pages of %s, run this without --yes",
			a.service.Domains[0])
	}
	a.tellFault(none)
	if !a.json() {
		fmt.Fprintln(a.stderr)
	}
	known := servicesVerb{a.pfar}.catalogue(ctx)
	p, err := ofPages(known, a.service.Domains[0])
	if err != nil {
		return err
	}
	p.choices.Server = a.server()
	pages, err := addVerb{a.pfar}.filled(known, p, a.additions)
	if err != nil {
		return err
	}
	return pages.add(ctx)
}

// connect writes the declaration in place of that with the digest old, and waits until the server has settled.
func (a meeting) connect(ctx context.Context, old, left string) (now control.Server, err error) {
	report, err := a.report(ctx)
	if err != nil {
		return now, err
	}
	before, _ := findServer(report, a.server()) // on an error there is none yet
	if err := writeDeclaration(ctx, a.adding, old, left); err != nil {
		return now, err
	}
	late := fmt.Errorf("%q did not settle within %s", a.server(), settleTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, late)
	defer cancel()
	err = a.control().Await(ctx, func(r control.Report) (bool, error) {
		s, err := findServer(r, a.server())
		if now = s; err != nil {
			return false, nil // pfard is about to read the file
		}
		return settledSince(before, s), nil
	})
	if err != nil {
		return now, fail(exitFailed, "%s is declared, but %w", a.server(), err).withHint("pfar status %s", a.server())
	}
	return now, nil
}

// mustLogin reports whether a server waits for its owner to sign in, and its declaration has a place for the token.
func mustLogin(s control.Server) bool {
	return s.State == control.NeedsLogin && s.Remedy.Act == units.SignIn
}

// awaitLogin ends a set-up that only a sign-in completes.
func (a meeting) awaitLogin(s control.Server) error {
	if a.json() {
		return a.printJSON(added{
			Server: s.Name, Service: a.serviceName(), File: s.File, State: control.AwaitingCredential,
			Detail: "it wants you to sign in: " + s.Remedy.Command,
		})
	}
	fmt.Fprintf(a.stdout, "\n%s: it wants you to sign in\nIt is declared in %s\n\n%s\n",
		a.paint(a.stdout, bold, escape(s.Name, oneLine)), escape(s.File, oneLine), a.paint(a.stdout, bold, "Next"))
	rows := [][]cell{{{"  " + s.Remedy.Command, ""}, {"sign in", ""}}}
	for _, k := range a.service.Secrets {
		if k.Login {
			rows = append(rows, []cell{{"  pfar vault set " + k.Key, ""}, {"store a token that you have", ""}})
		}
	}
	a.table(a.stdout, rows)
	return nil
}
