package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
	"github.com/pfar/pfar/generator/signin"
	"github.com/pfar/pfar/policies"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/plan"
)

const checkHelp = `Read every declaration in DIR, and those of clients in clients.d, of models in models.d and of
chats in chat.d beside it, and print each mistake with its place and remedy. Without DIR, read the
declarations, clients, models, chats and policies of the running pfar, and the services of services.d
and the providers of oauth.d beside them. This starts nothing, and pfar need not run. Warnings do not
change the exit code.`

// declaredVerb checks and explains declarations.
type declaredVerb struct{ *pfar }

func (c declaredVerb) checkCommand() *cobra.Command {
	var named sources
	cmd := c.outputFlag(&cobra.Command{
		Use:     "check [DIR]",
		Short:   "Find the mistakes in declarations",
		Long:    checkHelp,
		Example: example("pfar check", "pfar check examples"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				named.dir = args[0]
			}
			where := c.located(cmd.Context(), named)
			set, err := c.compile(where)
			if err != nil {
				return err
			}
			read := policies.Load(os.DirFS(where.policies), where.policies)
			if len(args) == 0 {
				set.readPolicies(read)
				known := set.host.Services()
				set.add(known.Files, known.Diags)
				clients := signin.Load(os.DirFS(where.providers()), where.providers(), set.host.Services)
				set.add(clients.Files, clients.Diags)
			}
			models := declaration.LoadModels(os.DirFS(where.models()), where.models(), read.Places)
			set.add(models.Files, models.Diags)
			chats := declaration.LoadChats(os.DirFS(where.chats()), where.chats(), models.Taken(read.Places))
			set.add(chats.Files, chats.Diags)
			set.noticesInChats(read, chats)
			set.unknown(read.Policy)
			if err := set.addClients(where.clients, set.servers, read.Policy); err != nil {
				return err
			}
			return c.printCheck(set)
		},
	})
	c.serversFlag(cmd, &named)
	return cmd
}

// compiled is a directory of declarations, compiled.
type compiled struct {
	dir     string
	servers []declaration.Server // that are sound by themselves
	plans   []plan.Plan
	files   map[string]*hcl.File
	hidden  map[string]string // by file that does not count: the one that stands for it
	diags   hcl.Diagnostics
	// broken are the names of servers whose declaration has an error.
	broken []string

	clientsDir string
	clients    int // that are sound

	host generator.Host
}

// addClients reads the folder of clients beside the servers; policy has their profiles, nil: nobody knows.
func (out *compiled) addClients(dir string, servers []declaration.Server, policy *gate.Policy) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	o := declaration.ClientOptions{Servers: append([]string{}, out.broken...), Policy: policy}
	for _, s := range servers {
		o.Servers = append(o.Servers, s.Name)
	}
	set := declaration.LoadClients(os.DirFS(dir), dir, o)
	out.add(set.Files, set.Diags)
	out.clientsDir, out.clients = dir, len(set.Clients)
	return nil
}

// add adds what is wrong with other files.
func (out *compiled) add(files map[string]*hcl.File, diags hcl.Diagnostics) {
	maps.Copy(out.files, files)
	out.diags = append(out.diags, diags...)
}

// compile reads and compiles a directory as pfard does.
func (c declaredVerb) compile(from sources) (compiled, error) {
	dir, err := filepath.Abs(from.dir)
	if err != nil {
		return compiled{}, err
	}
	servers, err := filepath.Abs(from.servers)
	if err != nil {
		return compiled{}, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return compiled{}, fail(exitFailed, "no directory of declarations at %q", dir)
	}
	folders := declaration.Folders(os.DirFS, append([]string{dir}, from.below...)...)
	set := declaration.Load(folders, declaration.Options{Servers: servers})
	out := compiled{dir: dir, servers: set.Servers, files: set.Files, diags: set.Diags, hidden: set.Hidden}
	out.host = c.host(dir, from)
	for _, b := range set.Broken {
		out.broken = append(out.broken, b.Name)
	}
	for _, s := range set.Servers {
		plan, diags := generator.Compile(s, out.host)
		out.diags = append(out.diags, diags...)
		if diags.HasErrors() {
			out.broken = append(out.broken, s.Name)
		} else {
			out.plans = append(out.plans, plan)
		}
	}
	compiled := slices.Values(slices.Clone(out.plans))
	for i, p := range out.plans {
		out.plans[i] = generator.Apart(p, compiled)
	}
	return out, nil
}

