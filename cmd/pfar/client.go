package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

const clientHelp = `Declare the MCP clients that may use servers, each with a token of its own.

"pfar client add NAME" writes NAME.hcl in clients.d, beside the directory of declarations, and prints the
client's token once; pfar keeps only its SHA-256. The client may use only the servers that --servers names. You may edit
the file: pfard reads it again. pfar-clients(5) describes its keys.

Two clients exist without a file and may use everything. "default" is any program that has the endpoint's own
token, that uses "pfar connect" without --client, or that connects to the Unix socket as an operator.
"operator" is "pfar call", and any program of an operator that asks to be this client. A file default.hcl
restricts "default".`

// clientVerb declares clients, and prints their configuration.
type clientVerb struct{ *pfar }

func (c clientVerb) clientCommand() *cobra.Command {
	group := &cobra.Command{
		Use:   "client",
		Short: "Declare which client may use which servers",
		Long:  clientHelp,
		Example: example("pfar client add desk --servers notion,github",
			"pfar client add desk --servers '*' --profile everyday", "pfar client config desk", "pfar client set desk --servers notion",
			"pfar client set desk --connect", "pfar client rotate desk --keep",
			"pfar client list"),
		Args: arguments(),
		RunE: func(*cobra.Command, []string) error {
			return usage("which of add, list, set, rotate, remove, config, install?").withHint("pfar client --help")
		},
	}
	group.AddCommand(c.clientAddCommand(), c.clientSetCommand(), c.clientRotateCommand(), c.clientConfigCommand(),
		c.verb("list", "List the clients and what they may use", alone(c.clientList)),
		c.outputFlag(&cobra.Command{
			Use: "remove NAME", Short: "Remove a client; its connections end at once", ValidArgsFunction: offerFirst(c.offeredClients),
			RunE: onOne(c.clientRemove),
		}),
	)
	return group
}

// newClient is what pfar client add is told.
type newClient struct {
	declaration.Client
	uids      []string
	tokenFile string
	noToken   bool
}

func (c clientVerb) clientAddCommand() *cobra.Command {
	var n newClient
	cmd := c.outputFlag(&cobra.Command{
		Use: "add NAME", Short: "Declare a client, and print its token",
		RunE: func(cmd *cobra.Command, args []string) error {
			n.Name = args[0]
			return c.clientAdd(cmd.Context(), n)
		},
	})
	f := cmd.Flags()
	f.StringSliceVar(&n.Servers, "servers", nil, "`NAMES` of the servers that it may use, or \"*\" for all")
	f.StringVar(&n.Profile, "profile", "strict", "the gate's `PROFILE` for it; everyday asks less, for a desktop client")
	f.StringVar(&n.Relax, "relax", "", "reason `WHY` its profile allows more than strict")
	f.StringSliceVar(&n.Allow, "allow", nil, "`PATTERNS` of tools that it may use (notion.search*); by default all tools of its servers")
	f.StringSliceVar(&n.Hide, "hide", nil, "`PATTERNS` of tools that it may not use")
	f.BoolVar(&n.Connect, "connect", false, "let its model ask a person to connect services (pfar__connect)")
	f.BoolVar(&n.Search, "search", false, "offer it only three tools, with which it finds and calls all others")
	f.StringVar(&n.Description, "description", "", "describe it in a `SENTENCE`")
	f.StringSliceVar(&n.uids, "uid", nil, "`UIDS` of users who are this client on the Unix socket")
	f.BoolVar(&n.noToken, "no-token", false, "give it no token, with --uid")
	c.tokenFileFlag(cmd, &n.tokenFile)
	return cmd
}

func (c clientVerb) tokenFileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "token-file", "", "write the token to a new `FILE` that only you can read, not to standard output")
	cmd.RegisterFlagCompletionFunc("token-file", filesToo)
}

