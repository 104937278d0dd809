package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/units/control"
)

const addHelp = `Set up a server. pfar shows its files, hosts and secrets, and asks. Then it asks for the secrets,
installs the package, writes the declaration, starts the server, and calls a tool that only reads. The
declaration is a file of yours: change it with "pfar edit", remove it with "pfar remove".

NAME is a known service (pfar services). pfar runs an unknown package or command line in learning mode
for a while. Then it lists the hosts that the server tried to reach, and asks whether to allow them.

An https address names a remote server. It runs elsewhere. After your yes, pfar connects to it from a sandbox
that reaches only that host. The answers show the transport, and whether you have to sign in; then pfar says
which command to type. If it answers, but not as an MCP server, pfar says so, and asks whether to set up a
server that opens pages of that host.

If you name no version of a package, pfar takes the newest one and writes it into the declaration.

pfar does not show secrets while you type them. A script gives them with --secret-file or on standard
input, never as an argument. If the service refuses a value, pfar asks for another one, three times in
all. Enter "cancel" to end the set-up, "skip" to leave out an optional secret.

If oauth.d has a client for the provider, you can press Enter to sign in instead: pfar shows a link and a
code, and goes on when you have signed in. A failed sign-in does not count as a refused value. The set-up
also goes on when you store the secret in another way ("pfar vault set", "pfar login"). With --page, a
page in a browser takes the secrets or signs you in, and pfar prints its link.

If pfar does not know the server, name the variable of each secret with --secret. VARIABLE@HOST gives the
server a placeholder; its egress bridge puts the secret into the Authorization header of requests to HOST.
VARIABLE alone does the same if pfar knows the host from its services. Otherwise the server gets the secret
itself, in its environment. The vault stores the secret as SERVER_variable.

After Ctrl-C the set-up waits for ten minutes. The same command joins it again.`

// addVerb sets servers up.
type addVerb struct{ *pfar }

// additions are the flags of pfar add.
type additions struct {
	name              string
	set, secrets      map[string]string // answers by parameter, files by key of the vault
	variables         []string          // of secrets that an unknown server needs: VARIABLE or VARIABLE@HOST
	learn             time.Duration
	yes, dry, page    bool
	list, end, behind bool
}

func (v addVerb) addCommand() *cobra.Command {
	var o additions
	cmd := v.outputFlag(&cobra.Command{
		Use:   "add NAME | npm:PACKAGE[@VERSION] | pypi:PACKAGE[==VERSION] | URL | -- COMMAND...",
		Short: "Set up a server, from a name to the first call", Long: addHelp,
		Example: example("pfar add notion", "pfar add slack --set team=T01234567",
			"pfar add npm:@acme/crm-mcp --secret CRM_TOKEN@api.acme.com", "pfar add -- npx -y exa-mcp-server@2.0.0",
			"pfar add github --name github-work --dry-run",
			"pfar add notion --yes --secret-file notion_token=FILE", "pfar add notion --page", "pfar add --list web search"),
		Args: cobra.ArbitraryArgs, ValidArgsFunction: offerFirst(v.offeredServices),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.behind = cmd.ArgsLenAtDash() == 0 && len(args) > 0
			return v.run(cmd, args, o)
		},
	})
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "`NAME` of the server; by default that of the service")
	f.StringToStringVar(&o.set, "set", nil, "answer a question of the service: `NAME=VALUE`")
	f.StringArrayVar(&o.variables, "secret", nil, "an unknown server needs a secret: `VARIABLE` or VARIABLE@HOST")
	f.StringToStringVar(&o.secrets, "secret-file", nil, "read a secret from a file: `KEY=FILE`, - for standard input")
	f.DurationVar(&o.learn, "learn", 20*time.Second, "how long an unknown server runs in learning mode, such as 1m")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.BoolVar(&o.dry, "dry-run", false, "show the declaration and what would be done, and change nothing")
	f.BoolVar(&o.page, "page", false, "ask for the secrets on a page in your browser")
	f.BoolVar(&o.list, "list", false, "list the known services, as pfar services does")
	f.BoolVar(&o.end, "cancel", false, "end the set-up that is under way")
	return cmd
}

func (v addVerb) offeredServices(ctx context.Context) (list []string, err error) {
	for _, s := range servicesVerb(v).catalogue(ctx).All() {
		list = append(list, completion(s.Name, s.Summary))
	}
	return list, nil
}