// host is what the compiler may know of this machine.
func (c declaredVerb) host(dir string, from sources) generator.Host {
	home, _ := os.UserHomeDir()                 // without one there is none to protect
	adapter, _ := c.findProgram("pfar-adapter") // without it remote servers are refused
	return generator.Host{
		FS: os.DirFS("/").(fs.ReadLinkFS), Ours: control.OurFiles(),
		Path: filepath.SplitList(c.getenv("PATH")), Home: home,
		StateDir: c.dirs.Homes(), Packages: c.dirs.Packages(), Private: c.dirs.Private(dir),
		Adapter: adapter, UID: os.Getuid(),
		Services: sync.OnceValue(from.known),
	}
}

// readPolicies adds what is wrong with the folder of policies: calls are decided by all of it or, if there is a
// mistake, by its last good version.
func (c *compiled) readPolicies(set policies.Set) {
	c.add(set.Files, set.Diags)
	if set.Policy == nil {
		return
	}
	for _, e := range slices.Concat(set.Policy.Inspectors, set.Policy.Notices) {
		_, diags := generator.Inspector(e, set.Places[e.Name], c.host)
		c.diags = append(c.diags, diags...)
	}
}

// noticesInChats adds which notices are for chats that are not declared. A chat with a mistake has told of it.
func (c *compiled) noticesInChats(set policies.Set, chats declaration.ChatSet) {
	if set.Policy == nil || chats.Unread {
		return
	}
	names := []string{}
	for _, one := range chats.Chats {
		names = append(names, one.Name)
	}
	for _, one := range chats.Broken {
		names = append(names, one.Name)
	}
	for _, e := range set.Policy.Notices {
		c.diags = append(c.diags, generator.UnknownChat(e, set.Places[e.Name], names)...)
	}
}

// unknown warns of servers of whose tools nothing is known: their calls wait for approval, and nobody would know why.
func (c *compiled) unknown(policy *gate.Policy) {
	for _, p := range c.plans {
		words := generator.Unknown(p, policy)
		s, ok := declaration.Find(c.servers, p.Name)
		if words == "" || !ok {
			continue
		}
		at := s.Place("command")
		c.diags = append(c.diags, &hcl.Diagnostic{Severity: hcl.DiagWarning, Summary: "Unknown tools", Detail: words, Subject: &at})
	}
}

// printCheck prints the mistakes; one that is an error makes the exit code 1.
func (c declaredVerb) printCheck(set compiled) error {
	errs, warnings := 0, 0
	list := []control.Diagnostic{}
	for _, d := range set.diags {
		if d.Severity == hcl.DiagError {
			errs++
		} else {
			warnings++
		}
		one := control.Diagnostic{Severity: map[hcl.DiagnosticSeverity]string{hcl.DiagError: "error",
			hcl.DiagWarning: "warning"}[d.Severity], Summary: d.Summary, Detail: d.Detail}
		if d.Subject != nil {
			one.File, one.Line, one.Column = d.Subject.Filename, d.Subject.Start.Line, d.Subject.Start.Column
		}
		var text strings.Builder
		if err := declaration.Write(&text, set.files, hcl.Diagnostics{d}, 80, false); err != nil {
			return err
		}
		one.Text = text.String()
		list = append(list, one)
	}
	var result error
	if errs > 0 {
		result = exitWith(exitFailed)
	}
	if c.json() {
		if err := c.printJSON(list); err != nil {
			return err
		}
		return result
	}
	if err := c.printDiagnostics(set); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "%s in %s%s: %s, %s\n", plural.Count(len(set.plans), "sound server"), escape(set.dir, oneLine),
		set.others(), plural.Count(errs, "error"), plural.Count(warnings, "warning"))
	return result
}

// others says how many clients there are, if there are any.
func (set compiled) others() string {
	if set.clients == 0 {
		return ""
	}
	return ", " + plural.Count(set.clients, "sound client") + " in " + escape(set.clientsDir, oneLine)
}

// printDiagnostics prints mistakes with their source lines, in colour on a terminal.
func (c declaredVerb) printDiagnostics(set compiled) error {
	width := uint(100)
	if columns := widthOf(c.stderr); columns > 40 {
		width = uint(columns)
	}
	return declaration.Write(c.stderr, set.files, set.diags, width, c.coloured(c.stderr))
}