func (c clientVerb) clientAdd(ctx context.Context, n newClient) error {
	if fault := declaration.ClientNameFault(n.Name); fault != "" {
		return usage("the name %q %s", n.Name, fault)
	}
	for _, word := range n.uids {
		uid, err := strconv.ParseUint(word, 10, 32)
		if err != nil {
			return usage("%q is not the number of a user", word).withHint("id -u NAME")
		}
		n.UIDs = append(n.UIDs, uint32(uid))
	}
	if n.Search && len(n.Allow)+len(n.Hide) > 0 {
		const hint = "write patterns in the file, in a section for each server (pfar-clients(5))"
		return usage("--search goes without --allow and --hide").withHint(hint)
	}
	if n.noToken && (len(n.UIDs) == 0 || n.tokenFile != "") {
		return usage("--no-token needs --uid, and goes without --token-file")
	}
	clients, err := c.clients(ctx)
	if err != nil {
		return err
	}
	if f := clients.taken(n.Name); f != "" {
		return fail(exitFailed, "client %q already exists, in %s", n.Name, f).withHint("to change its servers: pfar client "+
			"set %[1]s --servers NAMES; to change its token: pfar client rotate %[1]s", n.Name)
	}
	for _, uid := range n.UIDs {
		for _, other := range clients.Clients {
			if slices.Contains(other.UIDs, uid) {
				return fail(exitFailed, "uid %d already belongs to client %q, in %s", uid, other.Name, other.File)
			}
		}
	}
	secret := ""
	if !n.noToken {
		secret = access.NewToken()
		n.Tokens = []access.Digest{access.DigestOf([]byte(secret))}
	}
	path, src, err := c.rendered(ctx, clients, n.Client)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(clients.dir, 0o755); err != nil {
		return err
	}
	if err := c.putClient(ctx, n.Name, path, src, secret, n.tokenFile); err != nil {
		return err
	}
	if n.Connect {
		c.warnOfConnect(n.Name)
	}
	if len(n.Servers) > 0 {
		return nil
	}
	fmt.Fprintf(c.stderr, "pfar: it may use no server yet: pfar client set %s --servers NAMES\n", n.Name)
	return nil
}

// rendered is the declaration of a new client, and where it goes.
func (c clientVerb) rendered(
	ctx context.Context, clients declaredClients, one declaration.Client,
) (path string, src []byte, err error) {
	if one.Profile == "everyday" { // pfar-policies(5) has the reason for each of its rows
		one.Relax = cmp.Or(one.Relax, "a desktop client that a person works with all day")
	}
	path = filepath.Join(clients.dir, one.Name+".hcl")
	src = declaration.RenderClient(one)
	made, diags := declaration.ParseClient(path, src)
	if made != nil {
		dir := c.located(ctx, sources{}).policies
		diags = made.JudgeProfile(policies.Load(os.DirFS(dir), dir).Policy)
	}
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			return "", nil, usage("%s", d.Detail)
		}
	}
	return path, src, nil
}

// putClient writes a declaration, and hands its token out. The token is written first: one that nobody has is of no
// use.
func (c clientVerb) putClient(ctx context.Context, name, path string, src []byte, secret, tokenFile string) error {
	if tokenFile != "" {
		if err := writeNew(tokenFile, secret+"\n"); err != nil {
			return err
		}
	}
	if err := durable.WriteFile(path, src); err != nil {
		if tokenFile != "" {
			os.Remove(tokenFile)
		}
		return err
	}
	unread := c.awaitClient(ctx, src)
	if c.json() {
		said := map[string]string{"name": name, "file": path}
		if secret != "" && tokenFile == "" {
			said["token"] = secret
		} else if secret != "" {
			said["token_file"] = tokenFile
		}
		return c.printJSON(said)
	}
	if secret != "" && tokenFile == "" {
		fmt.Fprintln(c.stdout, secret)
	}
	fmt.Fprintf(c.stderr, "pfar: wrote %s\n", escape(path, oneLine))
	if unread != nil {
		fmt.Fprintf(c.stderr, "pfar: no pfard has read it yet: %s\n", escape(unread.Error(), oneLine))
	}
	return nil
}

// readTime is how long pfard may take to read a file: it waits a moment for the last of several writes.
const readTime = 20 * time.Second

// awaitClient waits until pfard has read a declaration, so that the client can be used from then on.
func (c clientVerb) awaitClient(ctx context.Context, src []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readTime, fmt.Errorf("pfard did not read it within %s", readTime))
	defer cancel()
	sum := sha256.Sum256(src)
	return c.control().Await(ctx, func(r control.Report) (bool, error) {
		all := slices.Collect(maps.Values(r.ClientFiles))
		return r.ClientFiles == nil || slices.Contains(all, hex.EncodeToString(sum[:])), nil
	})
}

