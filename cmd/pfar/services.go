package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/catalog"
)

const servicesHelp = `List the services that pfar knows, or those that have every word of TEXT in their name,
summary, package or hosts. Entries in services.d come first. PACKAGE is what the server of the service runs.`

// servicesVerb shows the catalogue.
type servicesVerb struct{ *pfar }

func (c servicesVerb) servicesCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use:     "services [TEXT...]",
		Short:   "List the known services",
		Long:    servicesHelp,
		Example: example("pfar services", "pfar services web search"),
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.listServices(cmd, strings.Join(args, " "))
		},
	})
}

// knownService is one service as JSON.
type knownService struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Summary string   `json:"summary"`
	Package string   `json:"package,omitempty"`
	Command string   `json:"command,omitempty"`
	Domains []string `json:"domains,omitempty"`
	Remote  string   `json:"remote,omitempty"`
	File    string   `json:"file"`
}

// listServices prints the services that a text finds.
func (c servicesVerb) listServices(cmd *cobra.Command, text string) error {
	dir := filepath.Join(filepath.Dir(c.located(cmd.Context(), sources{}).policies), "services.d")
	set := catalog.Load(os.DirFS(dir), dir)
	list := []knownService{}
	rows := [][]cell{heading("SERVICE", "HAS", "PACKAGE")}
	for _, s := range set.Search(text) {
		p := s.Program
		list = append(list, knownService{s.Name, s.Title, s.Summary, p.Package, p.Command, s.Domains, s.Remote, s.File})
		runs := p.Package + p.Command + p.Gone // it has one of them
		rows = append(rows, []cell{{s.Name, ""}, {s.Summary, ""}, {runs, ""}})
	}
	if set.Diags.HasErrors() {
		fmt.Fprintf(c.stderr, "services.d has mistakes: pfar check shows them\n")
	}
	switch {
	case c.json():
		return c.printJSON(list)
	case len(list) == 0:
		return fail(exitNoSuch, "no service has %q", text).withHint("pfar services")
	}
	c.table(c.stdout, rows)
	return nil
}
