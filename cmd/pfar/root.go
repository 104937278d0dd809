package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `pfar runs MCP servers that you do not trust. Each server runs in its own sandbox and reaches
only the hosts in its declaration. All servers are behind one MCP endpoint.`

const rootExample = `  pfar                                see what runs, and the next step
  pfar demo                           see a server in its sandbox
  pfar add notion                     set up a server that pfar knows
  pfar check mcp.d                    find mistakes in declarations
  pfar up mcp.d                       run them until Ctrl-C
  pfar call notion.search --query x   call a tool`

const environmentHelp = `Variables that pfar and pfard read. The brackets contain root's default, then that of other users.

  PFAR_RUN_DIR      sockets; in memory [/run/pfar; $XDG_RUNTIME_DIR/pfar, else /dev/shm/pfar-UID]
  PFAR_STATE_DIR    token, logs, pins, sessions, audit, private homes, vault
                    [/var/lib/pfar; $XDG_STATE_HOME/pfar]
  PFAR_CONFIG_DIR   declarations; clients.d, flows.d, policies.d, models.d, chat.d, services.d, oauth.d
                    and on-failure are beside it
                    [/etc/pfar/mcp.d; $XDG_CONFIG_HOME/pfar/mcp.d]
  PFAR_SERVERS_DIR  programs installed for servers [servers in PFAR_STATE_DIR]
  HTTPS_PROXY       the HTTP proxy of your network, through which servers reach declared hosts;
                    also HTTP_PROXY and NO_PROXY. Read by "pfar up"
  ACCESSIBLE        if not empty, text in place of screens, for screen readers
  NO_COLOR          if not empty, no colour (no-color.org)
  SSL_CERT_FILE     certificates to use in place of the system's, for hosts of brokered credentials,
                    token endpoints and models; also SSL_CERT_DIR. Read by "pfar up"

  OTEL_EXPORTER_OTLP_ENDPOINT
                    where to send traces of calls, such as http://127.0.0.1:4318; none by default.
                    Read by "pfar up", with the other variables that begin with OTEL_`

// run carries out one command line and returns the exit code.
func run(ctx context.Context, c *pfar, args []string) int {
	out := &keptWriter{Writer: c.stdout}
	c.stdout = out
	defer func() { c.stdout = out.Writer }()
	root := rootCommand(c)
	describeVerbsOfCobra(root)
	root.SetArgs(args)
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	ran, err := root, elsewhere(args)
	if err == nil {
		ran, err = root.ExecuteContextC(ctx)
	}
	var quiet *silent
	if failed := out.error(); failed != nil && (err == nil || errors.As(err, &quiet)) {
		err = fmt.Errorf("writing to standard output: %w", failed)
	}
	code, _ := classify(err)
	switch {
	case err == nil || errors.As(err, &quiet):
	case code == exitInterrupted:
		c.complainWith(errors.New("interrupted"), "", code)
	default:
		c.complainWith(err, c.hintFor(err, commandOf(ran)), code)
	}
	return code
}

