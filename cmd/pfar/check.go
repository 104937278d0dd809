package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pfar/pfar/cmd/pfard/control"
	"github.com/pfar/pfar/generator"
	"github.com/pfar/pfar/generator/declaration"
)

const checkHelp = `Read every declaration of DIR as pfard would, and print each mistake with its place and remedy.
Without DIR it is that of the pfar that runs. Nothing is started, and pfar need not run. Warnings
do not change the exit code.`

func (c *cli) checkCommand() *cobra.Command {
	var named sources
	cmd := c.outputFlag(&cobra.Command{
		Use:     "check [DIR]",
		Short:   "Find the mistakes in declarations",
		Long:    checkHelp,
		Example: example("pfar check", "pfar check examples"),
		Args:    arguments("[DIR]"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				named.dir = args[0]
			}
			set, err := c.compile(c.located(cmd.Context(), named))
			if err != nil {
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
	dir   string
	plans []generator.Plan
	files map[string]*hcl.File
	diags hcl.Diagnostics
	// broken are the names of servers whose declaration has an error.
	broken []string
}

// compile reads and compiles a directory as pfard does.
func (c *cli) compile(from sources) (compiled, error) {
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
	set := declaration.Load(os.DirFS(dir), dir, declaration.Options{Servers: servers})
	out := compiled{dir: dir, files: set.Files, diags: set.Diags}
	home, _ := os.UserHomeDir() // without one there is none to protect
	host := generator.Host{
		FS: os.DirFS("/").(fs.ReadLinkFS), Path: filepath.SplitList(c.getenv("PATH")), Home: home,
		StateDir: c.dirs.Homes(), Private: c.dirs.Private(dir),
	}
	for _, b := range set.Broken {
		out.broken = append(out.broken, b.Name)
	}
	for _, s := range set.Servers {
		plan, diags := generator.Compile(s, host)
		out.diags = append(out.diags, diags...)
		if diags.HasErrors() {
			out.broken = append(out.broken, s.Name)
		} else {
			out.plans = append(out.plans, plan)
		}
	}
	return out, nil
}

// printCheck prints the mistakes; one that is an error makes the exit code 1.
func (c *cli) printCheck(set compiled) error {
	errs, warnings := 0, 0
	list := []control.Diagnostic{}
	for _, d := range set.diags {
		if d.Severity == hcl.DiagError {
			errs++
		} else {
			warnings++
		}
		one := control.Diagnostic{Severity: map[hcl.DiagnosticSeverity]string{hcl.DiagError: "error", hcl.DiagWarning: "warning"}[d.Severity], Summary: d.Summary, Detail: d.Detail}
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
	fmt.Fprintf(c.stdout, "%s in %s: %s, %s\n", count(len(set.plans), "sound server"), escape(set.dir, oneLine), count(errs, "error"), count(warnings, "warning"))
	return result
}

// printDiagnostics prints mistakes with their source lines, in colour on a terminal.
func (c *cli) printDiagnostics(set compiled) error {
	width := uint(100)
	if f, ok := c.stderr.(*os.File); ok && isTerminal(f) {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 40 {
			width = uint(w)
		}
	}
	return declaration.Write(c.stderr, set.files, set.diags, width, c.coloured(c.stderr))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
