package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/policies/plural"
	"github.com/pfar/pfar/units/control"
)

const loginHelp = `Sign in to an OAuth provider, and store its token in the vault. NAME is a
provider of oauth.d, a declared server that uses its token, or a known service.

With --browser, pfar shows a link. After you have signed in there, your browser
comes back to pfar on this machine. With --device you type a code on a page, on
any device. Without either flag, pfar uses the way that the provider offers. If
it offers both, pfar uses the browser if the client has a secret, else the code.
pfar login starts no browser: every user of this machine could read the link
among the browser's arguments, and sign in with another account.

A remote server names its provider itself. pfar shows you this provider, and
connects there only if you say yes. --yes confirms no new provider: it accepts
only one that you confirmed at an earlier login, or wrote into oauth.d.

The token goes from the provider to the vault. This command does not see it.
Press Ctrl-C to give up; then nothing is stored. You first register an OAuth
client with the provider, unless a remote server's provider registers pfar by
itself; pfar-oauth(5) says how to configure it.`

// loginVerb obtains tokens.
type loginVerb struct{ *pfar }

func (c loginVerb) loginCommand() *cobra.Command {
	var device, browser, yes bool
	var scopes []string
	var document string
	cmd := c.outputFlag(&cobra.Command{
		Use: "login NAME", Short: "Sign in to a provider, and store its token in the vault", Long: loginHelp,
		Example: example("pfar login github", "pfar login github --device", "pfar login linear --scope issues:create",
			"pfar login --print-client-metadata https://example.com/pfar.json"),
		Args: arguments("[NAME]"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			var way oauth.Way
			switch {
			case document != "":
				return c.printDocument(document, args)
			case len(args) == 0:
				return usage("login: missing NAME")
			case device:
				way = oauth.ByDevice
			case browser:
				way = oauth.ByCode
			}
			return c.login(cmd.Context(), args[0], yes, control.Login{Way: way, Scopes: scopes})
		},
	})
	cmd.Flags().BoolVar(&device, "device", false, "sign in on any device, with a code that pfar shows")
	cmd.Flags().BoolVar(&browser, "browser", false, "sign in with a browser of this machine")
	cmd.Flags().StringArrayVar(&scopes, "scope", nil, "ask for this scope too; may be repeated")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask: fail if the server names a provider that is not confirmed")
	cmd.Flags().StringVar(&document, "print-client-metadata", "",
		"print what to publish at this `URL`, which is pfar's client id then")
	cmd.MarkFlagsMutuallyExclusive("device", "browser", "print-client-metadata")
	return cmd
}

// printDocument prints a Client ID Metadata Document.
func (c loginVerb) printDocument(address string, args []string) error {
	text, err := oauth.ClientDocument(address)
	if err != nil || len(args) > 0 {
		return usage("%v", cmp.Or(err, errors.New("the document is the same for every NAME: leave NAME out")))
	}
	fmt.Fprintf(c.stderr, "Publish this at the URL, and write into a file of oauth.d:\n\n  client_metadata = %q\n\n",
		address)
	_, err = c.stdout.Write(text)
	return err
}

func (c loginVerb) login(ctx context.Context, name string, yes bool, l control.Login) error {
	got, err := c.agreed(ctx, name, yes, l)
	if c.json() {
		got.Name = cmp.Or(got.Name, name)
		got.Step = control.Step{} // it is done, or of no use any more
		if printed := c.printJSON(signedIn{got, codeOf(err)}); err == nil {
			err = printed
		}
		return err
	}
	if err != nil {
		return err
	}
	scopes := ""
	if len(got.Scopes) > 0 {
		scopes = ", granted " + strings.Join(got.Scopes, ", ")
	}
	fmt.Fprintf(c.stdout, "%s\n", escape(fmt.Sprintf("stored in the vault as %s%s", got.Key, scopes), oneLine))
	for _, change := range got.Changes {
		vaultVerb(c).warn(change)
		vaultVerb(c).printUses(change)
	}
	return nil
}

// agreed is obtain, but has the person confirm the provider that a remote server names.
func (c loginVerb) agreed(ctx context.Context, name string, yes bool, l control.Login) (control.SignIn, error) {
	for range maxConfirmed {
		got, err := c.obtain(ctx, name, l, "pfar login "+name+" --device")
		if err == nil && got.Confirm != nil {
			l.Confirmed, err = got.Confirm, c.confirm(ctx, yes, *got.Confirm)
		}
		if err != nil || got.Confirm == nil {
			return got, err
		}
	}
	return control.SignIn{}, fail(exitFailed, "the server names another provider each time; nothing was stored")
}