func rootCommand(c *pfar) *cobra.Command {
	root := &cobra.Command{
		Use:           "pfar",
		Short:         "Run untrusted MCP servers in sandboxes behind one endpoint",
		Long:          rootHelp,
		Example:       rootExample,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       readBuild().String(),
		Args:          arguments(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return overviewVerb{c}.overview(cmd.Context()) },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w", err).withHint("%s --help", cmd.CommandPath())
	})
	for _, group := range []struct {
		id, title string
		verbs     []*cobra.Command
	}{
		{"declare", "Declare:", []*cobra.Command{
			declaredVerb{c}.checkCommand(), declaredVerb{c}.planCommand(), declaredVerb{c}.explainCommand(),
			addVerb{c}.addCommand(), servicesVerb{c}.servicesCommand(), packageVerb{c}.installCommand(),
			upgradeVerb{c}.upgradeCommand(), importVerb{c}.importCommand(), editVerb{c}.editCommand(),
			removeVerb{c}.removeCommand(),
		}},
		{"run", "Run:", append(lifecycleVerb{c}.commands(),
			upVerb{c}.upCommand(), demoVerb{c}.demoCommand(), statusVerb{c}.statusCommand(),
			topVerb{c}.topCommand(), undoVerb{c}.undoCommand(), cleanVerb{c}.cleanCommand(),
			trialVerb{c}.testCommand(), trialVerb{c}.refreshCommand(),
			logsVerb{c}.logsCommand(), egressVerb{c}.egressCommand(), learnVerb{c}.learnCommand(),
			allowVerb{c}.allowCommand(),
		)},
		{"use", "Use:", []*cobra.Command{
			toolsVerb{c}.toolsCommand(), toolsVerb{c}.describeCommand(), toolsVerb{c}.callCommand(),
			flowVerb{c}.flowCommand(), askVerb{c}.askCommand(), chatVerb{c}.chatCommand(),
			connectVerb{c}.connectCommand(), pinsVerb{c}.pinsCommand(), approvalsVerb{c}.approvalsCommand(),
			consoleVerb{c}.consoleCommand(), operatorVerb{c}.operatorCommand(), messageVerb{c}.messageCommand(),
			grantsVerb{c}.grantsCommand(), sessionsVerb{c}.sessionsCommand(), auditVerb{c}.auditCommand(),
			installVerb{clientVerb{c}}.withInstall(),
		}},
		{"host", "Machine and secrets:", []*cobra.Command{
			loginVerb{c}.loginCommand(), vaultVerb{c}.vaultCommand(), modelsVerb{c}.modelsCommand(),
			doctorVerb{c}.doctorCommand(),
		}},
		{"more", "More:", []*cobra.Command{versionVerb{c.streams}.versionCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, verb := range group.verbs {
			verb.GroupID = group.id
			verb.SuggestFor = synonyms[verb.Name()]
		}
		root.AddCommand(group.verbs...)
	}
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	root.SetUsageTemplate(usageTemplate.Replace(root.UsageTemplate()))
	root.AddCommand(
		demoVerb{c}.demoServerCommand(),
		&cobra.Command{Use: "exit-codes", Short: "The exit codes of pfar", Long: exitCodesHelp},
		&cobra.Command{Use: "environment", Short: "The environment variables of pfar", Long: environmentHelp},
	)
	return root
}

// describeVerbsOfCobra gives the verbs that cobra adds the words of pfar.
func describeVerbsOfCobra(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, verb := range root.Commands() {
		switch verb.Name() {
		case "help":
			verb.Use, verb.Short, verb.Long = "help [VERB]", "Explain a verb", `Explain a verb, as "pfar VERB --help" does.`
		case "completion":
			verb.Short = "Print a completion script for a shell"
			verb.Long = verb.Short + ". The packages install those for bash, zsh and fish."
		}
	}
}

// usageTemplate has cobra's usage say VERB, as the manuals do, and name the topics as one types them.
var usageTemplate = strings.NewReplacer(
	"[command]", "VERB", "more information about a command", "more about a verb", "Available Commands:", "Verbs:",
	"{{rpad .CommandPath .CommandPathPadding}} {{.Short}}", `{{rpad (print .Root.Name " help " .Name) 22}} {{.Short}}`,
)

// synonyms are verbs of other tools for a verb of ours.
var synonyms = map[string][]string{
	"up":      {"run", "serve"},
	"status":  {"ps", "ls", "list"},
	"login":   {"signin", "auth", "authorize"},
	"tools":   {"ls", "list"},
	"stop":    {"down", "kill"},
	"remove":  {"rm", "delete", "uninstall", "undeclare"},
	"edit":    {"change", "declare"},
	"import":  {"migrate", "migrate-mcp"},
	"logs":    {"log"},
	"test":    {"verify"},
	"refresh": {"rediscover", "reload"},
	"explain": {"inspect", "show"},
	"clean":   {"purge", "prune"}, "undo": {"revert", "restore", "rollback"},
}
