package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const pinsHelp = `Show what the servers offer that you have not accepted: tools, prompts and instructions that are new, or
that are not what they were when they were accepted. They are held back: no client sees them or can call
them. All that you have accepted works on.

DRIFT is what else is not as it was, the server's version or its program. It holds nothing back.

What a server offers the first time is accepted, unless its declaration says pins = "hold".`

const pinsAcceptHelp = `Show what is held of a server, all of it or what is named, and accept exactly that.

A name is search for a tool, prompt:greet for a prompt, or instructions. If the server has changed one of
them since it was shown, nothing is accepted. Without a terminal --yes says that you have looked before.`

const pinsForgetHelp = `Forget all that was accepted of a server. What it offers next is then its first use, and accepted as a whole
unless its declaration says pins = "hold". If it runs, that is at once.`

func (c *cli) pinsCommand() *cobra.Command {
	pins := c.outputFlag(&cobra.Command{
		Use:     "pins",
		Short:   "Show what the servers offer that you have not accepted, and accept it",
		Long:    pinsHelp,
		Example: example("pfar pins", "pfar pins show notion", "pfar pins accept notion search"),
		Args:    arguments(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.pinsList(cmd.Context()) },
	})
	var yes bool
	accept := c.outputFlag(&cobra.Command{
		Use: "accept SERVER [TOOL...]", Short: "Accept what is held of a server", Long: pinsAcceptHelp,
		Example: example("pfar pins accept notion", "pfar pins accept notion search prompt:summary", "pfar pins accept notion --yes --json"),
		Args:    serverAndMore, ValidArgsFunction: c.completeHeld,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.pinsAccept(cmd.Context(), args[0], args[1:], yes)
		},
	})
	forget := c.outputFlag(&cobra.Command{
		Use: "forget SERVER", Short: "Forget all that was accepted of a server", Long: pinsForgetHelp,
		Args: arguments("SERVER"), ValidArgsFunction: c.completeServers(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.pinsForget(cmd.Context(), args[0], yes) },
	})
	for _, cmd := range []*cobra.Command{accept, forget} {
		cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	}
	pins.AddCommand(
		c.outputFlag(&cobra.Command{
			Use: "show SERVER [TOOL]", Short: "Show what is held as a difference to what was accepted",
			Example: example("pfar pins show notion", "pfar pins show notion search", "pfar pins show notion --json | jq '.descriptors[].definition'"),
			Args:    arguments("SERVER", "[TOOL]"), ValidArgsFunction: c.completeHeld,
			RunE: func(cmd *cobra.Command, args []string) error {
				return c.pinsShow(cmd.Context(), args[0], args[1:])
			},
		}), accept, forget)
	return pins
}

func serverAndMore(cmd *cobra.Command, args []string) error {
	return arguments("SERVER")(cmd, args[:min(1, len(args))])
}

// completeHeld completes a server and then what is held of it.
func (c *cli) completeHeld(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return c.completeServers(1)(cmd, args, toComplete)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), completionTimeout)
	defer cancel()
	all, err := c.pinsOf(ctx, "")
	if err != nil || cmd.Name() == "show" && len(args) > 1 {
		return nil, noFiles
	}
	var titles []string
	for _, p := range all {
		for _, h := range p.Held {
			if p.Server == args[0] && shellSafe(h.Title) && !slices.Contains(args[1:], h.Title) {
				titles = append(titles, completion(h.Title, h.State))
			}
		}
	}
	return titles, noFiles
}

// pinned is what the gateway knows of one server's definitions (package pins of pfar-gateway).
type pinned struct {
	Server      string        `json:"server"`
	Error       string        `json:"error"`
	Accepted    int           `json:"accepted"`
	Gone        int           `json:"gone"`
	Held        []heldPin     `json:"held"`
	Left        int           `json:"left"`
	Drift       []string      `json:"drift"`
	Descriptors []acceptedPin `json:"descriptors"`

	raw json.RawMessage // all of it, as the gateway sent it
}

