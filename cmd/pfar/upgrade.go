package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/source"
	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units/control"
)

const upgradeHelp = `Install another version of a server's package beside the present one, show what it changes,
ask, write it into the declaration, and wait until the server runs. Changes that break callers come first.
pfar holds tools whose definition has changed until you accept them (pfar pins). The new version gets
the secrets that the server has. If the declaration names that version already, pfar only waits for the
server. Without VERSION, pfar asks the registry for the newest one. Without NAME, pfar lists all servers
with a package, their versions and the newest ones.

To find the changes, pfard starts both versions in the server's sandbox and asks what they offer. They have no
network and no secrets, their home is in memory, and they can only read the directories that the server may write
to. If a version does not start like this, pfar says why, asks all the same, and prints the changes once the
server runs.

--back returns to the version that the server had before the last upgrade. --dry-run shows the changes and
leaves the declaration as it is; the new version stays installed.`

// upgradeVerb changes the version of a server's package.
type upgradeVerb struct{ *pfar }

func (c upgradeVerb) upgradeCommand() *cobra.Command {
	var back bool
	var o upgradeOptions
	cmd := c.outputFlag(&cobra.Command{
		Use: "upgrade [NAME [VERSION]]", Short: "Change the version of a server's package", Long: upgradeHelp,
		Example: example("pfar upgrade", "pfar upgrade notion", "pfar upgrade notion 1.9.1 --dry-run",
			"pfar upgrade notion --back"),
		Args: arguments("[NAME]", "[VERSION]"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.choose = c.newest
			switch {
			case len(args) == 0 && (back || o.yes || o.dry):
				return usage("name a server").withHint("pfar upgrade lists them")
			case len(args) == 0:
				return c.versions(cmd.Context())
			case back && len(args) == 2:
				return usage("name a version, or --back for the one before").withHint("pfar upgrade --help")
			case back:
				o.choose = c.earlier
			case len(args) == 2:
				o.choose = func(_ context.Context, d declaredPackage) (choice, error) {
					to, err := in(d.pkg, args[1])
					return choice{to: to}, err
				}
			}
			return c.upgrade(cmd.Context(), args[0], o)
		},
	})
	cmd.Flags().BoolVar(&back, "back", false, "return to the version before the last upgrade")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&o.dry, "dry-run", false, "install the version and show what it changes, but do not switch")
	return cmd
}

// upgradeOptions say which version is wanted, and how.
type upgradeOptions struct {
	choose   func(ctx context.Context, d declaredPackage) (choice, error)
	yes, dry bool
}

// choice is the version that a package is to have.
type choice struct {
	to    source.Package
	back  bool   // it is the one before
	words string // a hint, if there is nothing to change
}

// declaredPackage is a declaration with one package.
type declaredPackage struct {
	server  control.Server // as it was
	text    []byte
	pkg     source.Package
	written string           // the package as text has it, in quotes
	last    *control.Upgrade // nil: there was none
}

// with is the text with another version.
func (d declaredPackage) with(to source.Package) []byte {
	return []byte(strings.Replace(string(d.text), d.written, `"`+to.String()+`"`, 1))
}

// upgraded is the result of an upgrade.
type upgraded struct {
	Server string        `json:"server"`
	File   string        `json:"file"`
	From   string        `json:"from"`
	To     string        `json:"to"`
	State  control.State `json:"state"`
	Detail string        `json:"detail,omitempty"`
	DryRun bool          `json:"dry_run,omitempty"` // nothing was switched

	Secrets  []string       `json:"secrets,omitempty"`  // that the other version gets as well
	Changes  []drift.Change `json:"changes,omitempty"`  // in its definitions
	Unlisted string         `json:"unlisted,omitempty"` // why they were not known before it was switched

	offered []drift.Definition // before
}

