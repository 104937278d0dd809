package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

const editHelp = `Open a copy of a server's declaration in the program that VISUAL or EDITOR names. pfar checks the
copy with all other declarations, and puts it in place of the file only if nothing is wrong. Otherwise it
prints the mistakes and offers the editor again. If a package installed the declaration, pfar saves your
version as a file of yours, which hides the installed one.`

// editVerb opens a declaration in the owner's editor. It counts once it has no mistakes.
type editVerb struct{ *pfar }

func (c editVerb) editCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use: "edit NAME", Short: "Edit a server's declaration, and check it before use", Long: editHelp,
		Example: example("pfar edit notion", "EDITOR=nano pfar edit notion"),
		Args:    arguments("NAME"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error { return c.edit(cmd.Context(), args[0]) },
	})
}

func (c editVerb) edit(ctx context.Context, name string) error {
	report, s, err := serverNamed(ctx, c.pfar, name)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(s.File)
	if err != nil {
		return fmt.Errorf("reading the declaration: %w", err)
	}
	text := control.Text{Old: control.DigestOf(before)}
	if filepath.Dir(s.File) != report.Directory {
		if filepath.Base(s.File) != name+".hcl" {
			return fail(exitFailed, "%s is not a file of yours", s.File).
				withHint("copy it into %s under the same name, and edit the copy", report.Directory)
		}
		text.Old = ""
	}
	// A user who may not change it gets the error before the work, not after it.
	asked := control.Text{New: before, Old: text.Old, Dry: true}
	if _, err := c.control().Declare(ctx, name, asked); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pfar-edit-") // 0700
	if err != nil {
		return fmt.Errorf("making a private directory: %w", err)
	}
	copied := filepath.Join(dir, filepath.Base(s.File))
	if err := os.WriteFile(copied, before, 0o600); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	r := rewrite{file: filepath.Join(report.Directory, filepath.Base(s.File)), was: text.Old}
	done, err := c.untilSound(ctx, name, copied, before, r)
	if err != nil {
		if now, unread := os.ReadFile(copied); unread == nil && bytes.Equal(now, before) {
			os.RemoveAll(dir)
			return err
		}
		if f, ok := errors.AsType[*failure](err); ok && f.hint != "" {
			return err
		}
		return fail(exitFailed, "%w", err).withHint("nothing was changed; your text is in %s", copied)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return c.printEdited(done)
}

// untilSound opens the editor again and again, until pfard accepts the text or the person gives up.
func (c editVerb) untilSound(ctx context.Context, name, copied string, before []byte, r rewrite) (
	*control.Declared, error,
) {
	text := control.Text{Old: r.was}
	for {
		if err := c.openEditor(ctx, copied); err != nil {
			return nil, err
		}
		now, err := os.ReadFile(copied)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(now, before) {
			return &control.Declared{Server: name, Diagnostics: []control.Diagnostic{}}, nil
		}
		text.New, r.wanted = now, control.DigestOf(now)
		done, err := c.control().Declare(ctx, name, text)
		if err != nil {
			return nil, undeclared(err, "nothing was changed; your text is in "+copied, "; your text is in "+copied, r)
		}
		if done.Done {
			return done, nil
		}
		show := func(w io.Writer) { writeDiagnostics(w, done.Diagnostics) }
		mistaken := fail(exitFailed, "the new text has mistakes")
		if !isTerminal(c.stdin) {
			show(c.stderr)
			return nil, mistaken
		}
		if err := c.ask(ctx, false, "The text has mistakes. Edit it again?", show); err != nil {
			if ctx.Err() != nil {
				return nil, err
			}
			return nil, mistaken
		}
	}
}

// openEditor runs the owner's editor, as other programs run it: the variable is a command line of the shell.
func (c editVerb) openEditor(ctx context.Context, path string) error {
	editor := c.getenv("VISUAL")
	if editor == "" {
		editor = c.getenv("EDITOR")
	}
	for _, name := range []string{"editor", "nano", "vim", "vi"} {
		if _, err := exec.LookPath(name); err == nil && editor == "" {
			editor = name
		}
	}
	if editor == "" {
		return fail(exitFailed, "no editor found").withHint("EDITOR=nano pfar edit ...")
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, "sh", path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stdout, c.stderr
	if in, ok := fileOf(c.stdin); ok {
		cmd.Stdin = in
	}
	if out, ok := fileOf(c.stdout); ok {
		cmd.Stdout = out // a terminal stays one
	}
	if c.json() {
		cmd.Stdout = cmd.Stderr
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the editor %q: %w", editor, err)
	}
	return nil
}

func (c editVerb) printEdited(d *control.Declared) error {
	if c.json() {
		return c.printJSON(d)
	}
	if !d.Done {
		fmt.Fprintf(c.stdout, "%s: the text is as it was; nothing was changed\n", escape(d.Server, oneLine))
		return nil
	}
	writeDiagnostics(c.stderr, d.Diagnostics)
	fmt.Fprintf(c.stdout, "%s: wrote %s\n", escape(d.Server, oneLine), escape(d.File, oneLine))
	if d.Hides != "" {
		fmt.Fprintf(c.stdout, "It hides %s.\n", escape(d.Hides, oneLine))
	}
	return nil
}

// writeDiagnostics prints pfard's diagnostics of a text.
func writeDiagnostics(w io.Writer, list []control.Diagnostic) {
	for _, g := range list {
		fmt.Fprint(w, escape(g.Text, keepLines))
	}
}