// signedIn is what has become of a login.
type signedIn struct {
	control.SignIn
	Reason control.Code `json:"reason,omitempty"` // why no token is stored
}

// codeOf returns a code for why a login has failed.
func codeOf(err error) control.Code {
	var refused *control.Refused
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused) && refused.Code != "":
		return refused.Code
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.Is(err, control.ErrNotRunning):
		return "not-running"
	}
	return "failed"
}

// maxConfirmed is how often a login is tried: without a confirmation, with that of the provider, with that of endpoints
// at other hosts, and once more for a provider that has changed meanwhile.
const maxConfirmed = 4

// confirm shows the person the provider that a remote server names, and asks. Only a person at a terminal can say yes,
// because the server is not trusted.
func (c loginVerb) confirm(ctx context.Context, yes bool, k control.Consent) error {
	line := func(text string) string { return escape(text, oneLine) }
	show := func(w io.Writer) {
		fmt.Fprintf(w, "The server at %s says that you sign in at\n\n  %s\n\n", line(k.Server), line(k.Issuer))
		if len(k.Hosts) > 0 {
			fmt.Fprintf(w, "pfar and your browser would connect to\n\n")
		}
		for _, h := range k.Hosts {
			fmt.Fprintf(w, "  %s\n", line(h))
		}
		if k.Resource != "" {
			fmt.Fprintf(w, "\nThe token would be good for all of %s\n", line(k.Resource))
		}
	}
	if yes || !isTerminal(c.stdin) {
		show(c.stderr)
		return fail(exitFailed, "nobody has confirmed this yet").withHint("run the command on a terminal, without --yes; "+
			"or write provider NAME { key = \"KEY\", issuer = %q } into oauth.d", k.Issuer)
	}
	return c.ask(ctx, false, "Sign in there?", show)
}

// obtain obtains a token, and shows the person what to do. instead is a command that works without a browser on this
// machine.
func (c loginVerb) obtain(ctx context.Context, name string, l control.Login, instead string) (control.SignIn, error) {
	var shown control.Step
	got, err := c.control().Login(ctx, name, l, func(s control.SignIn) {
		if s.Step != shown && s.Step.URL != "" {
			c.show(s, instead)
		}
		shown = s.Step
	})
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, control.ErrNotRunning) && shown.URL != "":
		err = fail(exitFailed, "pfard ended during the sign-in: pfar vault list shows whether the token is stored; "+
			"if not, run the command again")
	}
	return got, err
}

// show prints what the person has to do.
func (c loginVerb) show(s control.SignIn, instead string) {
	p := page{columns: columnsOf(c.stderr)}
	say := func(words, whole string) { // a link or a command, which is never broken
		p.words(words)
		fmt.Fprintf(&p, "\n  %s\n\n", whole)
	}
	line := func(text string) string { return escape(text, oneLine) }
	minutes := max(1, int(s.Step.Until.Sub(c.now()).Minutes()+0.5))
	if s.Step.Code != "" {
		say("Open this page, on any device:", line(s.Step.URL))
		say("Enter this code there:", c.paint(c.stderr, bold, line(s.Step.Code)))
		if s.Step.Complete != "" {
			say("Or open this page, which has the code already:", line(s.Step.Complete))
		}
	} else {
		if forward := c.forward(s.Step.Port); forward != "" {
			say("The browser comes back to this machine. If it runs on another machine, first run this command there:",
				line(forward))
			say("To sign in with a code instead, press Ctrl-C and run:", line(instead))
		}
		say("Open this link in your browser, and sign in:", line(s.Step.URL))
	}
	p.words(fmt.Sprintf("Waiting for you, at most %s. Ctrl-C gives up.", plural.Count(minutes, "minute")))
	fmt.Fprint(c.stderr, p.String())
}

// forward is the command by which a browser on another machine reaches a port of this one; "": it is likely to be here.
func (c loginVerb) forward(port uint16) string {
	if remote := c.remote(); remote != "" {
		return fmt.Sprintf("ssh -L %d:127.0.0.1:%d %s", port, port, remote)
	}
	return ""
}

// remote is where ssh reaches this machine, if the browser is likely to be on another one; "": it is not.
func (c loginVerb) remote() string {
	fields := strings.Fields(c.getenv("SSH_CONNECTION"))
	if len(fields) == 4 {
		if at, err := netip.ParseAddr(fields[2]); err == nil {
			return at.String()
		}
	}
	if c.getenv("DISPLAY") == "" && c.getenv("WAYLAND_DISPLAY") == "" { // sudo takes the other variable away
		return "MACHINE"
	}
	return ""
}