type heldPin struct {
	Title   string    `json:"title"`
	State   string    `json:"state"`
	Digest  string    `json:"digest"`
	Problem string    `json:"problem"`
	Seen    time.Time `json:"first_seen"`
	Diff    string    `json:"diff"`
	Cut     int       `json:"diff_cut"`
}

type acceptedPin struct {
	Title   string    `json:"title"`
	Digest  string    `json:"digest"`
	Version string    `json:"version"`
	By      string    `json:"accepted_by"`
	At      time.Time `json:"accepted_at"`
	Gone    bool      `json:"gone"`
	Text    string    `json:"text"`
}

func (p *pinned) UnmarshalJSON(b []byte) error {
	type plain pinned
	p.raw = bytes.Clone(b)
	return json.Unmarshal(b, (*plain)(p))
}

// MarshalJSON gives it back whole.
func (p pinned) MarshalJSON() ([]byte, error) { return p.raw, nil }

// pinnable is what a server may be called; nothing else is put into a path.
var pinnable = regexp.MustCompile(`^[a-z][a-z0-9-]{0,22}$`)

// pinsOf asks for the status of all servers, or, with differences and descriptors, for one of them.
func (c *cli) pinsOf(ctx context.Context, server string, titles ...string) ([]pinned, error) {
	if server == "" {
		var all []pinned
		return all, c.askPins(ctx, http.MethodGet, "", nil, &all)
	}
	query := ""
	if len(titles) > 0 {
		query = "?" + url.Values{"name": titles}.Encode()
	}
	one := make([]pinned, 1)
	return one, c.askPins(ctx, http.MethodGet, "/"+server+query, nil, &one[0])
}

const (
	pinsTimeout = 30 * time.Second
	maxPins     = 96 << 20 // bytes of an answer: a server's descriptors, as they are and for people
)

// askPins asks the gateway something below /pins and decodes its answer.
func (c *cli) askPins(ctx context.Context, method, path string, body, answer any) error {
	if server, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); path != "" && !pinnable.MatchString(strings.SplitN(server, "?", 2)[0]) {
		return noSuch("server", strings.SplitN(server, "?", 2)[0], nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pinsTimeout, fmt.Errorf("the gateway does not answer within %s", pinsTimeout))
	defer cancel()
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost/pins"+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	client := c.gatewayHTTP()
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("asking the gateway: %w", err)
	}
	defer resp.Body.Close()
	d := json.NewDecoder(io.LimitReader(resp.Body, maxPins))
	if resp.StatusCode != http.StatusOK {
		return refusedPins(resp, d)
	}
	if err := d.Decode(answer); err != nil {
		return fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return nil
}

// refusedPins is the gateway's reason, as an error.
func refusedPins(resp *http.Response, d *json.Decoder) error {
	var refusal struct {
		Error string `json:"error"`
	}
	if d.Decode(&refusal) != nil || refusal.Error == "" {
		return fail(exitFailed, "the gateway answers %q: pfar and pfar-gateway may be of different versions", resp.Status)
	}
	if resp.StatusCode == http.StatusNotFound {
		return fail(exitNoSuch, "%s", refusal.Error).withHint(`"pfar pins" lists what is held`)
	}
	return errors.New(refusal.Error)
}

