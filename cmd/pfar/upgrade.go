package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units/control"
)

const upgradeHelp = `Install another version of a server's package beside the present one, ask, write it into the
declaration, and wait until the server runs. Then print the changes, first those that break callers. pfar
holds back tools whose definition has changed, until you accept them (pfar pins). If the declaration names
that version already, pfar only waits for the server. Without VERSION, pfar asks the registry for the newest
one.

--back writes the other installed version into the declaration, and downloads nothing. If several others
are installed, name one as VERSION.`

// upgradeVerb changes the version of a server's package.
type upgradeVerb struct{ *pfar }

func (c upgradeVerb) upgradeCommand() *cobra.Command {
	var back, yes bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "upgrade NAME [VERSION]", Short: "Change the version of a server's package", Long: upgradeHelp,
		Example: example("pfar upgrade notion", "pfar upgrade notion 1.9.1", "pfar upgrade notion --back"),
		Args:    arguments("NAME", "[VERSION]"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			to := c.newest
			switch {
			case back && len(args) == 2:
				return usage("name a version, or --back for the one before").withHint("pfar upgrade --help")
			case back:
				to = c.other
			case len(args) == 2:
				to = func(_ context.Context, from source.Package) (source.Package, error) { return in(from, args[1]) }
			}
			return c.upgrade(cmd.Context(), args[0], to, yes)
		},
	})
	cmd.Flags().BoolVar(&back, "back", false, "go back to the other version that is installed")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// upgraded is what has become of a server.
type upgraded struct {
	Server string        `json:"server"`
	File   string        `json:"file"`
	From   string        `json:"from"`
	To     string        `json:"to"`
	State  control.State `json:"state"`
	Detail string        `json:"detail,omitempty"`

	Changes []drift.Change `json:"changes,omitempty"` // in what it offers

	offered []drift.Definition // before
}

// choice is the version that a package is to have.
type choice func(ctx context.Context, from source.Package) (to source.Package, err error)

// upgrade changes the version of a server's package.
func (c upgradeVerb) upgrade(ctx context.Context, name string, choose choice, yes bool) error {
	report, err := c.report(ctx)
	if err != nil {
		return err
	}
	before, err := findServer(report, name)
	if err != nil {
		return err
	}
	if filepath.Dir(before.File) != report.Directory {
		return fail(exitFailed, "%s is not a file of yours", before.File).withHint("pfar edit %s makes it one", name)
	}
	text, err := os.ReadFile(before.File)
	if err != nil {
		return fmt.Errorf("reading the declaration: %w", err)
	}
	// Whoever may not change it learns so before anything is installed.
	asked := control.Text{New: text, Old: control.DigestOf(text), Dry: true}
	if _, err := c.control().Declare(ctx, name, asked); err != nil {
		return err
	}
	from, written, err := packageIn(text)
	if err != nil {
		return fail(exitFailed, "%s: %w", before.File, err).withHint("pfar edit %s", name)
	}
	to, err := choose(ctx, from)
	if err != nil {
		return err
	}
	if to == from { // it may have been written by a command that was cut off
		before.Since = time.Time{}
		return c.await(ctx, before, upgraded{Server: name, File: before.File, From: from.String(), To: to.String()})
	}
	if err := c.canAsk(yes, "pfar explain "+name); err != nil {
		return err
	}
	if _, err := c.control().Install(ctx, control.Wish{Package: to.String()}, nil); err != nil {
		code, _ := classify(err)
		return fail(code, "%w", err).withHint("nothing was changed: %s goes on with %s", name, from)
	}
	show := func(w io.Writer) {
		c.table(w, [][]cell{
			{{"package", bold}, {from.String(), ""}, {"becomes " + to.String(), ""}},
			{{"declaration", bold}, {before.File, ""}, {"is written", ""}},
			{{"changed tools", bold}, {"", ""}, {"are held back until you accept them (pfar pins " + name + ")", ""}},
		})
	}
	if err := c.ask(ctx, yes, fmt.Sprintf("Upgrade %q?", name), show); err != nil {
		return err
	}
	offered := trialVerb(c).offers(ctx, name)
	next := strings.Replace(string(text), written, `"`+to.String()+`"`, 1)
	done, err := c.control().Declare(ctx, name, control.Text{New: []byte(next), Old: control.DigestOf(text)})
	if err != nil {
		return undeclared(err, fmt.Sprintf("nothing was changed: %s goes on with %s", name, from))
	}
	if !done.Done {
		writeDiagnostics(c.stderr, done.Diagnostics)
		return fail(exitFailed, "the server cannot run %s", to).withHint("nothing was changed: it goes on with %s", from)
	}
	return c.await(ctx, before, upgraded{
		Server: name, File: done.File, From: from.String(), To: to.String(), offered: offered,
	})
}

