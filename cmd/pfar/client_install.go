package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/foreign"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/chores"
	"github.com/pfar/pfar/units/clientfile"
	"github.com/pfar/pfar/units/durable"
)

const clientInstallHelp = `Write pfar into the configuration file of a program. Then the program uses pfar's servers.
PROGRAM is claude, claude-desktop, codex, cursor, gemini, goose, opencode, vscode, windsurf or zed.

pfar declares a new client in clients.d, with the name of the program or of --client. The client may use all
servers, or those of --servers. Only the program's file has the token of the client. pfar first shows the text
that it adds, and asks. It puts a copy beside the file, and keeps everything else in the file as it is.

--undo restores the file, and removes the client. If you have edited the file since, it only removes the
entry of pfar.`

// installVerb writes pfar into the configuration of programs.
type installVerb struct{ clientVerb }

// installation is what pfar client install is told.
type installation struct {
	program, file, user string
	client              declaration.Client
	bounded             bool // the caller said which servers or which profile
	undo, dryRun, yes   bool
}

// withInstall is the verb of clients with this one.
func (v installVerb) withInstall() *cobra.Command {
	group := v.clientCommand()
	group.AddCommand(v.command())
	return group
}

func (v installVerb) command() *cobra.Command {
	var n installation
	cmd := v.outputFlag(&cobra.Command{
		Use: "install PROGRAM", Short: "Write pfar into a program's configuration file", Long: clientInstallHelp,
		Example: example("pfar client install cursor --dry-run", "pfar client install cursor",
			"sudo pfar client install cursor --user ann", "pfar client install cursor --undo"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return clientfile.Names(), noFiles
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n.program = args[0]
			n.bounded = cmd.Flags().Changed("servers") || cmd.Flags().Changed("profile")
			return v.run(cmd.Context(), n)
		},
	})
	f := cmd.Flags()
	f.StringVar(&n.file, "file", "", "write this `FILE` of the program, not the user's own")
	f.StringVar(&n.user, "user", "", "as root: write the file of this `USER`")
	f.StringVar(&n.client.Name, "client", "", "`NAME` of the client; by default the program's")
	f.StringSliceVar(&n.client.Servers, "servers", []string{access.Every}, "`NAMES` of the servers that it may use")
	f.StringVar(&n.client.Profile, "profile", "strict",
		"the gate's `PROFILE` for it; everyday asks less, for a desktop client")
	f.BoolVar(&n.undo, "undo", false, "restore the file, and remove the client")
	f.BoolVar(&n.dryRun, "dry-run", false, "show what would change, and change nothing")
	f.BoolVar(&n.yes, "yes", false, "do not ask")
	cmd.RegisterFlagCompletionFunc("file", filesToo)
	return cmd
}

func (v installVerb) run(ctx context.Context, n installation) error {
	p, known := clientfile.Find(n.program)
	if !known {
		return usage("unknown program %q: use one of %s", n.program, strings.Join(clientfile.Names(), ", "))
	}
	if n.client.Name == "" {
		n.client.Name = n.program
	}
	if fault := declaration.ClientNameFault(n.client.Name); fault != "" {
		return usage("the name %q %s", n.client.Name, fault)
	}
	if n.client.Name == access.Operator || n.client.Name == access.Default {
		return usage("the program needs a client of its own, not %q", n.client.Name)
	}
	if !n.dryRun {
		if err := v.canAsk(n.yes, "pfar client install "+n.program+" --dry-run"); err != nil {
			return err
		}
	}
	whose, err := v.owner(n.user)
	if err != nil {
		return err
	}
	file, err := openForeign(whose, chores.Programs[n.program], n.file)
	if err != nil {
		return err
	}
	defer file.close()
	p = formOf(p, file.src)
	if n.undo {
		return v.undo(ctx, n, p, file)
	}
	return v.install(ctx, n, p, file, whose)
}

// syntaxes are those of the programs' files.
var syntaxes = map[clientfile.Syntax]foreign.Syntax{
	clientfile.JSON: foreign.JSON, clientfile.TOML: foreign.TOML, clientfile.YAML: foreign.YAML,
}

// formOf is the program as it reads a file: opencode before its version 2 has servers directly below mcp.
func formOf(p clientfile.Program, src []byte) clientfile.Program {
	former, differs := p.Former()
	if !differs {
		return p
	}
	root, err := foreign.Read(syntaxes[p.Syntax], src)
	if err != nil {
		return p // the caller reads it too, and says why
	}
	if mcp := root.Member("mcp"); mcp != nil && slices.ContainsFunc(mcp.Members, func(m foreign.Member) bool {
		return m.Value.Member("command") != nil || m.Value.Member("url") != nil
	}) {
		return former
	}
	return p
}