func (c *cli) pinsList(ctx context.Context) error {
	all, err := c.pinsOf(ctx, "")
	if err != nil {
		return err
	}
	if c.json() {
		if all == nil {
			all = []pinned{}
		}
		return c.printJSON(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(c.stderr, "no server has been up")
		return nil
	}
	rows := [][]cell{heading("SERVER", "ACCEPTED", "HELD", "WAITING", "DRIFT")}
	for _, p := range all {
		held, colour := p.waiting()
		rows = append(rows, []cell{{p.Server, ""}, {strconv.Itoa(p.Accepted), ""}, {strconv.Itoa(len(p.Held) + p.Left), colour}, {held, colour}, {strings.Join(p.Drift, ", "), ""}})
	}
	c.table(c.stdout, rows)
	return nil
}

// maxWaiting is how many definitions one line names.
const maxWaiting = 4

// waiting says in one line what is held and why, and its colour.
func (p pinned) waiting() (string, string) {
	var list []string
	colour := ""
	for i, h := range p.Held {
		if h.State == "changed" {
			colour = red
		}
		if i < maxWaiting {
			list = append(list, summary(h.Title, 40)+" "+h.State)
		}
	}
	if more := len(p.Held) + p.Left - maxWaiting; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	if p.Error != "" {
		return strings.Join(append([]string{p.Error}, list...), "; "), red
	}
	if colour == "" && len(list) > 0 {
		colour = yellow
	}
	return strings.Join(list, ", "), colour
}

func (c *cli) pinsShow(ctx context.Context, server string, titles []string) error {
	got, err := c.pinsOf(ctx, server, titles...)
	if err != nil {
		return err
	}
	p := got[0]
	if c.json() {
		return c.printJSON(p)
	}
	if len(titles) == 0 {
		fmt.Fprintf(c.stdout, "%s: %d accepted, %d held, %d no longer offered\n", p.Server, p.Accepted, len(p.Held)+p.Left, p.Gone)
		for _, line := range p.Drift {
			fmt.Fprintf(c.stdout, "drift: %s\n", escape(line, oneLine))
		}
	}
	if p.Error != "" {
		fmt.Fprintf(c.stdout, "error: %s\n", escape(p.Error, oneLine))
	}
	c.printHeld(c.stdout, p.Held)
	if p.Left > 0 && len(titles) == 0 {
		fmt.Fprintf(c.stdout, "%d more are held, and more than is kept of one server\n", p.Left)
	}
	for _, d := range p.Descriptors {
		if d.Text != "" && len(p.Held) == 0 {
			c.printDescriptor(d)
		}
	}
	return nil
}

// printHeld prints differences. Their text is a stranger's, made visible by the gateway; here it is not relied on.
func (c *cli) printHeld(w io.Writer, held []heldPin) {
	for _, h := range held {
		head := fmt.Sprintf("%s %s", escape(h.Title, oneLine), escape(h.State, oneLine))
		if h.Problem != "" {
			fmt.Fprintf(w, "\n%s; cannot be accepted: %s\n", c.paint(w, bold, head), escape(h.Problem, oneLine))
			continue
		}
		fmt.Fprintf(w, "\n%s, first seen %s, SHA-256 %s\n", c.paint(w, bold, head), minute(h.Seen), escape(h.Digest, oneLine))
		for line := range strings.Lines(escape(h.Diff, keepLines)) {
			colour := map[byte]string{'+': green, '-': red, '@': cyan}[line[0]]
			fmt.Fprintln(w, c.paint(w, colour, strings.TrimSuffix(line, "\n")))
		}
		if h.Cut > 0 {
			fmt.Fprintf(w, "%s\n", c.paint(w, red, "This is not all of it: pfar pins show SERVER "+escape(h.Title, oneLine)+" --json prints the rest."))
		}
	}
}

func (c *cli) printDescriptor(d acceptedPin) {
	gone := ""
	if d.Gone {
		gone = ", no longer offered"
	}
	head := c.paint(c.stdout, bold, escape(d.Title, oneLine)+" accepted")
	fmt.Fprintf(c.stdout, "%s by %s at %s with version %q%s, SHA-256 %s\n", head, escape(d.By, oneLine), minute(d.At), d.Version, gone, escape(d.Digest, oneLine))
	fmt.Fprint(c.stdout, escape(d.Text, keepLines))
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// pinsAccept accepts what it shows, by its digests.
func (c *cli) pinsAccept(ctx context.Context, server string, titles []string, yes bool) error {
	if err := c.canAsk(yes); err != nil {
		return err
	}
	got, err := c.pinsOf(ctx, server, titles...)
	if err != nil {
		return err
	}
	p := got[0]
	names, err := p.acceptable(titles)
	if err != nil {
		return err
	}
	if len(names) == 0 && len(p.Drift) == 0 {
		return c.printAccepted(server, nil)
	}
	question := fmt.Sprintf("Accept %d of %q?", len(names), server)
	if len(names) == 0 {
		question = fmt.Sprintf("Accept of %q that its %s?", server, escape(strings.Join(p.Drift, ", "), oneLine))
	}
	if err := c.ask(ctx, yes, question, func(w io.Writer) { c.printHeld(w, p.Held) }); err != nil {
		return err
	}
	var answer struct {
		Accepted []string `json:"accepted"`
	}
	if err := c.askPins(ctx, http.MethodPost, "/"+server+"/accept", map[string][]string{"names": names}, &answer); err != nil {
		return err
	}
	return c.printAccepted(server, answer.Accepted)
}

// acceptable names what is held with the digests of what is shown. What cannot be accepted is an error if it was named.
func (p pinned) acceptable(titles []string) ([]string, error) {
	names := []string{} // null is no list
	for _, h := range p.Held {
		if h.Digest != "" {
			names = append(names, h.Title+"@"+h.Digest)
		} else if len(titles) > 0 {
			return nil, fail(exitFailed, "%s of %q cannot be accepted: %s", h.Title, p.Server, h.Problem)
		}
	}
	if p.Error != "" && len(names) == 0 {
		return nil, fail(exitFailed, "nothing of %q can be accepted: %s", p.Server, p.Error).withHint("pfar pins forget %s begins anew", p.Server)
	}
	if len(titles) > 0 && len(names) == 0 {
		return nil, fail(exitNoSuch, "of %q nothing of that is held: %q", p.Server, titles).withHint("pfar pins show %s", p.Server)
	}
	return names, nil
}

func (c *cli) printAccepted(server string, accepted []string) error {
	if c.json() {
		if accepted == nil {
			accepted = []string{}
		}
		return c.printJSON(map[string]any{"server": server, "accepted": accepted})
	}
	if len(accepted) == 0 {
		fmt.Fprintf(c.stderr, "nothing more of %q is held that can be accepted\n", server)
		return nil
	}
	fmt.Fprintf(c.stdout, "accepted: %s\n", escape(strings.Join(accepted, ", "), oneLine))
	return nil
}

func (c *cli) pinsForget(ctx context.Context, server string, yes bool) error {
	if err := c.canAsk(yes); err != nil {
		return err
	}
	question := fmt.Sprintf("Forget what was accepted of %q? Unless its declaration says pins = \"hold\", all that it offers next is accepted.", server)
	if err := c.ask(ctx, yes, question, func(io.Writer) {}); err != nil {
		return err
	}
	if err := c.askPins(ctx, http.MethodPost, "/"+server+"/forget", nil, new(any)); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(map[string]string{"server": server, "result": "forgotten"})
	}
	return nil
}

// canAsk refuses what nobody can be asked about.
func (c *cli) canAsk(yes bool) error {
	if !yes && !isTerminal(c.stdin) {
		return usage("standard input is no terminal, so nobody can be asked").withHint("--yes accepts without a question; look before, with pfar pins show")
	}
	return nil
}

// ask shows something and wants a yes. What the answer is about goes where the one who answers sees it.
func (c *cli) ask(ctx context.Context, yes bool, question string, show func(io.Writer)) error {
	if yes {
		if !c.json() {
			show(c.stdout)
		}
		return nil
	}
	w := c.stdout
	if !isTerminal(w) || c.json() {
		w = c.stderr
	}
	show(w)
	fmt.Fprintf(c.stderr, "\n%s [y/N] ", escape(question, oneLine))
	b, err := interruptible(ctx, func() ([]byte, error) {
		b := make([]byte, 64) // a terminal gives one line
		n, err := c.stdin.Read(b)
		return b[:n], err
	})
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(string(b))) {
	case "y", "yes":
		return nil
	}
	return fail(exitFailed, "nothing was changed")
}