func (v addVerb) run(cmd *cobra.Command, args []string, o additions) error {
	ctx := cmd.Context()
	switch {
	case o.end && len(args) == 0:
		return v.cancel(ctx)
	case o.list, !o.behind && len(args) > 1:
		return servicesVerb(v).listServices(cmd, strings.Join(args, " "))
	case len(args) == 0 || o.end:
		return usage("name what to add").withHint("pfar services lists the known services; pfar add --help")
	case o.learn <= 0:
		return usage("--learn %s: want a time, such as 20s or 1m", o.learn)
	}
	a, err := v.proposed(servicesVerb(v).naming(ctx, args[0]), args, o)
	if err != nil {
		return err
	}
	err = a.add(ctx)
	if f, hinted := errors.AsType[*failure](err); a.file != "" && cutOff(err) && (!hinted || f.hint == "") {
		code, _ := classify(err)
		return fail(code, "%w", err).withHint("%sthe same command goes on", a.left())
	}
	return err
}

// proposed returns the set-up of the server that words name.
func (v addVerb) proposed(known catalog.Set, words []string, o additions) (*adding, error) {
	p, err := propose(known, words, o.behind)
	if err != nil {
		return nil, err
	}
	return v.filled(known, p, o)
}

// filled returns the set-up of a proposal, with what the flags say.
func (v addVerb) filled(known catalog.Set, p proposal, o additions) (*adding, error) {
	p.choices.Server = cmp.Or(o.name, p.choices.Server, p.service.Name)
	if !p.known {
		p.service.Name = p.choices.Server // no service has these facts
	}
	if p.choices.Server != p.service.Name {
		p.service.Secrets = p.service.KeysFor(p.choices.Server, p.service.Secrets)
	}
	if p.choices.Answers == nil {
		p.choices.Answers = map[string]string{}
	}
	maps.Copy(p.choices.Answers, o.set)
	if err := p.need(known, o.variables); err != nil {
		return nil, err
	}
	if err := knownKeys(p.service, o.secrets); err != nil {
		return nil, err
	}
	return &adding{pfar: v.pfar, proposal: p, additions: o}, nil
}

