package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/policies/oauth"
	"github.com/pfar/pfar/units/control"
)

const loginHelp = `Sign in to an OAuth provider, and store its token in the vault. NAME is a
provider of oauth.d, a declared server that uses its token, or a known service.

With --browser, pfar shows a link. After you have signed in there, your browser
comes back to pfar on this machine. With --device you type a code on a page, on
any device. Without either flag, pfar uses the way that the provider offers. If
it offers both, pfar uses the browser if the client has a secret, else the code.
pfar never starts a browser: every user of this machine could read the link
among the browser's arguments, and sign in with another account.

The token goes from the provider to the vault. This command does not see it.
Press Ctrl-C to give up; then nothing is stored. You first register an OAuth
client with the provider; pfar-oauth(5) says how to configure it.`

// loginVerb has tokens obtained.
type loginVerb struct{ *pfar }

func (c loginVerb) loginCommand() *cobra.Command {
	var device, browser bool
	cmd := c.outputFlag(&cobra.Command{
		Use: "login NAME", Short: "Sign in to a provider, and store its token in the vault", Long: loginHelp,
		Example: example("pfar login github", "pfar login github --device", "pfar login gmail --browser"),
		Args:    arguments("NAME"), ValidArgsFunction: offerFirst(c.offeredServers),
		RunE: func(cmd *cobra.Command, args []string) error {
			var way oauth.Way
			switch {
			case device:
				way = oauth.ByDevice
			case browser:
				way = oauth.ByCode
			}
			return c.login(cmd.Context(), args[0], control.Login{Way: way})
		},
	})
	cmd.Flags().BoolVar(&device, "device", false, "sign in on any device, with a code that pfar shows")
	cmd.Flags().BoolVar(&browser, "browser", false, "sign in with a browser of this machine")
	cmd.MarkFlagsMutuallyExclusive("device", "browser")
	return cmd
}

func (c loginVerb) login(ctx context.Context, name string, l control.Login) error {
	got, err := c.obtain(ctx, name, l, "pfar login "+name+" --device")
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

// signedIn is what has become of a login.
type signedIn struct {
	control.SignIn
	Reason control.Code `json:"reason,omitempty"` // why no token is stored
}

// codeOf says in one word why pfard has not done something.
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

// obtain has a token obtained, and shows the person what there is to do. With a code instead, it is another command.
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

// show says what the person is to do.
func (c loginVerb) show(s control.SignIn, instead string) {
	say := func(format string, a ...any) { fmt.Fprintf(c.stderr, format+"\n", a...) }
	line := func(text string) string { return escape(text, oneLine) }
	minutes := max(1, int(s.Step.Until.Sub(c.now()).Minutes()+0.5))
	if s.Step.Code != "" {
		say("Open this page, on any device:\n\n  %s\n", line(s.Step.URL))
		say("Enter this code there:\n\n  %s\n", c.paint(c.stderr, bold, line(s.Step.Code)))
		if s.Step.Complete != "" {
			say("This page has the code already:\n\n  %s\n", line(s.Step.Complete))
		}
	} else {
		if forward := c.forward(s.Step.Port); forward != "" {
			say("The browser comes back to this machine. If it runs on another machine, first run\n"+
				"this command there:\n\n  %s\n", line(forward))
			say("Or use a code: %s\n", line(instead))
		}
		say("Open this link in your browser, and sign in:\n\n  %s\n", line(s.Step.URL))
	}
	say("Waiting for you, at most %s. Ctrl-C gives up.", count(minutes, "minute"))
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