// made is what an installation will have changed.
type made struct {
	Program string `json:"program"`
	File    string `json:"file"`
	Backup  string `json:"backup,omitempty"`
	Client  string `json:"client"`
	Added   string `json:"added"` // without the token
	DryRun  bool   `json:"dry_run,omitempty"`

	path        string // of the declaration
	src, before []byte
	text        []byte
}

func (v installVerb) install(
	ctx context.Context, n installation, p clientfile.Program, file *foreignFile, whose owner,
) error {
	m, err := v.plan(ctx, n, p, file, whose)
	if err != nil {
		return err
	}
	if n.dryRun {
		m.DryRun = true
		if v.json() {
			return v.printJSON(m)
		}
		m.print(v.streams, v.stdout)
		return nil
	}
	if err := v.ask(ctx, n.yes, "Write it?", func(w io.Writer) { m.print(v.streams, w) }); err != nil {
		return err
	}
	if err := v.apply(ctx, &m, file); err != nil {
		return err
	}
	if v.json() {
		return v.printJSON(m)
	}
	fmt.Fprintf(v.stderr, "pfar: wrote %s\n", escape(m.File, oneLine))
	v.hintAt("restart " + n.program + "; to take it back: pfar client install " + n.program + " --undo")
	return nil
}

// plan returns the new texts of the file and of the declaration. It changes nothing.
func (v installVerb) plan(
	ctx context.Context, n installation, p clientfile.Program, file *foreignFile, whose owner,
) (m made, err error) {
	clients, err := v.clients(ctx)
	if err != nil {
		return m, err
	}
	m = made{Program: n.program, File: file.path, Client: n.client.Name}
	secret := access.NewToken()
	one := n.client
	switch taken := clients.taken(one.Name); {
	case taken != "" && n.bounded:
		return m, usage("the client %q is declared already, with servers and a profile of its own", one.Name).
			withHint("leave out --servers and --profile, or pfar client install %s --client ANOTHER", n.program)
	case taken != "":
		if one, err = clients.find(one.Name); err != nil {
			return m, err
		}
		if m.before, err = os.ReadFile(one.File); err != nil {
			return m, err
		}
		m.path, m.src = one.File, m.before
		if !p.Stdio {
			one.Tokens = append(one.Tokens, access.DigestOf([]byte(secret)))
			m.src, err = declaration.WithTokens(one.File, m.before, one.Tokens)
		}
	default:
		one.Description = describedAs(file.path)
		if p.Stdio && v.ofMachine() {
			one.UIDs = []uint32{uint32(whose.uid)}
		} else { // a program that starts a command needs none, but a client has a token or a user
			one.Tokens = []access.Digest{access.DigestOf([]byte(secret))}
		}
		m.path, m.src, err = v.rendered(ctx, clients, one)
	}
	if err != nil {
		return m, err
	}
	for _, other := range clients.Clients {
		if len(one.UIDs) > 0 && other.Name != one.Name && sharesUser(other, one) {
			return m, fail(exitFailed, "this user is already the client %q, in %s", other.Name, other.File).
				withHint("pfar client install %s --client %s", n.program, other.Name)
		}
	}
	entry, err := v.entryOf(ctx, one.Client, "", secret, p.Stdio)
	if err != nil {
		return m, err
	}
	whole, err := p.Write(entry)
	if err != nil {
		return m, err
	}
	text, added, err := foreign.Put(syntaxes[p.Syntax], file.src, []byte(whole+"\n"))
	if errors.Is(err, foreign.ErrExists) {
		return m, fail(exitFailed, "%s already has an entry %s", file.path, foreign.Entry).
			withHint("pfar client install %s --undo takes it out", n.program)
	}
	if err != nil {
		return m, fail(exitFailed, "%s: %w", file.path, err).
			withHint("pfar client config %s --for %s prints what to write by hand", one.Name, n.program)
	}
	m.text, m.Added = text, strings.ReplaceAll(added, secret, "(token, not shown)")
	return m, nil
}

// describedAs is how a declared client says that an installation has made it, and may remove it.
func describedAs(path string) string { return "written into " + path + " by pfar client install" }

func sharesUser(a, b declaration.Client) bool {
	return slices.ContainsFunc(a.UIDs, func(uid uint32) bool { return slices.Contains(b.UIDs, uid) })
}