// writeNew writes a file that was not there, for its owner alone.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("writing the token: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return fmt.Errorf("writing the token: %w", err)
	}
	return nil
}

func (c clientVerb) clientRotateCommand() *cobra.Command {
	var keep bool
	var tokenFile string
	cmd := c.outputFlag(&cobra.Command{
		Use: "rotate NAME", Short: "Give a client a new token, and print it", ValidArgsFunction: offerFirst(c.offeredClients),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.clientRotate(cmd.Context(), args[0], keep, tokenFile)
		},
	})
	cmd.Flags().BoolVar(&keep, "keep", false, "keep the earlier tokens until a rotation without this flag")
	c.tokenFileFlag(cmd, &tokenFile)
	return cmd
}

// clientFile returns a declared client, and its file as it is.
func (c clientVerb) clientFile(ctx context.Context, name string) (one declaration.Client, src []byte, err error) {
	clients, err := c.clients(ctx)
	if err == nil {
		one, err = clients.find(name)
	}
	if err == nil {
		src, err = os.ReadFile(one.File)
	}
	return one, src, err
}

func (c clientVerb) clientRotate(ctx context.Context, name string, keep bool, tokenFile string) error {
	one, src, err := c.clientFile(ctx, name)
	if err != nil {
		return err
	}
	secret := access.NewToken()
	var tokens []access.Digest
	if keep {
		tokens = slices.Clone(one.Tokens)
	}
	tokens = append(tokens, access.DigestOf([]byte(secret)))
	changed, err := declaration.WithTokens(one.File, src, tokens)
	if err != nil {
		return fmt.Errorf("changing %q: %w", one.File, err)
	}
	path, err := filepath.EvalSymlinks(one.File) // a link stays one
	if err != nil {
		return err
	}
	return c.putClient(ctx, name, path, changed, secret, tokenFile)
}

func (c clientVerb) clientRemove(ctx context.Context, name string) error {
	clients, err := c.clients(ctx)
	if err != nil {
		return err
	}
	path := clients.Declares(name)
	if path == "" {
		return noClient(name)
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	if err := durable.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(map[string]string{"name": name, "file": path})
	}
	if name == access.Default || name == access.Operator {
		fmt.Fprintf(c.stderr, "pfar: %q may use everything again\n", name)
	}
	return nil
}

func noClient(name string) error {
	return fail(exitNoSuch, "no client %q is declared", name).withHint(`"pfar client list" lists the clients`)
}

// listedClient is a client as pfar client list shows it.
type listedClient struct {
	access.Client
	Description string `json:"description,omitempty"`
	BuiltIn     bool   `json:"built_in,omitempty"` // nothing declares it
	Broken      bool   `json:"broken,omitempty"`   // its file has an error
}

func (c clientVerb) clientList(ctx context.Context) error {
	set, err := c.clients(ctx)
	if err != nil {
		return err
	}
	all := []listedClient{}
	for _, one := range set.Clients {
		all = append(all, listedClient{Client: one.Client, Description: one.Description})
	}
	for _, b := range set.Broken {
		all = append(all, listedClient{Client: access.Client{Name: b.Name, File: b.File}, Broken: true})
	}
	for _, name := range []string{access.Default, access.Operator} {
		if !slices.ContainsFunc(all, func(l listedClient) bool { return l.Name == name }) {
			all = append(all, listedClient{Client: access.BuiltIn(name), BuiltIn: true})
		}
	}
	slices.SortFunc(all, func(a, b listedClient) int { return strings.Compare(a.Name, b.Name) })
	if c.json() {
		return c.printJSON(all)
	}
	rows := [][]cell{heading("CLIENT", "IS", "SERVERS", "TOOLS", "PROFILE", "FILE")}
	for _, l := range all {
		rows = append(rows, []cell{{l.Name, ""}, {l.is(), map[bool]string{true: red}[l.Broken || !l.Enabled]},
			{l.ServersInWords(), ""}, {l.ToolsInWords(), ""}, {l.Profile, ""}, {l.File, ""}})
	}
	c.table(c.stdout, rows)
	return nil
}

func (l listedClient) is() string {
	if l.Broken {
		return "broken: pfar check"
	}
	return l.Identity()
}