// upgrade changes the version of a server's package.
func (c upgradeVerb) upgrade(ctx context.Context, name string, o upgradeOptions) error {
	d, err := c.read(ctx, name)
	if err != nil {
		return unchanged(err)
	}
	chosen, err := o.choose(ctx, d)
	if err != nil {
		return err
	}
	from, to := d.pkg, chosen.to
	out := upgraded{
		Server: name, File: d.server.File, From: from.String(), To: to.String(), State: d.server.State, DryRun: o.dry,
	}
	if chosen.words != "" {
		c.hintAt(chosen.words)
	}
	secrets := vaultVerb(c)
	if to == from && o.dry {
		return c.showPreview(out)
	}
	if to == from { // it may have been written by a command that was cut off
		d.server.Since = time.Time{}
		_, err := secrets.give(ctx, name, func(g control.Gift) error { return secrets.askToGive(ctx, g, o.yes) })
		if err != nil {
			return err
		}
		return c.await(ctx, d.server, out)
	}
	if !o.dry {
		if err := c.canAsk(o.yes, "pfar upgrade "+name+" --dry-run"); err != nil {
			return err
		}
	}
	if _, err := packageVerb(c).fetch(ctx, control.Wish{Package: to.String()}); err != nil {
		code, _ := classify(err)
		return fail(code, "%w", err).withHint("nothing was changed: %s goes on with %s", name, from)
	}
	if err := c.preview(ctx, d, to, &out); err != nil {
		return unchanged(err)
	}
	if out.Secrets, err = c.secretsOf(ctx, name); err != nil {
		return unchanged(err)
	}
	if o.dry {
		return c.showPreview(out)
	}
	show := func(w io.Writer) { c.showChange(w, out) }
	if err := c.ask(ctx, o.yes, fmt.Sprintf("Upgrade %q?", name), show); err != nil {
		return err
	}
	out.offered = trialVerb(c).offers(ctx, name)
	next := control.Text{New: d.with(to), Old: control.DigestOf(d.text), Back: chosen.back}
	written := rewrite{d.server.File, next.Old, control.DigestOf(next.New)}
	done, err := c.control().Declare(ctx, name, next)
	if err != nil {
		return undeclared(err, fmt.Sprintf("nothing was changed: %s goes on with %s", name, from), "", written)
	}
	if !done.Done {
		writeDiagnostics(c.stderr, done.Diagnostics)
		return fail(exitFailed, "the server cannot run %s", to).withHint("nothing was changed: it goes on with %s", from)
	}
	_, err = secrets.give(ctx, name, func(g control.Gift) error {
		if len(out.Secrets) > 0 { // the person has seen them: pfar withheld none before
			return nil
		}
		return secrets.askToGive(ctx, g, false)
	})
	if cutOff(err) {
		return undeclared(err, "", "", written)
	}
	if err != nil {
		return fmt.Errorf("the declaration names %s now, but its secrets are kept from it: %w", to, err)
	}
	return c.await(ctx, d.server, out)
}

// secretsOf returns the secrets that a server has now, and that another version is to have. It returns none if pfar
// withholds some from the server: then the owner has to decide about these.
func (c upgradeVerb) secretsOf(ctx context.Context, name string) (keys []string, err error) {
	kept, err := (vaultVerb(c)).gift(ctx, control.Request{Verb: control.Give, Server: name})
	if err != nil || len(kept.Keys) > 0 {
		return nil, err
	}
	r, err := c.control().Do(ctx, control.Request{Verb: control.Secrets})
	for _, s := range r.Secrets {
		if slices.Contains(s.Servers, name) {
			keys = append(keys, s.Key)
		}
	}
	return keys, err
}

// read reads the declaration of a server whose version may be changed.
func (c upgradeVerb) read(ctx context.Context, name string) (d declaredPackage, err error) {
	report, server, err := serverNamed(ctx, c.pfar, name)
	if err != nil {
		return d, err
	}
	d.server = server
	file := server.File
	if filepath.Dir(file) != report.Directory {
		return d, fail(exitFailed, "%s is not a file of yours", file).withHint("pfar edit %s makes it one", name)
	}
	if d.text, err = os.ReadFile(file); err != nil {
		return d, fmt.Errorf("reading the declaration: %w", err)
	}
	// A user who may not change it gets the error before pfar installs anything.
	asked := control.Text{New: d.text, Old: control.DigestOf(d.text), Dry: true}
	now, err := c.control().Declare(ctx, name, asked)
	if err != nil {
		return d, err
	}
	d.last = now.Upgraded
	if d.pkg, d.written, err = packageIn(d.text); err != nil {
		return d, fail(exitFailed, "%s: %w", file, err).withHint("pfar edit %s", name)
	}
	return d, nil
}