// apply declares the client before its token is anywhere, and takes the declaration back if the file cannot be written.
func (v installVerb) apply(ctx context.Context, m *made, file *foreignFile) error {
	changed := string(m.src) != string(m.before)
	if changed {
		if err := putDeclaration(m.path, m.src); err != nil {
			return err
		}
	}
	backup, err := file.replace(m.text)
	if err != nil {
		if changed {
			err = errors.Join(err, putDeclaration(m.path, m.before))
		}
		return err
	}
	m.Backup = backup
	if changed {
		if unread := v.awaitClient(ctx, m.src); unread != nil {
			fmt.Fprintf(v.stderr, "pfar: no pfard has read %s yet: %s\n",
				escape(m.path, oneLine), escape(unread.Error(), oneLine))
		}
	}
	return nil
}

// print shows the lines that pfar adds to the file, and the client.
func (m made) print(c *streams, w io.Writer) {
	fmt.Fprintf(w, "%s\n", escape(m.File, oneLine))
	for line := range strings.Lines(strings.Trim(m.Added, "\n") + "\n") {
		fmt.Fprintf(w, "%s\n", c.paint(w, green, "+ "+escape(strings.TrimSuffix(line, "\n"), oneLine)))
	}
	fmt.Fprintf(w, "client %q in %s\n", m.Client, escape(m.path, oneLine))
}

// undo restores the file and removes the client that the installation made.
func (v installVerb) undo(ctx context.Context, n installation, p clientfile.Program, file *foreignFile) error {
	clients, err := v.clients(ctx)
	if err != nil {
		return err
	}
	old, backup, err := file.backup()
	if err != nil {
		return err
	}
	said, next := "restored "+file.path+" from its copy", old
	if backup == "" { // edited since
		whole, err := p.Write(clientfile.Entry{Command: "pfar"})
		if err != nil {
			return err
		}
		next, err = foreign.Take(syntaxes[p.Syntax], file.src, []byte(whole))
		if errors.Is(err, foreign.ErrMissing) {
			return fail(exitFailed, "%s has no entry %s", file.path, foreign.Entry)
		}
		if err != nil {
			return fail(exitFailed, "%s was edited: %w", file.path, err).
				withHint("take out the entry %s by hand", foreign.Entry)
		}
		said = "took the entry " + foreign.Entry + " out of " + file.path
	}
	remove, one := "", declaration.Client{}
	if one, err = clients.find(n.client.Name); err == nil && one.Description == describedAs(file.path) {
		remove = one.File
	}
	if n.dryRun {
		said = "would have " + said
	} else {
		question := "Take pfar out of " + file.path + "?"
		if err := v.ask(ctx, n.yes, question, func(io.Writer) {}); err != nil {
			return err
		}
		if err := file.restore(next, backup); err != nil {
			return err
		}
		if remove != "" {
			err = putDeclaration(remove, nil)
		} else {
			err = withoutToken(one, file.src)
		}
		if err != nil {
			return err
		}
	}
	if v.json() {
		return v.printJSON(map[string]any{
			"file": file.path, "restored": backup != "", "removed": remove, "dry_run": n.dryRun,
		})
	}
	fmt.Fprintf(v.stderr, "pfar: %s\n", escape(said, oneLine))
	if remove == "" && clients.Declares(n.client.Name) != "" {
		v.hintAt("the client " + n.client.Name + " stays: pfar client remove " + n.client.Name)
	}
	return nil
}

var tokens = regexp.MustCompile(`pfar_[A-Za-z0-9_-]{43}`)

// withoutToken takes the token that stood in a program's file from a client that has others, or is a user's.
func withoutToken(one declaration.Client, was []byte) error {
	left := slices.Clone(one.Tokens)
	for _, token := range tokens.FindAll(was, -1) {
		left = slices.DeleteFunc(left, func(d access.Digest) bool { return d == access.DigestOf(token) })
	}
	if len(left) == len(one.Tokens) || len(left)+len(one.UIDs) == 0 {
		return nil
	}
	src, err := os.ReadFile(one.File)
	if err == nil {
		src, err = declaration.WithTokens(one.File, src, left)
	}
	if err != nil {
		return err
	}
	return putDeclaration(one.File, src)
}

// putDeclaration writes a client's declaration, or removes it if there is none.
func putDeclaration(path string, src []byte) error {
	if src == nil {
		if err := os.Remove(path); err != nil {
			return err
		}
		return durable.SyncDir(filepath.Dir(path))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return durable.WriteFile(path, src)
}
