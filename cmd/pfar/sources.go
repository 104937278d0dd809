package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/generator/catalog"
)

// sources are the directories that a server is made from. An empty one was not named.
type sources struct {
	dir     string   // of the declarations
	below   []string // folders of declarations that it hides; never named
	servers string   // of the programs installed for servers
	clients string   // of the declared clients

	policies string // of the gate's policies; never named
}

// services is the directory of the operator's entries of the catalogue.
func (s sources) services() string { return filepath.Join(filepath.Dir(s.policies), "services.d") }

// flows is the directory of the owner's flows.
func (s sources) flows() string { return filepath.Join(filepath.Dir(s.policies), "flows.d") }

// known reads the catalogue.
func (s sources) known() catalog.Set { return catalog.Load(os.DirFS(s.services()), s.services()) }

// providers is the directory of the owner's clients with OAuth providers.
// models are the models that belong to the policies.
func (s sources) chats() string  { return filepath.Join(filepath.Dir(s.policies), "chat.d") }
func (s sources) models() string { return filepath.Join(filepath.Dir(s.policies), "models.d") }

func (s sources) providers() string { return filepath.Join(filepath.Dir(s.policies), "oauth.d") }

// located fills in what was not named: the directories of the pfard that runs, so that what is checked is what counts,
// else the defaults.
func (c *pfar) located(ctx context.Context, s sources) sources {
	var running sources
	if s.dir == "" || s.servers == "" {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if report, err := c.report(ctx); err == nil {
			running = sources{dir: report.Directory, servers: report.Programs, clients: report.Clients,
				policies: report.Policies}
		}
	}
	s.clients, s.policies = cmp.Or(running.clients, c.dirs.Clients()), cmp.Or(running.policies, c.dirs.Policies())
	if s.dir != "" { // those of others are none of its business
		beside := filepath.Dir(filepath.Clean(s.dir))
		s.clients, s.policies = filepath.Join(beside, "clients.d"), filepath.Join(beside, "policies.d")
	}
	switch {
	case s.dir != "":
	case running.dir != "":
		s.dir, s.below = running.dir, c.dirs.Folders(running.dir)[1:]
	default:
		s.dir, s.below = c.dirs.Config, c.dirs.Below
	}
	s.servers = cmp.Or(s.servers, running.servers, c.dirs.Servers)
	return s
}

const elseRunning = "; by default that of the running pfar, else "

func (c *pfar) dirFlag(cmd *cobra.Command, s *sources) {
	cmd.Flags().StringVar(&s.dir, "dir", "", "`DIR` of the declarations"+elseRunning+c.dirs.Config)
}

func (c *pfar) serversFlag(cmd *cobra.Command, s *sources) {
	cmd.Flags().StringVar(&s.servers, "servers", "", "`DIR` of the programs installed for servers"+elseRunning+c.dirs.Servers)
}