// knownKeys refuses a file for a secret that the server does not have.
func knownKeys(s catalog.Service, files map[string]string) error {
	var keys []string
	for _, k := range s.Secrets {
		keys = append(keys, k.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(files)) {
		switch {
		case slices.Contains(keys, key):
		case len(keys) == 0:
			return usage("--secret-file: %s has no secret", s.Title)
		default:
			return usage("--secret-file: %s has no secret %q", s.Title, key).
				withHint("write %s=FILE", strings.Join(keys, "=FILE or "))
		}
	}
	return nil
}

// adding is one run of pfar add.
type adding struct {
	*pfar
	proposal
	additions
	text []byte // of the declaration
	file string // that is to have it
}

func (a *adding) server() string { return a.choices.Server }

func (a *adding) add(ctx context.Context) error {
	if a.dry {
		return a.show(ctx)
	}
	look := "pfar add " + a.server() + " --dry-run"
	if !a.page {
		look += "; with --yes --page a browser takes the secrets"
	}
	if err := a.canAsk(a.yes, look); err != nil {
		return err
	}
	report, err := a.report(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(report.Directory, a.server()+".hcl")
	a.file = file
	joined, err := a.underWay(ctx)
	if err != nil {
		return err
	}
	if joined {
		join(a, report)
		if err := a.carry(ctx, nil); !errors.Is(err, control.ErrNoFlow) {
			return err
		}
		if report, err = a.report(ctx); err != nil { // it has ended meanwhile
			return err
		}
		a.file = file
	}
	i := slices.IndexFunc(report.Servers, func(s control.Server) bool { return s.Name == a.server() })
	if i >= 0 {
		return a.again(ctx, report.Servers[i])
	}
	if err := a.agree(ctx); err != nil {
		return err
	}
	switch {
	case meets(a.service):
		return meeting{a}.meet(ctx, "nothing was changed")
	case !a.known:
		return a.unknown(ctx)
	}
	return a.carry(ctx, a.order())
}

// order is the set-up of a known service.
func (a *adding) order() *control.SetUp {
	begin := &control.SetUp{Server: a.server(), Service: a.service.Name, Answers: a.choices.Answers, Page: a.page}
	if a.choices.Package+a.service.Program.URL != "" || a.server() != a.service.Name { // the entry says less
		begin.Answers, begin.Text = nil, &control.Text{New: a.text}
	}
	return begin
}

// underWay reports whether there is a set-up of this server to join. A new set-up would end another one of this user,
// so underWay asks first.
func (a *adding) underWay(ctx context.Context) (bool, error) {
	now, err := addVerb{a.pfar}.flow(ctx)
	switch {
	case errors.Is(err, control.ErrNoFlow):
		return false, nil
	case err != nil:
		return false, err
	case now.Server == a.server() && a.page && now.Wants != nil && now.Page == "": // it waits at a terminal: begin anew
		return false, nil
	case now.Server == a.server():
		a.page = now.Page != ""
		return true, nil
	}
	question := fmt.Sprintf("A set-up of %q is under way. End it and set up %q?", now.Server, a.server())
	return false, a.ask(ctx, a.yes, question, func(io.Writer) {})
}

// flow returns the present state of this user's set-up.
func (v addVerb) flow(ctx context.Context) (now control.Flow, err error) {
	enough := errors.New("enough")
	err = v.control().SetUp(ctx, nil, func(f control.Flow) error { now = f; return enough })
	if errors.Is(err, enough) {
		err = nil
	}
	return now, err
}

// cancel ends the set-up of this user.
func (v addVerb) cancel(ctx context.Context) error {
	now, err := v.flow(ctx)
	if errors.Is(err, control.ErrNoFlow) {
		return fail(exitFailed, "%w", err)
	}
	if err != nil {
		return err
	}
	if now, err = v.control().Supply(ctx, control.FlowAnswer{ID: now.ID, Cancel: true}, ""); err != nil {
		return err
	}
	if v.json() {
		return v.printJSON(now)
	}
	fmt.Fprintf(v.stdout, "%s: the set-up has ended\n", escape(now.Server, oneLine))
	return nil
}

// again handles a server that is declared already. If it runs, again prints what the person can do with it; otherwise
// again sets it up as it is declared.
func (a *adding) again(ctx context.Context, s control.Server) error {
	if meets(a.service) && mustLogin(s) {
		return meeting{a}.awaitLogin(s)
	}
	if s.State != control.Running && s.State != control.Sleeping {
		show := func(w io.Writer) {
			a.table(w, [][]cell{{{s.Name, bold}, {describe(s), ""}}, {{"declared in", bold}, {s.File, ""}}})
		}
		if err := a.ask(ctx, a.yes, fmt.Sprintf("Set %q up again, as it is declared?", s.Name), show); err != nil {
			return err
		}
		a.file = ""
		return a.carry(ctx, &control.SetUp{Server: s.Name, Service: a.serviceName(), Page: a.page})
	}
	if a.json() {
		return a.printJSON(added{Server: s.Name, Service: a.serviceName(), File: s.File, State: control.FlowComplete,
			Detail: "it runs already", Tools: s.Tools, Already: true})
	}
	fmt.Fprintf(a.stdout, "%s: %s; it is declared in %s\n", escape(s.Name, oneLine), escape(describe(s), oneLine),
		escape(s.File, oneLine))
	rows := [][]cell{{{"  pfar tools " + s.Name, ""}, {"what it offers", ""}}}
	stored, _ := vaultVerb{a.pfar}.secrets(ctx) // on an error the hints are less exact
	for _, k := range a.service.Secrets {
		row := []cell{{"  pfar vault rotate " + k.Key, ""}, {"give it another secret", ""}}
		if slices.ContainsFunc(stored, func(s control.Secret) bool { return s.Key == k.Key && s.Kind == "oauth" }) {
			row = []cell{{"  pfar login " + k.Key, ""}, {"sign in again", ""}}
		}
		rows = append(rows, row)
	}
	if !a.known && a.service.Program.URL == "" {
		rows = append(rows, []cell{{"  pfar learn " + s.Name + " --write", ""}, {"find the hosts that it needs", ""}})
	}
	rows = append(rows, []cell{{"  pfar edit " + s.Name, ""}, {"change its declaration", ""}},
		[]cell{{fmt.Sprintf("  pfar add %s --name %s-2", s.Name, s.Name), ""}, {"set up another one", ""}})
	a.table(a.stdout, rows)
	return nil
}

// tellFault says amid a conversation what has gone wrong. pfar goes on, so on a person's screen it does not begin with
// "pfar:". The words may be a stranger's: further lines have a mark or are indented.
func (a *adding) tellFault(err error) {
	if a.json() || !isTerminal(a.stderr) {
		a.complain(err)
		return
	}
	p := page{columns: columnsOf(a.stderr)}
	head := ""
	for line := range strings.SplitSeq(err.Error(), "\n") {
		p.line(head, escape(line, oneLine))
		head = "  "
	}
	fmt.Fprintf(a.stderr, "\n%s", p.trimmed())
}

// serviceName is the service's name in the catalogue, "" if it has none.
func (a *adding) serviceName() string {
	if !a.known {
		return ""
	}
	return a.service.Name
}

// agree shows the service and the declaration, asks for missing answers, and asks for a yes.
func (a *adding) agree(ctx context.Context) error {
	if err := a.decide(ctx); err != nil {
		return err
	}
	show := func(w io.Writer) { a.declared(w) }
	return a.ask(ctx, a.yes, fmt.Sprintf("Set up %q?", a.server()), show)
}

// decide shows the service, asks its questions, and makes the declaration from the answers.
func (a *adding) decide(ctx context.Context) error {
	if err := a.exact(ctx); err != nil {
		return err
	}
	out := a.stdout
	if !isTerminal(out) && !a.yes && !a.dry || a.json() {
		out = a.stderr
	}
	if !a.json() {
		page := page{columns: columnsOf(out)}
		page.WriteString(serviceText(a.service.Answered(a.choices.Answers), page.columns))
		for _, r := range a.remarks {
			page.WriteString("\n")
			page.words(escape(r, oneLine))
		}
		fmt.Fprintln(out, page.String())
	}
	if a.service.Program.Gone == "" {
		if err := a.parameters(ctx); err != nil {
			return err
		}
	}
	return a.declare()
}

// declare makes the declaration from the answers.
func (a *adding) declare() (err error) {
	if a.text, err = a.service.Declaration(a.choices); err != nil {
		f := usage("%w", err)
		if missing := a.unanswered(); len(missing) > 0 {
			return f.withHint("give it with --set %s=VALUE", missing[0].Name)
		}
		return f
	}
	return nil
}

// unanswered are the parameters that have no answer and need one.
func (a *adding) unanswered() (list []catalog.Parameter) {
	for _, p := range a.service.Parameters {
		if a.choices.Answers[p.Name] == "" && !p.Optional {
			list = append(list, p)
		}
	}
	return list
}

// parameters asks for missing answers, if somebody is at a terminal.
func (a *adding) parameters(ctx context.Context) error {
	if a.yes || a.dry || !isTerminal(a.stdin) {
		return nil
	}
	for _, p := range a.service.Parameters {
		if _, given := a.set[p.Name]; given || a.choices.Answers[p.Name] != "" {
			continue
		}
		for {
			answer, err := a.askLine(ctx, p.Question+forExample(p.Example)+":")
			if err != nil {
				return err
			}
			if answer == "" && p.Optional {
				break
			}
			if err := a.service.CheckAnswer(p, answer); err != nil {
				a.tellFault(err)
				continue
			}
			a.choices.Answers[p.Name] = answer
			break
		}
	}
	return nil
}

// declared shows the declaration and the steps of the set-up.
func (a *adding) declared(w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", a.paint(w, bold, escape(a.file, oneLine)))
	for line := range strings.Lines(string(a.text)) {
		fmt.Fprintln(w, strings.TrimRight("  "+escape(strings.TrimSuffix(line, "\n"), oneLine), " "))
	}
	fmt.Fprintln(w)
	rows := [][]cell{}
	for _, step := range a.steps() {
		rows = append(rows, []cell{{"  " + step[0], bold}, {step[1], ""}})
	}
	a.table(w, rows)
}

// show is what --dry-run does.
func (a *adding) show(ctx context.Context) error {
	if err := a.decide(ctx); err != nil {
		return err
	}
	a.file = filepath.Join(a.located(ctx, sources{}).dir, a.server()+".hcl")
	text := control.Text{New: a.text, Dry: true}
	d, err := a.control().Declare(ctx, a.server(), text)
	switch {
	case errors.Is(err, control.ErrNotRunning), errors.Is(err, control.ErrDenied):
		d = &control.Declared{Server: a.server(), File: a.file}
	case err != nil:
		return err
	}
	d.Diagnostics = slices.DeleteFunc(d.Diagnostics, func(g control.Diagnostic) bool {
		return g.Summary == generator.NotInstalled
	})
	if a.json() {
		steps := []string{}
		for _, s := range a.steps() {
			steps = append(steps, s[0]+" "+s[1])
		}
		return a.printJSON(struct {
			*control.Declared
			Text  string   `json:"declaration"`
			Steps []string `json:"steps"`
		}{d, string(a.text), steps})
	}
	a.declared(a.stdout)
	if !d.Sound() {
		writeDiagnostics(a.stderr, d.Diagnostics)
		return fail(exitFailed, "the declaration has mistakes")
	}
	fmt.Fprintln(a.stdout, "\nNothing was changed.")
	return nil
}
