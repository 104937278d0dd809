package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pfar/pfar/units/control"
)

const consoleHelp = `Print a link to your pages of pfar on this machine. There you answer waiting calls,
accept the definitions of tools, make clean sessions and remove stains. You also see the state and the wants of
servers, the labels of sessions, your clients, problems on this machine, and the newest audit records. If you run
pfard yourself, you also add, import, start and stop servers there, declare clients, find the hosts that servers
need, and allow refused hosts. You can read the logs of servers if you run pfard, or if pfar is installed.

On a desktop this command also opens the link in your browser, and ends when the link has been used. Over SSH,
without a terminal, with --json or with --no-browser it only prints the link: open it in a browser within 10 minutes.
The link works once, and the browser stays signed in until nobody has used the pages for 30 minutes, or until "pfar
console logout".

The pages act as you, with your rights. A user of an installed pfar needs to be a member of the group pfar-admin; root
has no pages.`

// consoleVerb opens the operator's pages.
type consoleVerb struct{ *pfar }

func (c consoleVerb) consoleCommand() *cobra.Command {
	onlyPrint := false
	root := c.outputFlag(&cobra.Command{
		Use: "console", Short: "Print a link to the pages where you answer calls", Long: consoleHelp,
		Example: example("pfar console", "pfar console --no-browser", "pfar console logout"),
		RunE:    alone(func(ctx context.Context) error { return c.open(ctx, onlyPrint) }),
	})
	root.Flags().BoolVar(&onlyPrint, "no-browser", false, "print the link, and open no browser")
	root.AddCommand(c.verb("logout", "Sign out your browsers on this machine, and end your pages", alone(c.logout)))
	return root
}

func (c consoleVerb) open(ctx context.Context, onlyPrint bool) error {
	if b := findBrowser(c.pfar); b != nil && !onlyPrint && !c.json() {
		ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // the terminal is closed: the file is to go
		defer stop()
		err := c.openInBrowser(ctx, b)
		if !errors.Is(err, control.ErrInvalid) {
			return c.explained(err)
		}
		// pfard is of an earlier version, and does not say when a link is used: a person opens it.
	}
	r, err := c.control().Do(ctx, control.Request{Verb: control.Console})
	if err != nil {
		return c.explained(err)
	}
	if c.json() {
		return c.printJSON(map[string]string{"link": r.Link})
	}
	c.show(r.Link)
	return nil
}

// explained adds the remedy to the error of a user who may not have a console.
func (c consoleVerb) explained(err error) error {
	if errors.Is(err, control.ErrDenied) {
		return fail(exitDenied, "%w", err).withHint("sudo usermod -aG pfar-admin USER, and sign in again as that user")
	}
	return err
}

func (c consoleVerb) show(link string) {
	showLink(c.pfar, link)
	fmt.Fprintln(c.stderr, "The link works once, within 10 minutes. Do not show it to others: "+
		"anybody who has it can answer in your place.")
}

func (c consoleVerb) logout(ctx context.Context) error {
	_, err := c.control().Do(ctx, control.Request{Verb: control.Logout})
	if err == nil && c.json() {
		return c.printJSON(map[string]string{"result": "signed out"})
	}
	if err == nil {
		fmt.Fprintln(c.stdout, "signed out")
	}
	return err
}

// showLink shows the link of a page on this machine, and how a browser on another one reaches it.
func showLink(c *pfar, link string) {
	say := func(format string, a ...any) { fmt.Fprintf(c.stderr, format+"\n", a...) }
	if u, err := url.Parse(link); err == nil {
		port, _ := strconv.ParseUint(u.Port(), 10, 16)
		if forward := (loginVerb{c}).forward(uint16(port)); forward != "" {
			say("\nThe page is on this machine. If your browser runs on another machine, first run\n"+
				"this command there:\n\n  %s", escape(forward, oneLine))
		}
	}
	say("\nOpen this link in your browser, and go on there:\n\n  %s\n", escape(link, oneLine))
}