// undeclared is an error of a declaration that was to be written. left says what is so if pfard has refused it: one
// that has gone may have written it.
func undeclared(err error, left string) error {
	code, _ := classify(err)
	if _, refused := errors.AsType[*control.Refused](err); !refused {
		left = "pfar status says whether it was written; the same command goes on from there"
	}
	return fail(code, "%w", err).withHint("%s", left)
}

// await waits until a server has settled with another version, and says how.
func (c upgradeVerb) await(ctx context.Context, before control.Server, out upgraded) error {
	late := fmt.Errorf("%q did not settle within %s", out.Server, settleTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, late)
	defer cancel()
	now, settled := before, errors.New("settled")
	err := c.control().Watch(ctx, func(r control.Report) (err error) {
		if now, err = findServer(r, out.Server); err != nil {
			return err
		}
		idle := before.State == control.Stopped || before.State == control.Sleeping
		if idle || settledSince(before, now) {
			return settled
		}
		return nil
	})
	if !errors.Is(err, settled) {
		return fail(exitFailed, "the declaration names %s now, but %w", out.To, err).withHint("pfar status %s", out.Server)
	}
	out.State, out.Detail = now.State, detail(now)
	if offers := trialVerb(c).offers(ctx, out.Server); out.offered != nil && offers != nil && now.State.Up() {
		out.Changes = drift.Compare(out.offered, offers)
	}
	if c.json() {
		err = c.printJSON(out)
	} else {
		_, err = fmt.Fprintln(c.stdout, escape(fmt.Sprintf("%s: %s, %s", out.Server, out.To, describe(now)), oneLine))
		trialVerb(c).printChanges(out.Changes)
	}
	if err == nil && (now.State == control.Failed || now.State.TriedAgain()) {
		return fail(exitFailed, "%s does not run with %s", out.Server, out.To).withHint("pfar upgrade %s --back", out.Server)
	}
	return err
}

var quotedPackage = regexp.MustCompile(`"((?:npm|pypi):[^"\s]+)"`)

// packageIn finds the one package that a declaration names, and how it is written there.
func packageIn(text []byte) (p source.Package, written string, err error) {
	n := 0
	for _, m := range quotedPackage.FindAllSubmatch(text, -1) {
		if found, err := source.ParseExact(string(m[1])); err == nil {
			p, written, n = found, string(m[0]), n+1
		}
	}
	if n != 1 {
		return p, "", fmt.Errorf("it names %d packages, and only one could be upgraded", n)
	}
	return p, written, nil
}

// in is a package in another version.
func in(from source.Package, version string) (to source.Package, err error) {
	from.Version = version
	if to, err = source.ParseExact(from.String()); err != nil {
		return to, usage("%w", err)
	}
	return to, nil
}

// newest is a package in the version that the registry says is the newest.
func (c upgradeVerb) newest(ctx context.Context, from source.Package) (to source.Package, err error) {
	named := source.Package{Kind: from.Kind, Name: from.Name}.String()
	exact, err := c.control().Newest(ctx, named)
	if err != nil {
		code, _ := classify(err)
		return to, fail(code, "%w", err).withHint("or name a version of %s", named)
	}
	return source.ParseExact(exact)
}

// other is a package in the only other version that is installed.
func (c upgradeVerb) other(_ context.Context, from source.Package) (to source.Package, err error) {
	records, _ := filepath.Glob(filepath.Join(c.dirs.Packages(), string(from.Kind), from.Name, "*", "record.json"))
	var others []string
	for _, at := range records {
		if v := filepath.Base(filepath.Dir(at)); v != from.Version {
			others = append(others, v)
		}
	}
	switch len(others) {
	case 0:
		return to, fail(exitFailed, "no other version of %s is installed", from.Key())
	case 1:
		return in(from, others[0])
	}
	return to, fail(exitFailed, "several other versions of %s are installed: %s", from.Key(), strings.Join(others, ", ")).
		withHint("pfar upgrade NAME %s", others[len(others)-1])
}
