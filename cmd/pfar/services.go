package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/catalog"
	"github.com/pfar/pfar/policies/broker"
)

const servicesHelp = `List the services that pfar knows, or those that have every word of TEXT in their name,
summary, package or hosts. Entries in services.d replace shipped ones. The column PACKAGE names the
package that the server runs, or the address of the vendor's own server.

With the name of one service, print the files, hosts and secrets of its server, how to get the secrets,
and the call that tests them.`

// servicesVerb shows the catalogue.
type servicesVerb struct{ *pfar }

func (c servicesVerb) servicesCommand() *cobra.Command {
	return c.outputFlag(&cobra.Command{
		Use:     "services [NAME | TEXT...]",
		Short:   "List the known services",
		Long:    servicesHelp,
		Example: example("pfar services", "pfar services web search", "pfar services notion"),
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
	Domains []string `json:"domains,omitempty"`
	Remote  string   `json:"remote,omitempty"`
	File    string   `json:"file"`

	knownProgram
	Label      string           `json:"label"`
	Secrets    []knownSecret    `json:"secrets,omitempty"`
	Parameters []knownParameter `json:"parameters,omitempty"`
	Device     *knownSignIn     `json:"device,omitempty"`
	Code       *knownSignIn     `json:"code,omitempty"`
	Test       *knownTest       `json:"test,omitempty"`
	Reviewed   bool             `json:"reviewed"` // pfar ships digests of its definitions
}

type knownProgram struct {
	Package string `json:"package,omitempty"`
	Command string `json:"command,omitempty"`
	Gone    string `json:"gone,omitempty"` // why there is neither
}

type knownSecret struct {
	Variable string   `json:"variable"`
	Key      string   `json:"key"` // in the vault
	Deliver  string   `json:"deliver"`
	Hosts    []string `json:"hosts,omitempty"`
	In       []string `json:"in,omitempty"`
	Where    string   `json:"where"`
	URL      string   `json:"url,omitempty"`
	Scopes   []string `json:"scopes,omitempty"`
	Optional bool     `json:"optional"`
}

type knownParameter struct {
	Name     string `json:"name"`
	Question string `json:"question"`
	Example  string `json:"example,omitempty"`
	Access   string `json:"access,omitempty"` // "read" or "write"
	Optional bool   `json:"optional"`
}

type knownSignIn struct {
	URL    string   `json:"url"`
	Token  string   `json:"token"`
	Scopes []string `json:"scopes,omitempty"`

	Register string `json:"register,omitempty"` // where an owner registers a client
}

type knownTest struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Answer    string          `json:"answer,omitempty"` // regular expression that a good answer matches
}

// knownOf is a service as JSON.
func knownOf(s catalog.Service) knownService {
	p := s.Program
	k := knownService{
		Name: s.Name, Title: s.Title, Summary: s.Summary, Domains: s.Domains, Remote: s.Remote.URL, File: s.File,
		knownProgram: knownProgram{p.Package, p.Command, p.Gone}, Label: string(s.Label), Reviewed: s.Reviewed() != nil,
	}
	for _, e := range s.Secrets {
		secret := knownSecret{e.Env, e.Key, string(e.Deliver), e.Hosts, nil, e.Where, e.URL, e.Scopes, e.Optional}
		if e.Deliver == broker.InEnvironment {
			secret.Deliver = "env"
		}
		for _, place := range e.In {
			secret.In = append(secret.In, place.String())
		}
		k.Secrets = append(k.Secrets, secret)
	}
	for _, e := range s.Parameters {
		k.Parameters = append(k.Parameters, knownParameter{e.Name, e.Question, e.Example, e.Access, e.Optional})
	}
	k.Device, k.Code = (*knownSignIn)(s.Device), (*knownSignIn)(s.Code)
	if s.Test != nil {
		k.Test = &knownTest{s.Test.Tool, s.Test.Arguments, s.Test.Answer}
	}
	return k
}

// catalogue reads the services, and prints a warning if they have mistakes.
func (c servicesVerb) catalogue(ctx context.Context) catalog.Set {
	set := c.located(ctx, sources{}).known()
	if set.Diags.HasErrors() {
		fmt.Fprintf(c.stderr, "services.d has mistakes: pfar check shows them\n")
	}
	return set
}

// naming reads only the service of a name. If there is none, or a mistake, it reads all services.
func (c servicesVerb) naming(ctx context.Context, name string) catalog.Set {
	dir := c.located(ctx, sources{}).services()
	set := catalog.LoadOne(os.DirFS(dir), dir, name)
	if _, ok := set.Find(name); ok && !set.Diags.HasErrors() {
		return set
	}
	return c.catalogue(ctx)
}

// listServices prints the services that a text finds.
func (c servicesVerb) listServices(cmd *cobra.Command, text string) error {
	set := c.catalogue(cmd.Context())
	list := []knownService{}
	rows := [][]cell{heading("SERVICE", "HAS", "PACKAGE")}
	found := set.Search(text)
	one, exact := set.Find(text)
	if exact {
		found = []catalog.Service{one}
	}
	for _, s := range found {
		p := s.Program
		list = append(list, knownOf(s))
		runs := cmp.Or(p.Package, p.Command, s.Remote.URL, p.Gone)
		rows = append(rows, []cell{{s.Name, ""}, {s.Summary, ""}, {runs, ""}})
	}
	switch {
	case c.json():
		return c.printJSON(list)
	case exact:
		fmt.Fprint(c.stdout, serviceText(one, columnsOf(c.stdout)))
		return nil
	case len(list) == 0:
		return fail(exitNoSuch, "no service has %q", text).withHint("pfar services")
	}
	c.table(c.stdout, rows)
	return nil
}