// undeclared returns the error of a declaration that was to be changed. left is the hint if pfard has refused it. If
// pfard ended, the hint says what it had done, and more behind that.
func undeclared(err error, left, more string, r rewrite) error {
	code, _ := classify(err)
	if _, refused := errors.AsType[*control.Refused](err); !refused {
		left = "pfar status says whether it was changed; the same command goes on from there" + more
	}
	if cutOff(err) {
		left = r.outcome() + "; the same command goes on from there" + more
	}
	return fail(code, "%w", err).withHint("%s", left)
}

// await waits until a server has settled with another version, and says how.
func (c upgradeVerb) await(ctx context.Context, before control.Server, out upgraded) error {
	late := fmt.Errorf("%q did not settle within %s", out.Server, settleTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, late)
	defer cancel()
	now, idle := before, before.State == control.Stopped || before.State == control.Sleeping
	err := c.control().Await(ctx, func(r control.Report) (_ bool, err error) {
		now, err = findServer(r, out.Server)
		return err == nil && (idle || settledSince(before, now)), err
	})
	if err != nil {
		hint := "pfar status " + out.Server
		if cutOff(err) {
			hint = escape(out.File, oneLine) + " was changed; the same command goes on from there"
		}
		return fail(exitFailed, "the declaration names %s now, but %w", out.To, err).withHint("%s", hint)
	}
	out.State, out.Detail = now.State, detail(now)
	told := out.Changes
	if offers := trialVerb(c).offers(ctx, out.Server); out.offered != nil && offers != nil && now.State.Up() {
		out.Changes = held(drift.Compare(out.offered, offers))
	}
	if c.json() {
		err = c.printJSON(out)
	} else {
		_, err = fmt.Fprintln(c.stdout, escape(fmt.Sprintf("%s: %s, %s", out.Server, out.To, describe(now)), oneLine))
		if !reflect.DeepEqual(told, out.Changes) { // what was shown before was without network and secrets
			trialVerb(c).printChanges(c.stdout, out.Changes)
		}
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
		return p, "", fmt.Errorf("the declaration names %d packages, and pfar upgrades only one", n)
	}
	return p, written, nil
}

// in returns a package in another version.
func in(from source.Package, version string) (to source.Package, err error) {
	from.Version = version
	if to, err = source.ParseExact(from.String()); err != nil {
		return to, usage("%w", err)
	}
	return to, nil
}

// newest returns a package in the version that the registry says is the newest.
func (c upgradeVerb) newest(ctx context.Context, d declaredPackage) (choice, error) {
	named := source.Package{Kind: d.pkg.Kind, Name: d.pkg.Name}.String()
	exact, err := c.control().Newest(ctx, named)
	if err != nil {
		return choice{}, noVersion(named, err)
	}
	to, err := source.ParseExact(exact)
	return choice{to: to}, err
}

// earlier returns a package in the version that the server had before its last upgrade.
func (c upgradeVerb) earlier(_ context.Context, d declaredPackage) (choice, error) {
	name, now := d.server.Name, d.pkg.String()
	switch {
	case d.last == nil:
		return choice{}, fail(exitFailed, "pfar has not upgraded %q", name).withHint("name a version: %s", c.installed(d))
	case now == d.last.From:
		words := fmt.Sprintf("%s is back already; pfar upgrade %s %s changes to %s again", name, name,
			versionOf(d.last.To), d.last.To)
		return choice{to: d.pkg, words: words}, nil
	case now != d.last.To:
		return choice{}, fail(exitFailed, "%q has been changed since pfar upgraded it from %s to %s", name, d.last.From,
			d.last.To).withHint("name a version: %s", c.installed(d))
	}
	to, err := source.ParseExact(d.last.From)
	return choice{to: to, back: true}, err
}

// versionOf is the version in the name of a package.
func versionOf(pkg string) string {
	p, _ := source.ParseExact(pkg)
	return p.Version
}

// installed returns the command that changes the version, and the other versions that are installed.
func (c upgradeVerb) installed(d declaredPackage) string {
	records, _ := filepath.Glob(filepath.Join(c.dirs.Packages(), string(d.pkg.Kind), d.pkg.Name, "*", "record.json"))
	words := []string{"pfar upgrade " + d.server.Name + " VERSION"}
	for _, at := range records {
		if v := filepath.Base(filepath.Dir(at)); v != d.pkg.Version {
			words = append(words, v+" is installed")
		}
	}
	return strings.Join(words, "; ")
}
